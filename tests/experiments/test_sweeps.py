import numpy as np
import pandas as pd
import pytest

from dmlmc.experiments import sweeps


def test_the_best_rate_has_the_smallest_mean_over_seeds():
    rows = [
        {"method": method, "optimiser": "SGD", "learning_rate": rate, "seed": seed, "step": step, "loss": loss + seed}
        for method, best in (("MLMC", 0.1), ("delayed MLMC", 0.2))
        for rate in (0.1, 0.2, 0.4)
        for seed in (0, 1)
        for step, loss in ((0, 0.0), (5, np.inf if rate == 0.4 else 1.0 + (rate != best)))
    ]
    best = sweeps.best_rates(pd.DataFrame(rows)).set_index("method")
    assert best.learning_rate.to_dict() == {"MLMC": 0.1, "delayed MLMC": 0.2}
    assert best.loss.tolist() == [1.5, 1.5] and np.all(best.low < best.loss) and np.all(best.loss < best.high)


def test_span_ratios_compare_mlmc_with_delayed_mlmc_at_equal_loss():
    rows = [
        {"method": method, "seed": seed, "step": step, "span": step * span, "loss": 2.0**-step}
        for method, span in (("naive", 8.0), ("MLMC", 8.0), ("delayed MLMC", 2.0))
        for seed in (0, 1)
        for step in range(6)
    ]
    found = sweeps.span_ratios(pd.DataFrame(rows))
    assert len(found) == 4 and all(ratio["mean"] == pytest.approx(4.0) for ratio in found.values())
    flat = pd.DataFrame(rows).assign(loss=1.0)
    assert sweeps.span_ratios(flat) == {}
