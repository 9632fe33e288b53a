import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

import dmlmc
from dmlmc.calibration.interval import mean_interval
from dmlmc.devices import even_mesh
from dmlmc.experiments import comparison


def exponential_record(rates, spans, steps=50):
    """Losses ``exp(-rate step)`` at every tenth step, for each method and seed."""
    rows = [
        {"method": method, "seed": seed, "step": step, "span": spans[method] * step, "work": step, "seconds": step,
         "loss": math.exp(-rate * step)}
        for method, by_seed in rates.items()
        for seed, rate in enumerate(by_seed)
        for step in range(0, steps + 1, 10)
    ]  # fmt: skip
    return pd.DataFrame(rows)


RECORD = exponential_record(
    {"MLMC": [0.1, 0.2, 0.3], "delayed MLMC": [0.1, 0.25, 0.2]}, {"MLMC": 64.0, "delayed MLMC": 4.0}
)


def test_interpolation_is_exact_for_exponential_decay():
    needed = comparison.cost_to_reach(RECORD, math.exp(-1.7), "span")
    assert needed["MLMC", 1] == pytest.approx(64 * 1.7 / 0.2)
    assert needed["delayed MLMC", 2] == pytest.approx(4 * 1.7 / 0.2)


def test_the_cost_is_zero_for_a_loss_reached_at_the_start_and_nan_for_one_never_reached():
    assert (comparison.cost_to_reach(RECORD, 1.0, "span") == 0).all()
    assert comparison.cost_to_reach(RECORD, math.exp(-6.0), "span").isna().tolist() == [True, False, False] * 2


def test_ratios_are_paired_by_seed():
    ratio = comparison.ratio_to_reach(RECORD, 0.1, "span")
    by_seed = 16 * np.array([1.0, 0.25 / 0.2, 0.2 / 0.3])
    assert ratio == pytest.approx(mean_interval(by_seed))
    assert ratio.estimate == pytest.approx(by_seed.mean()) and ratio.low < ratio.estimate < ratio.high


def test_common_targets_are_reached_by_every_run():
    targets = comparison.common_targets(RECORD, count=3)
    assert targets == sorted(targets, reverse=True) and len(set(targets)) == 3
    for target in targets:
        assert comparison.cost_to_reach(RECORD, target, "step").between(0, 50, inclusive="neither").all()


def test_the_summary_survives_json_and_agrees_with_the_table():
    summary = comparison.summarise(RECORD, [0.5, 0.1], profile="quick", seeds=3, seconds=1.5)
    read = json.loads(json.dumps(summary))
    assert (read["profile"], read["seeds"], read["seconds"]) == ("quick", 3, 1.5)
    table = comparison.comparison_table(summary)
    for entry in read["targets"]:
        assert set(entry["span_ratio"]) == {"mean", "low", "high"}
        expected = comparison.ratio_to_reach(RECORD, entry["loss"], "work")
        assert tuple(entry["work_ratio"].values()) == pytest.approx(expected)
        assert table.loc[entry["loss"], "work ratio"] == "{:.3g} [{:.3g}, {:.3g}]".format(*expected)
        needed = comparison.cost_to_reach(RECORD, entry["loss"], "span")["MLMC"].mean()
        assert entry["span"]["MLMC"] == pytest.approx(needed)
        assert float(table.loc[entry["loss"], "span, MLMC"]) == pytest.approx(needed, rel=1e-2)


def test_methods_start_from_the_same_parameters(paper_rates):
    loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=0.1, rates=paper_rates)
    plan = dmlmc.plan(paper_rates, 2, level0_samples=8, allocation="paper")
    starts = jnp.array([[1.0, 2.0], [-1.0, 0.5]])
    trained, record = comparison.compare(
        [(dmlmc.naive(loss, 2, 4), 4), (dmlmc.delayed_mlmc(loss, plan), 8)],
        optax.sgd(0.1),
        starts,
        jax.random.split(jax.random.key(0), 2),
        validation=lambda params: loss.mean(params, 2),
        evaluate_every=4,
        mesh=even_mesh(2),
        progress=False,
    )
    assert list(trained) == ["naive", "delayed MLMC"] and trained["naive"].shape == (2, 2)
    first = record[record.step == 0].pivot(index="seed", columns="method", values="loss")
    np.testing.assert_array_equal(first["naive"], first["delayed MLMC"])
    assert record.groupby("method").step.max().to_dict() == {"naive": 4, "delayed MLMC": 8}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: comparison.cost_to_reach(RECORD, 0.0, "span"), "target must be positive"),
        (lambda: comparison.cost_to_reach(RECORD, 0.1, "time"), "cost must be a column of the record"),
        (
            lambda: comparison.common_targets(RECORD[RECORD.step <= 10]),
            "must have a loss that every run reaches",
        ),
    ],
)
def test_errors_name_the_bad_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
