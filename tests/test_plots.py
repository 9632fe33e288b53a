import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dmlmc import diagnostic_plots, plots


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def record():
    steps = np.arange(0, 50, 10)
    rows = [
        pd.DataFrame(
            {"method": m, "seed": s, "step": steps, "work": steps, "span": 2 * steps, "loss": (s + 1) / (1 + steps)}
        )
        for m in plots.COLOURS
        for s in (0, 1)
    ]
    return pd.concat(rows)


def test_learning_curves_draw_the_mean_of_each_method_in_its_colour():
    figure = plots.learning_curves(record(), ["work", "span"], floor=1e-3)
    assert [axis.get_xlabel() for axis in figure.axes] == [plots.AXES["work"], plots.AXES["span"]]
    lines = {line.get_label(): line for line in figure.axes[1].lines}
    assert list(lines) == list(plots.COLOURS)
    for method, line in lines.items():
        assert line.get_color() == plots.COLOURS[method]
        np.testing.assert_allclose(line.get_xdata(), [20, 40, 60, 80])
        np.testing.assert_allclose(line.get_ydata(), 1.5 / (1 + np.arange(10, 50, 10)))
    assert figure.axes[0].get_legend().get_title().get_text() == "floor: 1e-03"


def test_hedge_ratios_shade_where_paths_live():
    curves = pd.DataFrame({"t": 0.5, "s": [1.0, 2.0], "source": "MLMC", "seed": 0, "ratio": [0.2, 0.4]})
    figure = plots.hedge_ratios(curves, pd.DataFrame({"t": [0.5], "low": [1.2], "high": [1.7]}))
    (axis,) = figure.axes
    assert axis.get_title() == "t = 0.5" and axis.patches[0].get_x() == 1.2 and axis.patches[0].get_width() == 0.5


def test_option_prices_show_every_seed_and_the_marks():
    prices = pd.DataFrame({"method": ["naive", "MLMC", "MLMC"], "price": [0.5, 0.6, 0.7]})
    figure = plots.option_prices(prices, {"fair": 0.1})
    (axis,) = figure.axes
    assert sum(len(dots.get_offsets()) for dots in axis.collections) == 3
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["fair"]


def test_figures_are_saved_as_pdf_and_png(tmp_path):
    plots.save_figure(plt.figure(), tmp_path / "new", "name")
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"name.pdf", "name.png"}


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


def test_figure_1_shows_the_mean_of_the_logarithms_and_the_slopes():
    figure = diagnostic_plots.assumption_decay(level_tables(), b=2.0, d=1.0)
    for axis, rate in zip(figure.axes, (2.0, 1.0), strict=True):
        mean, slope, *points = axis.lines
        assert [line.get_label() for line in points] == ["step 0", "step 10"]
        np.testing.assert_allclose(mean.get_ydata(), 4 * 2.0 ** (-rate * np.arange(4)))
        np.testing.assert_allclose(np.diff(np.log2(slope.get_ydata())), -rate)


def test_fitted_exponents_are_drawn_with_their_intervals():
    fits = pd.DataFrame({"step": [0, 9, 0, 9], "rate": ["b", "b", "d", "d"], "estimate": [2.0, 1.8, 1.0, 0.9]})
    figure = diagnostic_plots.fitted_exponents(
        fits.assign(low=fits.estimate - 0.1, high=fits.estimate + 0.2), {"b": 1.8, "d": 1}
    )
    (axis,) = figure.axes
    (segments,) = axis.containers[0].lines[2]
    np.testing.assert_allclose([ends[:, 1] for ends in segments.get_segments()], [[1.9, 2.2], [1.7, 2.0]])
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0", "9"]


def test_checks_are_drawn_for_every_point_with_their_limits():
    figure = diagnostic_plots.level_checks(level_tables(), heavy=100.0)
    kurtosis, consistency, smoothness = figure.axes
    assert [line.get_label() for line in kurtosis.lines] == ["step 0", "step 10", "warning"]
    assert consistency.lines[-1].get_ydata()[0] == 3.0
    assert len(smoothness.lines[1].get_xdata()) == 3  # what came out at zero is left out


def test_solvers_are_told_apart_by_their_rate():
    tables = pd.concat([level_tables()[:4].assign(solver=solver) for solver in ("Milstein", "Euler")])
    figure = diagnostic_plots.solver_decay(tables, {"Milstein": "2.0", "Euler": "1.0"})
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["Milstein: b = 2.0", "Euler: b = 1.0"]


def test_measured_steps_are_dots_beside_the_lines_of_the_spans():
    methods = ["naive", "MLMC", "delayed MLMC", "level 0"]
    rows = [
        {"max_level": level, "method": method, "seconds": 2.0**level, "predicted": 3.0**level}
        for level in (2, 4)
        for method in methods
    ]
    (axis,) = plots.step_times({"few paths": pd.DataFrame(rows)}).axes
    line, dots = axis.lines[:2]
    np.testing.assert_allclose(line.get_ydata(), [9.0, 81.0])
    np.testing.assert_allclose(dots.get_ydata(), [4.0, 16.0])
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [*methods[:3], "a level-0 step"]


def test_bars_are_the_ratios_of_each_way():
    ratios = pd.DataFrame({"gradient": ["naive", "level 0"] * 2, "way": ["a", "a", "b", "b"], "ratio": [4.0, 3, 2, 1]})
    one, two = plots.gradient_ratios({"ours": ratios, "ours, too": ratios.assign(ratio=ratios.ratio + 1)}).axes
    np.testing.assert_allclose([bar.get_height() for group in one.containers for bar in group], [4, 3, 2, 1])
    np.testing.assert_allclose([bar.get_height() for group in two.containers for bar in group], [5, 4, 3, 2])
    assert [text.get_text() for text in one.get_legend().get_texts()] == ["a", "b"] and two.get_legend() is None


def test_the_two_regimes_are_lines_through_the_first_and_the_last_point():
    chain = pd.DataFrame({"paths": [1, 4, 16], "seconds": [3.0, 4.0, 8.0], "fastest": 1.0, "slowest": 9.0})
    (axis,) = plots.path_times(chain).axes
    measured, per_path, flat = axis.lines
    np.testing.assert_allclose(measured.get_ydata(), chain.seconds)
    np.testing.assert_allclose(per_path.get_ydata(), [0.5, 2.0, 8.0])
    np.testing.assert_allclose(flat.get_ydata(), 3.0)
