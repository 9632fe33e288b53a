import numpy as np
import pandas as pd
import pytest

from dmlmc.experiments.hedging import DELTA
from dmlmc.experiments.plots import deep_hedging
from dmlmc.experiments.plots.style import COLOURS


def legend(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def test_hedge_ratios_shade_the_range_of_prices_and_say_after_how_many_iterations():
    curves = pd.DataFrame({"t": 0.5, "s": [1.0, 1.5], "source": "MLMC", "seed": 0, "ratio": [0.2, 0.4]})
    curves = pd.concat([curves, curves.assign(source=DELTA, ratio=[0.9, 0.5])])
    figure = deep_hedging.hedge_ratios(curves, pd.DataFrame({"t": [0.5], "low": [1.2], "high": [1.7]}), 80)
    (axis,) = figure.axes
    assert axis.get_title() == "t = 0.5" and axis.patches[0].get_x() == 1.2 and axis.patches[0].get_width() == 0.5
    assert "after 80 iterations" in figure.get_suptitle().replace("\n", " ")
    assert "are: 0.1 (MLMC)" in figure.get_suptitle().replace("\n", " ")  # the larger gap is outside of the range


def test_the_distance_from_the_delta_is_that_of_the_mean_over_seeds():
    grid = pd.DataFrame({"t": [0.1, 0.1, 0.5, 0.5], "s": [1.0, 2.0, 1.0, 2.0]})
    ratios = {(DELTA, 0): [0.5] * 4, ("MLMC", 0): [0.0, 0.7, 0.5, 0.9], ("MLMC", 1): [0.9, 0.7, 0.5, 0.5]}
    curves = pd.concat([grid.assign(source=name, seed=seed, ratio=ratio) for (name, seed), ratio in ratios.items()])
    whole = pd.DataFrame({"t": [0.1, 0.5], "low": 0.0, "high": 3.0})
    assert deep_hedging.furthest(curves, whole).to_dict() == pytest.approx({"MLMC": 0.2})
    assert deep_hedging.furthest(curves, whole.assign(high=1.5)).to_dict() == pytest.approx({"MLMC": 0.05})
    assert np.isnan(deep_hedging.furthest(curves, whole.assign(high=0.5))["MLMC"])


def test_price_traces_are_means_over_seeds_with_deviations_and_say_where_methods_are_compared():
    prices = {"MLMC": {0: (1.0, 1.0), 10: (0.4, 0.8)}, "delayed MLMC": {0: (1.0, 1.0), 10: (0.5, 0.5), 50: (0.1, 0.3)}}
    rows = [
        {"method": method, "seed": seed, "step": step, "price": price}
        for method, by_step in prices.items()
        for step, both in by_step.items()
        for seed, price in enumerate(both)
    ]
    (axis,) = deep_hedging.price_traces(pd.DataFrame(rows), {"fair": 0.125, "start": 1.0}, 10).axes
    lines = {line.get_label(): line for line in axis.lines}
    assert list(lines) == ["MLMC", "delayed MLMC", "fair: 0.125", "start: 1", "10 iterations"] == legend(axis)
    np.testing.assert_allclose(lines["delayed MLMC"].get_xydata(), [(0, 1), (10, 0.5), (50, 0.2)])
    assert lines["MLMC"].get_color() == COLOURS["MLMC"] and set(lines["fair: 0.125"].get_ydata()) == {0.125}
    assert set(lines["10 iterations"].get_xdata()) == {10}
    band = axis.collections[0].get_paths()[0].vertices
    assert band[band[:, 0] == 10, 1].min() == pytest.approx(0.6 - 0.08**0.5)
    assert axis.get_title().startswith("After 10 iterations p0 is 0.5 to 0.6;")


def test_one_price_of_all_methods_is_said_once():
    record = pd.DataFrame({"method": ["naive", "MLMC"], "seed": 0, "step": 5, "price": 0.25})
    (axis,) = deep_hedging.price_traces(record, {}, 5).axes
    assert axis.get_title().startswith("After 5 iterations p0 is 0.25;")
