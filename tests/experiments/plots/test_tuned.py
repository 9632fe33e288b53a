import numpy as np
import pandas as pd
import pytest

import dmlmc
from dmlmc.experiments import held_noise, tuned
from dmlmc.experiments.plots import style
from dmlmc.experiments.plots import tuned as draw
from dmlmc.theory.theorem import Problem
from tests.experiments.test_tuned import HELD, RECORD, SPANS, SPEEDS, exponential_record

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)


def test_held_noise_is_drawn_over_that_of_mlmc():
    problem = Problem(L=1.0, M=1.0, rates=RATES, max_level=4, gap=1.0)
    errors = held_noise.stationary_errors(problem, 64, [1e-3, 0.1])
    left, right = draw.held_noise(errors, held_noise.long_run_table([2, 4], RATES, 64)).axes
    lines = {line.get_label(): line for line in left.lines}
    np.testing.assert_allclose(lines["MLMC"].get_ydata(), 1.0)
    by_hand = errors.set_index(["method", "step_size"]).error
    ratio = by_hand[tuned.DELAYED_PAPER, 1e-3] / by_hand["MLMC", 1e-3]
    assert lines[tuned.DELAYED_PAPER].get_ydata()[0] == pytest.approx(ratio)
    assert lines[tuned.DELAYED_PAPER].get_color() == style.COLOURS["delayed MLMC"]
    assert [line.get_label() for line in right.lines] == [tuned.DELAYED_PAPER, HELD, "MLMC"]
    title = left.figure.get_suptitle().replace("\n", " ")
    assert f"at step size 0.001: {style.short(ratio)} with the paper's counts" in title and "at l_max = 4: " in title


def test_losses_have_a_median_a_band_and_a_dot_per_run_and_lost_runs_are_at_the_rim():
    record = RECORD.copy()
    record.loc[(record.method == HELD) & (record.learning_rate == 0.2) & (record.step > 0), "loss"] = np.inf
    losses = {("SGD", "work"): tuned.losses_at(record, "work", 600.0)}
    (axis,) = draw.final_losses(losses, HELD, start=1.0, floor=1e-8).axes
    medians = {line.get_label(): line for line in axis.lines if not line.get_label().startswith("_")}
    assert set(medians) == {"MLMC", HELD, "floor"}
    assert medians[HELD].get_ydata()[-1] == 1.0 and medians["MLMC"].get_ydata()[0] == pytest.approx(np.exp(-9))
    dots = [line for line in axis.lines if line.get_marker() == "."]
    assert [len(line.get_xdata()) for line in dots] == [6, 6] and len(axis.collections) == 2
    assert axis.get_title() == "SGD, equal work"


def test_the_title_compares_the_least_medians_and_knows_when_most_runs_are_lost():
    one = {"learning_rate": 0.1, "seed": 0}
    runs = pd.DataFrame([{**one, "method": "MLMC", "loss": 2.0}, {**one, "method": HELD, "loss": 0.5}])
    better = pd.DataFrame([{**one, "learning_rate": 0.2, "method": HELD, "loss": 0.25}])
    lost = runs.assign(loss=[2.0, np.inf])
    found = draw.best_loss_found({("SGD", "span"): pd.concat([runs, better]), ("Adam", "work"): lost}, HELD)
    assert found == f"Least median loss, {HELD} / MLMC: 0.12 (SGD, equal span), unknown (Adam, equal work)"


def test_the_title_has_the_ratio_of_span_or_says_that_the_loss_was_not_reached():
    known = {"SGD": {HELD: {"mean": 6.04, "low": 2.71, "high": 13.4}}, "Adam": {"MLMC": {"mean": 1.0}}}
    known["both"] = {HELD: {"mean": np.nan, "low": np.nan, "high": np.nan}}
    found = draw.span_ratio_found(known)
    assert found.endswith(": 6 [2.7, 13] (SGD), not reached (Adam), not reached (both)")


def test_ratios_have_bars_and_rates_without_a_common_loss_a_cross():
    record = exponential_record(SPEEDS, SPANS)
    record.loc[(record.method == HELD) & (record.learning_rate == 0.2) & (record.step > 20), "loss"] = np.inf
    ratios = {"SGD": tuned.ratios_to_mlmc(record, 0.01, "span")}
    ratios["SGD"]["naive"] = dict.fromkeys(["mean", "low", "high"], np.nan)  # did not reach the loss
    figure = draw.span_ratios(ratios, {("SGD", HELD): tuned.ratios_by_rate(record, HELD)}, counted=16.0)
    left, right = figure.axes
    marks = [line for line in left.lines if line.get_marker() == "^"]
    assert [line.get_ydata()[0] for line in marks] == [pytest.approx(ratios["SGD"][HELD]["mean"])]
    assert left.get_legend_handles_labels()[1] == ["counted: 16", HELD]
    crosses = [line for line in right.lines if line.get_marker() == "x"]
    assert [len(line.get_xdata()) for line in crosses] == [1]
    assert left.get_ylim() == (0.5, pytest.approx(35.2))


def test_the_run_to_the_end_shows_every_seed():
    record = pd.DataFrame(
        [
            {"method": method, "seed": seed, "step": step, "loss": 1.0 / (1 + step)}
            for method in ("MLMC", HELD)
            for seed in (0, 1)
            for step in range(3)
        ]
    )
    prices = pd.DataFrame({"method": ["MLMC", "MLMC", HELD, HELD], "price": [0.1, 0.11, 0.12, 0.1]})
    left, right = draw.to_the_end(record, prices, floor=1e-3, fair=0.1099).axes
    assert len(left.lines) == 5 and [len(line.get_ydata()) for line in right.lines] == [2, 2, 2]
    assert "0.1099" in right.lines[-1].get_label()
    title = left.figure.get_suptitle().replace("\n", " ")
    assert f"loss at the end: 0.33 (MLMC), 0.33 ({HELD}); Black-Scholes hedge 0.001 " in title
    assert title.endswith(f"Mean price: 0.105 (MLMC), 0.11 ({HELD}); Black-Scholes 0.1099")
