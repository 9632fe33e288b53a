import numpy as np
import pandas as pd
import pytest

import dmlmc
from dmlmc.experiments.plots.hero import hero


def record(spans):
    """Losses ``8 * 2^(-step)`` of two seeds, with so much span per step by method."""
    rows = [
        {"method": method, "seed": seed, "step": step, "span": float(span * step), "loss": 8.0 * 0.5**step}
        for method, span in spans.items()
        for seed in (0, 1)
        for step in range(6)
    ]
    return pd.DataFrame(rows)


def drawn(delayed_span):
    plan = dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=1.0), 3, level0_samples=64, allocation="paper")
    return plan, hero(plan, record({"naive": 8, "MLMC": 8, "delayed MLMC": delayed_span}), 1.0, 1e-3)


@pytest.mark.parametrize("delayed_span", [2, 4])
def test_the_arrow_goes_from_mlmc_to_delayed_mlmc_and_has_the_ratio_of_their_spans(delayed_span):
    _, figure = drawn(delayed_span)
    right = figure.axes[1]
    (arrow,) = [text for text in right.texts if text.arrow_patch is not None]
    assert arrow.xyann == pytest.approx((8 * 3, 1.0)) and arrow.xy == pytest.approx((delayed_span * 3, 1.0))
    assert f"{8 // delayed_span} times" in [text.get_text() for text in right.texts]
    assert f"{8 // delayed_span} times less span to a loss of 1" in right.get_title(loc="left")


def test_the_start_and_the_floor_are_inside_the_axes():
    _, figure = drawn(2)
    right = figure.axes[1]
    lines = {line.get_label(): line for line in right.lines}
    assert {line.get_xydata()[0].tolist() == [0.0, 8.0] for name, line in lines.items() if "MLMC" in name} == {True}
    assert any(np.allclose(line.get_ydata(), 1e-3) for line in right.lines)
    assert right.get_xlim()[0] == 0 and right.get_ylim()[0] < 1e-3 and right.get_ylim()[1] > 8


def test_the_raster_is_that_of_the_plan():
    plan, figure = drawn(2)
    (mesh,) = [one for one in figure.axes[0].collections if one.get_array() is not None]
    shown = np.asarray(mesh.get_array())
    ages = np.where(shown < 0, 0, 2.0**shown)  # the colours stand for ages, as in notebook 00
    np.testing.assert_allclose(ages, [[step % period for step in range(9)] for period in plan.periods])
