import numpy as np
import pandas as pd

from dmlmc.experiments import stability
from dmlmc.experiments.plots import style, your_own_sde


def test_densities_have_a_panel_per_time_and_the_methods_colours():
    draws = np.random.default_rng(0).normal(size=(2, 500))
    figure = your_own_sde.marginal_densities({"data": draws, "start": draws, "MLMC": draws - 1}, [0.5, 1.0])
    assert [axis.get_title() for axis in figure.axes] == ["t = 0.5", "t = 1"]
    lines = {line.get_label(): line for line in figure.axes[1].lines}
    assert set(lines) == {"start", "MLMC"} and lines["MLMC"].get_color() == style.COLOURS["MLMC"]
    peak = lines["MLMC"].get_xdata()[np.argmax(lines["MLMC"].get_ydata())]
    assert abs(peak + 1) < 0.5
    (legend,) = figure.legends  # below the panels, not over data
    assert [text.get_text() for text in legend.get_texts()] == ["data", "start", "MLMC"]
    ordered = np.sort(draws[1])
    below = np.searchsorted(ordered - 1, ordered, side="right")  # of MLMC's states, at those of the data
    gap = style.short(np.max(below - np.arange(1, 501)) / 500)
    assert f"t = 1: 0 (start), {gap} (MLMC)" in figure.get_suptitle().replace("\n", " ")


def test_the_titles_of_losses_know_of_lost_runs():
    rows = [("MLMC", "SGD", 0.1, 0.4), ("MLMC", "SGD", 0.4, 0.5), ("delayed MLMC", "SGD", 0.1, 0.2)]
    rows += [("delayed MLMC", "SGD", 0.4, 3.0), ("MLMC", "Adam", 0.1, 1.0), ("delayed MLMC", "Adam", 0.1, np.inf)]
    table = pd.DataFrame(rows, columns=["method", "optimiser", "learning_rate", "loss"])
    found = your_own_sde.least_losses_found(table)
    assert found.startswith("Least mean loss, delayed MLMC / MLMC: 0.5 (SGD), unknown (Adam)\n")
    sgd = table[table.optimiser == "SGD"]
    assert ": 0.4 (MLMC), 0.1 (delayed MLMC)\n" in your_own_sde.largest_rates_found(sgd, start=1.0)
    assert ": none (MLMC), 0.1 (delayed MLMC)\n" in your_own_sde.largest_rates_found(sgd, start=0.2)


def test_diverged_runs_are_crosses_at_the_top():
    rows = [("MLMC", "SGD", 0.1, 0.2, 0.1, 0.3), ("MLMC", "SGD", 0.4, np.inf, np.nan, np.nan)]
    rows += [(method, "Adam", 0.1, 0.2, 0.1, 0.3) for method in ("MLMC", "delayed MLMC")]
    table = pd.DataFrame(rows, columns=["method", "optimiser", "learning_rate", "loss", "low", "high"])
    figure = your_own_sde.learning_rates(table, "a finding", {"limit": 0.3}, start=1.0)
    sgd, adam = figure.axes
    crosses = [len(line.get_xdata()) for line in sgd.lines if line.get_marker() == "x"]
    assert sgd.get_title() == "SGD" and sum(crosses) == 1
    assert not sum(len(line.get_xdata()) for line in adam.lines if line.get_marker() == "x")
    assert (
        max(np.max(line.get_ydata()) for line in sgd.lines if line.get_marker() == "x" and len(line.get_ydata())) == 2
    )


def test_a_bar_that_reaches_below_zero_ends_at_the_axis():
    rows = [
        ("MLMC", "SGD", 0.1, 0.2, 0.1, 0.3),
        ("MLMC", "SGD", 0.2, 0.2, -0.5, 0.9),
        ("MLMC", "SGD", 0.4, 0.4, 0.3, 9),
    ]
    table = pd.DataFrame(rows, columns=["method", "optimiser", "learning_rate", "loss", "low", "high"])
    figure = your_own_sde.learning_rates(table, "a finding", start=1.0)
    (axis,) = figure.axes
    (segments,) = axis.containers[0].lines[2]
    ends = [ends[:, 1] for ends in segments.get_segments()]
    np.testing.assert_allclose(ends, [(0.1, 0.3), (-0.5, 0.9), (0.3, 2.0)])  # not cut: the axis ends above -0.5
    assert 0 < axis.get_ylim()[0] < 0.1
    assert [text.get_text() for text in figure.texts] == ["bars that reach below zero end at the axis", "a finding"]
    above = your_own_sde.learning_rates(table.assign(low=table.low.abs() / 10), "a finding", start=1.0)
    assert [text.get_text() for text in above.texts] == ["a finding"]


def test_momentum_limits_have_a_panel_per_fresh_curvature():
    limits = {fresh: stability.momentum_limits_table(fresh, [1, 4], [0.0, 0.9]) for fresh in (0.0, 2.0)}
    runs = {
        fresh: table.assign(learning_rate=table.limit, unstable=table.momentum > 0) for fresh, table in limits.items()
    }
    figure = your_own_sde.momentum_limits(limits, runs)
    alone, beside = figure.axes
    (legend,) = figure.legends  # below the panels, not over data
    assert [text.get_text() for text in legend.get_texts()][-2:] == ["run: stable", "run: unstable"]
    assert alone.get_title().endswith("alone") and "fresh level of curvature 2" in beside.get_title()
    first = next(line for line in beside.lines if line.get_label() == "refresh period 4")
    np.testing.assert_allclose(first.get_ydata(), limits[2.0].limit[limits[2.0].period == 4])
    drops = [style.short(stability.worst_drop(table)) for table in limits.values()]
    title = figure.get_suptitle().replace("\n", " ")
    assert f"{drops[0]} times (a stale level alone), {drops[1]} times (beside" in title
