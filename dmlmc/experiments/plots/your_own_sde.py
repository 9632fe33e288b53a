"""Figures of a fitted neural SDE, and of how learning rates, momentum and stale gradients interact."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Array, Float
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from scipy import stats

from dmlmc.experiments.plots.style import (
    COLOURS,
    MARKERS,
    STYLES,
    finished,
    legend_below,
    log_bottom,
    note_below_zero,
    panels,
    short,
)
from dmlmc.experiments.stability import worst_drop
from dmlmc.schedule import DELAYED, MLMC


def delayed(factor: int) -> str:
    """The name of delayed MLMC with its periods multiplied by ``factor``.

    >>> delayed(1), delayed(4)
    ('delayed MLMC', 'delayed MLMC, periods x 4')
    """
    return DELAYED if factor == 1 else f"{DELAYED}, periods x {factor}"


_COLOURS = {**COLOURS, delayed(4): (0.35, 0.3, 0.65), delayed(16): (0.03, 0.15, 0.35)}  # darker than delayed MLMC
_STYLES = {**STYLES, delayed(4): "-.", delayed(16): "-."}
_MARKERS = {**MARKERS, delayed(4): "<", delayed(16): ">"}


def marginal_densities(
    states: Mapping[str, Float[Array, "times _"] | Float[np.ndarray, "times _"]], times: Sequence[float]
) -> Figure:
    """Smoothed densities of the states of paths by name, one panel per time.

    "data" is a grey area, a method has its own colour, and any other name is a dotted black line.
    """
    figure, axes = panels(len(times), (3.6 * len(times), 3.2), sharey=True)
    grid = np.linspace(-2.5, 2.5, 200)
    for column, (axis, time) in enumerate(zip(axes, times, strict=True)):
        for name, values in states.items():
            density = stats.gaussian_kde(np.asarray(values)[column], bw_method=0.15)(grid)
            if name == "data":
                axis.fill_between(grid, density, color="0.8", label=name)
            else:
                axis.plot(grid, density, STYLES.get(name, ":"), color=COLOURS.get(name, "black"), label=name)
        axis.set(title=f"t = {time:g}", xlabel="state x")
    axes[0].set_ylabel("density")
    legend_below(figure, axes[0])
    last = {name: np.asarray(values)[-1] for name, values in states.items()}
    gaps = {name: stats.ks_2samp(one, last["data"]).statistic for name, one in last.items() if name != "data"}
    found = ", ".join(f"{short(gap)} ({name})" for name, gap in gaps.items())
    return finished(figure, f"Largest gap to the data's distribution function at t = {times[-1]:g}: {found}")


def least_losses_found(table: pd.DataFrame) -> str:
    """The least loss of every delayed method over MLMC's, as sentences. Unknown if all runs of one diverged."""
    least = table.groupby(["optimiser", "method"], sort=False).loss.min().replace(np.inf, np.nan).unstack("method")
    lines = []
    for method in least.columns.drop(MLMC):
        ratios = least[method] / least[MLMC]
        lines.append(f"{method} / MLMC: {', '.join(f'{short(ratio)} ({name})' for name, ratio in ratios.items())}")
    return "Least mean loss, " + "\n".join(lines) + "\nBars: 95% t-intervals over seeds. A cross: lost"


def largest_rates_found(table: pd.DataFrame, *, start: float) -> str:
    """The largest learning rate at which each method is not lost, as a sentence."""
    kept = table.learning_rate.where(table.loss < 2 * start).groupby(table.method, sort=False).max()
    found = ", ".join(f"{'none' if np.isnan(rate) else f'{rate:g}'} ({method})" for method, rate in kept.items())
    return f"Largest rate tried at which a run is not lost: {found}\nOne run per rate. A cross: lost"


def learning_rates(
    table: pd.DataFrame, title: str, marks: Mapping[str, float] | None = None, *, start: float
) -> Figure:
    """The loss after training against the learning rate, a panel per optimiser, from ``sweeps.after_training``.

    Bars are intervals; one that reaches below zero ends at the axis, and a note under the figure says so. A run that
    diverged, or ended at twice the loss ``start`` before training or more, is a cross at the top. ``marks`` are
    learning rates shown as vertical lines.
    """
    optimisers = table.optimiser.unique()
    figure, axes = panels(len(optimisers), (max(4.8, 3.6 * len(optimisers)), 3.5), sharey=True)
    methods, rim = list(table.method.unique()), 2 * start
    for axis, optimiser in zip(axes, optimisers, strict=True):
        here = table[table.optimiser == optimiser]
        for place, method in enumerate(methods):
            rows = here[here.method == method]
            shift = 1.04 ** (place - (len(methods) - 1) / 2)  # so that markers do not hide each other
            rates, shown = rows.learning_rate * shift, np.minimum(rows.loss, rim)
            bars = np.nan_to_num([shown - rows.low, np.minimum(rows.high, rim) - shown])
            look = {"color": _COLOURS[method], "linestyle": _STYLES[method], "label": method}
            axis.errorbar(rates, shown, np.maximum(bars, 0), marker=_MARKERS[method], markersize=4, capsize=2, **look)
            lost = rows.loss >= rim
            axis.plot(rates[lost], shown[lost], "x", color="black", markersize=8, zorder=5)
        for style, (name, rate) in zip((":", "--"), (marks or {}).items(), strict=False):
            axis.axvline(rate, color="black", linewidth=1, linestyle=style, label=name)
        axis.axhline(start, color="0.5", linewidth=1, label="before training")
        axis.set(xscale="log", yscale="log", xlabel="learning rate", title=optimiser)
        used = sorted(here.learning_rate.unique())
        axis.set_xlim(used[0] / 1.4, used[-1] * 1.4)
        axis.set_xticks(used, [f"{rate:g}" for rate in used], minor=False, rotation=45 if len(used) > 5 else 0)
        axis.xaxis.set_minor_locator(NullLocator())
    axes[0].set_ylim(bottom=log_bottom([*table.loss, start], table.low))
    axes[0].set_ylabel("loss after training")
    note_below_zero(figure, table.low, height=-0.1)  # under the legend
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=6, bbox_to_anchor=(0.5, -0.1))
    return finished(figure, title)


def momentum_limits(limits: Mapping[float, pd.DataFrame], runs: Mapping[float, pd.DataFrame]) -> Figure:
    """The largest stable learning rate against momentum, a line per refresh period, with stable and unstable runs.

    One panel per curvature of the fresh level; the stale level has curvature 1. The tables are from
    ``dmlmc.experiments.stability.momentum_limits_table`` and ``dmlmc.experiments.stability.runs_near_limits``.
    """
    figure, axes = panels(len(limits), (4.4 * len(limits), 3.8), sharey=True)
    for axis, (fresh, table) in zip(axes, limits.items(), strict=True):
        looks = zip((COLOURS[MLMC], COLOURS[DELAYED], _COLOURS[delayed(16)]), ("--", "-", "-."), strict=True)
        for (colour, style), (period, rows) in zip(looks, table.groupby("period"), strict=False):
            axis.plot(rows.momentum, rows.limit, style, color=colour, label=f"refresh period {period}")
            here = runs[fresh][runs[fresh].period == period]
            for unstable, marker in ((False, "o"), (True, "x")):
                points = here[here.unstable == unstable]
                axis.plot(points.momentum, points.learning_rate, marker, color=colour, markersize=5)
        axis.set(yscale="log", xlabel="momentum", title=_beside(fresh))
    axes[0].plot([], [], "ko", label="run: stable")
    axes[0].plot([], [], "kx", label="run: unstable")
    axes[0].set_ylabel("largest stable learning rate")
    legend_below(figure, axes[0])
    found = ", ".join(f"{short(worst_drop(table))} times ({_beside(fresh)})" for fresh, table in limits.items())
    return finished(
        figure, f"Momentum lowers the largest stable rate at most {found}\nLines: exact. Marks: single runs"
    )


def _beside(fresh: float) -> str:
    return f"beside a fresh level of curvature {fresh:g}" if fresh else "a stale level alone"
