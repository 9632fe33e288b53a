import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import dmlmc
from dmlmc.experiments.plots import style, theorem
from dmlmc.experiments.stability import growth_map, safe_lines
from dmlmc.schedule import METHODS
from dmlmc.theory import complexity, proof
from dmlmc.theory.complexity import GUARANTEES
from dmlmc.theory.theorem import Problem


def problem(max_level=2):
    return Problem(1.0, 1.0, dmlmc.Rates(1.8, 1.0, 1.0), max_level, 1.0)


def test_bounds_against_truth_shows_the_diagonal_and_every_guarantee():
    check = pd.DataFrame({"guarantee": GUARANTEES, "exact": [1.0, 2, 3, 4], "bound": [2.0, 3, 30, 5]})
    runs = check.assign(measured=check.exact, error=0.1)
    (axis,) = theorem.bounds_against_truth(check, runs).axes
    assert axis.get_xscale() == axis.get_yscale() == "log"
    np.testing.assert_allclose(axis.lines[0].get_xdata(), axis.lines[0].get_ydata())
    (legend,) = axis.figure.legends  # below, not over data
    assert [text.get_text() for text in legend.get_texts()] == ["bound = truth", *GUARANTEES]


def test_the_error_is_shown_with_its_bounds():
    bounds = proof.error_bounds(problem(), 10, 30)
    measured = np.stack([bounds.exact - 0.1, bounds.exact + 0.1])
    (axis,) = theorem.error_along_run(bounds, measured).axes
    lines = {line.get_label(): line.get_ydata() for line in axis.lines}
    assert {"remark", "ours, at each step", "exact"} < set(lines)
    np.testing.assert_allclose(axis.containers[0].lines[0].get_ydata()[0], bounds.exact[0])
    np.testing.assert_allclose(lines["exact"], bounds.exact)


def test_bars_that_reach_below_zero_are_declared():
    note = ["bars that reach below zero end at the axis"]
    check = pd.DataFrame({"guarantee": GUARANTEES, "exact": [1.0, 2, 3, 4], "bound": [2.0, 3, 30, 5]})
    bounds = proof.error_bounds(problem(), 10, 30)
    for error, said in ((0.49, []), (0.51, note)):  # two errors are compared with a mean of 1, or of exact
        figure = theorem.bounds_against_truth(check, check.assign(measured=check.exact, error=error))
        assert [text.get_text() for text in figure.texts] == said
        assert figure.axes[0].get_xlim()[0] == pytest.approx(0.5)  # the bar goes on below it
        figure = theorem.error_along_run(bounds, np.stack([(1 - error) * bounds.exact, (1 + error) * bounds.exact]))
        assert [text.get_text() for text in figure.texts] == said
        assert figure.axes[0].get_ylim()[0] > 0


def test_the_bars_are_the_values_of_the_proof_steps():
    table = proof.looseness(problem(), 10, 30)
    (axis,) = theorem.proof_steps(table).axes
    np.testing.assert_allclose([bar.get_width() for bar in axis.patches], table.value)


def test_trade_has_a_line_per_guarantee_and_a_marker_per_exact_run():
    needed = complexity.guaranteed_spans(problem(), [1, 2, 3], [0.1])
    reached = pd.DataFrame({"max_level": [1, 2], "guarantee": "MLMC", "span": [5.0, 6.0]})
    (axis,) = theorem.trade(needed, reached, 0.1).axes
    lines = {line.get_label(): line for line in axis.lines}
    assert list(lines) == [
        "MLMC",
        "delayed MLMC, paper's bound",
        "delayed MLMC, sharper bound",
        "MLMC, exact run",
    ]
    np.testing.assert_allclose(lines["MLMC"].get_ydata(), needed[needed.guarantee == "MLMC"].span)
    np.testing.assert_allclose(lines["MLMC, exact run"].get_ydata(), [5.0, 6.0])
    assert lines["MLMC"].get_color() == lines["MLMC, exact run"].get_color() == style.COLOURS["MLMC"]
    assert axis.get_yscale() == "log" and "0.1" in axis.get_ylabel()
    assert axis.get_title() == "By the paper's bound delay pays at no l_max shown, by the sharper one from l_max = 1"


def test_a_bound_that_fails_is_in_the_title():
    check = pd.DataFrame({"guarantee": GUARANTEES, "exact": [1.0, 2, 3, 4], "bound": [2.0, 3, 2.9, 5]})
    (axis,) = theorem.bounds_against_truth(check, check.assign(measured=check.exact, error=0.1)).axes
    assert axis.get_title() == "3 of 4 exact averages are at or under their bound"


def test_the_stability_map_shows_lines_and_runs():
    exponents, sizes = [1.0, 2.0], np.geomspace(0.01, 2, 5)
    maps = {name: growth_map(problem(), exponents, sizes, worst=name == "worst") for name in ("plain", "worst")}
    runs = pd.DataFrame({"exponent": [1.0, 2.0], "step_size": [0.1, 1.0], "unstable": [False, True]})
    figure = theorem.stability(maps, safe_lines(problem(), exponents, 100), {"worst": runs})
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [
        "safe, sharper bound",
        "safe, paper (T = 100)",
        "run: stable",
        "run: unstable",
        "unstable, exactly",
    ]
    assert [len(dots.get_offsets()) for dots in figure.axes[1].collections[-2:]] == [1, 1]
    assert "step size over 'safe, sharper bound', least over d': " in figure.get_suptitle().replace("\n", " ")


def test_the_margin_is_the_least_over_the_exponents_and_unknown_on_a_stable_map():
    sizes = {"exponent": [1.0, 1.0, 2.0, 2.0], "step_size": [0.5, 1.0, 0.5, 1.0], "growth": [0.9, 1.0, 1.1, 1.2]}
    lines = pd.DataFrame({"exponent": [1.0, 2.0, 3.0], "safe": [0.5, 0.1, 0.1]})
    assert theorem.least_margin(pd.DataFrame(sizes), lines) == 2.0
    assert np.isnan(theorem.least_margin(pd.DataFrame(sizes).assign(growth=0.5), lines))


def test_diverged_step_sizes_are_crosses_at_the_top():
    experiment = pd.DataFrame({"step_size": [0.1, 1.0, 10.0], "loss": [2.0, 1.0, np.inf]})
    (axis,) = theorem.step_sizes(experiment, {"theorem": (0.01, 0.02), "used": (0.1, 0.1)}).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [
        "delayed MLMC, loss",
        "diverged",
        "theorem",
        "used",
    ]
    assert axis.lines[1].get_xdata() == [10.0] and axis.lines[1].get_ydata() > 2.0


def test_the_bounds_have_the_colours_of_the_methods():
    figure = theorem.bounds_picture(max_level=3, log2_steps=4, log2_samples=10, d=0.5)
    lines = {line.get_label(): line for line in figure.axes[1].lines}
    assert list(lines) == list(GUARANTEES)
    for method in METHODS:
        assert lines[method].get_color() == style.COLOURS[method]
    after = complexity.guarantee(Problem(1.0, 1.0, dmlmc.Rates(1.8, 1.0, 0.5), 3, 1.0), "MLMC", 2**10)
    np.testing.assert_allclose(lines["MLMC"].get_ydata()[0], after(1).total)
    np.testing.assert_allclose(lines["MLMC"].get_xdata()[0], 8.0)


def test_sliders_redraw_the_bounds():
    shown = theorem.bounds_explorer()
    choices, image = shown.children
    before = bytes(image.value)
    choices.children[0].value = 2
    assert before != bytes(image.value) and before.startswith(b"\x89PNG")
    assert not plt.get_fignums()
