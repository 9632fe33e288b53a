import itertools

import numpy as np
import pandas as pd
import pytest

from dmlmc.experiments.plots import assumptions


def level_tables():
    levels = np.arange(4)
    columns = {"kurtosis": 5.0, "consistency": 1.0, "mean_smoothness": [1.0, 0.4, 0.1, 0.0], "noise_floor": 0.05}
    rows = [
        pd.DataFrame({"level": levels, "second_moment": size * 4.0**-levels, "smoothness": size * 2.0**-levels}).assign(
            point=point, variance=size * 4.0**-levels, variance_error=0.1, **columns
        )
        for point, size in [(0, 16.0), (10, 1.0)]
    ]
    return pd.concat(rows)


DRAWN = {
    "decay": lambda: assumptions.assumption_decay(level_tables(), b=2.0, d=1.0),
    "checks": lambda: assumptions.level_checks(level_tables(), heavy=100.0),
    "solvers": lambda: assumptions.solver_decay(level_tables().assign(solver="Euler"), {"Euler": "1.0"}),
}


def notes(figure):
    return [text.get_text() for text in figure.texts if text.get_text() != figure.get_suptitle()]


def test_figure_1_shows_the_geometric_mean_and_the_slopes_and_no_band():
    figure = assumptions.assumption_decay(level_tables(), b=2.0, d=1.0)
    for axis, rate in zip(figure.axes, (2.0, 1.0), strict=True):
        mean, slope, *points = axis.lines
        assert [line.get_label() for line in points] == ["step 0", "step 10"]
        np.testing.assert_allclose(mean.get_ydata(), 4 * 2.0 ** (-rate * np.arange(4)))
        np.testing.assert_allclose(np.diff(np.log2(slope.get_ydata())), -rate)
        assert not axis.collections and ("-2" in axis.get_title()) == (rate == 2.0)
    assert "levels 1 to 3: second moment 2.00 and smoothness 1.00" in figure.get_suptitle().replace("\n", " ")


@pytest.mark.parametrize("draw", DRAWN)
def test_no_legend_covers_the_axes(draw):
    figure = DRAWN[draw]()
    figure.canvas.draw()
    legends = [*figure.legends, *(axis.get_legend() for axis in figure.axes if axis.get_legend())]
    assert legends
    for legend in legends:
        assert not any(legend.get_window_extent().overlaps(axis.get_window_extent()) for axis in figure.axes)
    assert not any(
        one.get_window_extent().overlaps(two.get_window_extent()) for one, two in itertools.pairwise(legends)
    )


def test_fitted_exponents_have_error_bars():
    fits = pd.DataFrame({"step": [0, 9, 0, 9], "rate": ["b", "b", "d", "d"], "estimate": [2.0, 1.8, 1.0, 0.9]})
    figure = assumptions.fitted_exponents(
        fits.assign(low=fits.estimate - 0.1, high=fits.estimate + 0.2), {"b": 1.8, "d": 1}
    )
    (axis,) = figure.axes
    (segments,) = axis.containers[0].lines[2]
    np.testing.assert_allclose([ends[:, 1] for ends in segments.get_segments()], [[1.9, 2.2], [1.7, 2.0]])
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0", "9"]
    assert figure.get_suptitle().startswith("Along the run b = 1.80 to 2.00, d = 0.90 to 1.00\n")


def test_level_checks_show_every_point_and_the_limits():
    figure = assumptions.level_checks(level_tables(), heavy=100.0)
    kurtosis, consistency, smoothness = figure.axes
    assert [line.get_label() for line in kurtosis.lines] == ["step 0", "step 10", "limit of a warning"]
    assert consistency.lines[-1].get_ydata()[0] == 3.0
    assert len(smoothness.lines[1].get_xdata()) == 3  # zeros are left out


def test_the_checks_are_counted_and_smoothness_that_was_negative_is_left_out():
    tables = level_tables().assign(kurtosis=[5.0, 100, 101, 7] * 2, consistency=np.arange(8) / 2)
    first, second = assumptions.checks_found(tables, 100.0).split("\n")
    assert first == "Kurtosis above 100 in 2 of 8 cases; the largest telescoping gap is 3.5 standard errors;"
    assert second == "smoothness at step 10, of the mean / pathwise: 0.4 to 1"  # 1 / 1, 0.4 / 0.5, 0.1 / 0.25
    assert assumptions.checks_found(tables.assign(mean_smoothness=-1.0), 100.0) == first.removesuffix(";")


def test_solver_labels_include_the_rate():
    tables = pd.concat([level_tables()[:4].assign(solver=solver) for solver in ("Milstein", "Euler")])
    figure = assumptions.solver_decay(tables, {"Milstein": "2.0", "Euler": "1.0"})
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["Milstein: b = 2.0", "Euler: b = 1.0"]


def test_bars_of_solvers_are_two_errors_long_and_end_at_the_axis_below_zero():
    tables = level_tables()[:4].assign(solver="Milstein")  # variances 4, 1, 1/4 at levels 1, 2, 3
    assert not notes(assumptions.solver_decay(tables, {"Milstein": "2.0"}))
    figure = assumptions.solver_decay(tables.assign(variance_error=0.3), {"Milstein": "2.0"})
    (axis,) = figure.axes
    (segments,) = axis.containers[0].lines[2]
    np.testing.assert_allclose(
        [ends[:, 1] for ends in segments.get_segments()], [[3.4, 4.6], [0.4, 1.6], [-0.35, 0.85]], atol=1e-12
    )
    assert 0.1 < axis.get_ylim()[0] < 0.25
    assert notes(figure) == ["bars that reach below zero end at the axis"]
    assert figure.get_suptitle().startswith("Variance at level 1 / at level 3: 16 with Milstein\n")
