import numpy as np
import pandas as pd
import pytest

from dmlmc.experiments.plots import style
from dmlmc.experiments.plots.deep_hedging import figure_2
from dmlmc.experiments.plots.learning_curves import learning_curves


def record():
    steps = np.arange(0, 50, 10)
    rows = [
        pd.DataFrame(
            {"method": method, "seed": seed, "step": steps, "work": steps, "span": 2 * steps}
            | {"loss": (seed + 1) / (1 + steps)}
        )
        for method in style.COLOURS
        for seed in (0, 1)
    ]
    return pd.concat(rows)


def test_learning_curves_show_the_mean_of_each_method_in_its_colour():
    figure = learning_curves(record(), ["work", "span"], title="a finding", floor=1e-3)
    assert [axis.get_xlabel() for axis in figure.axes] == [style.AXES["work"], style.AXES["span"]]
    lines = {line.get_label(): line for line in figure.axes[1].lines}
    assert list(lines) == list(style.COLOURS)
    for method, line in lines.items():
        assert line.get_color() == style.COLOURS[method]
        np.testing.assert_allclose(line.get_xdata(), [20, 40, 60, 80])
        np.testing.assert_allclose(line.get_ydata(), 1.5 / (1 + np.arange(10, 50, 10)))
    assert figure.axes[-1].get_legend().get_title().get_text() == "floor: 1e-03"


def test_figure_2_has_panels_for_work_span_and_iterations():
    figure = figure_2(record(), title="as published")
    axes = figure.axes
    assert figure.get_suptitle().startswith("as published\n")
    assert [axis.get_xlabel() for axis in axes] == [style.AXES[cost] for cost in ("work", "span", "step")]


def test_a_band_goes_down_to_the_axis_where_it_reaches_below_zero():
    losses = {10: (1.0, 3.0), 20: (0.1, 3.9), 30: (1.0, 3.0)}  # the means are 2, deviation 2.7 at step 20 only
    rows = [
        {"method": "MLMC", "seed": seed, "step": step, "work": float(step), "span": float(step), "loss": loss}
        for step, both in losses.items()
        for seed, loss in enumerate(both)
    ]
    figure = learning_curves(pd.DataFrame(rows), ["work", "span"], title="a finding")
    for axis in figure.axes:
        (band,) = axis.collections
        lower = {x: y for x, y in band.get_paths()[0].vertices if y < 2}
        bottom = axis.get_ylim()[0]
        assert lower == pytest.approx({10: 2 - 2**0.5, 20: bottom, 30: 2 - 2**0.5}) and 0 < bottom < 2 - 2**0.5
    assert "bands that reach below zero end at the axis" in [text.get_text() for text in figure.texts]


def test_a_band_above_zero_ends_at_one_deviation_and_needs_no_note():
    figure = learning_curves(record().assign(loss=lambda runs: runs.loss + 1.0), ["work"], title="a finding")
    assert [text.get_text() for text in figure.texts] == [figure.get_suptitle()]
    steps = np.arange(10, 50, 10)
    for band in figure.axes[0].collections:
        ends = {x: y for x, y in band.get_paths()[0].vertices if y < 1 + 1.5 / (1 + x)}
        assert ends == pytest.approx(dict(zip(steps, 1 + (1.5 - 0.5**0.5) / (1 + steps), strict=True)))
