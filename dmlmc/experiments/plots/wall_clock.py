"""Figures on wall-clock time: of steps, against the number of paths, and of gradients; a model of many devices."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmlmc.calibration.interval import Interval
from dmlmc.experiments.plots.style import COLOURS, MARKERS, PALETTE, STYLES, WIDTHS, finished, panels
from dmlmc.schedule import METHODS, NAIVE

MILLISECONDS = "milliseconds per SGD step"
BARS = "bars: 95% bootstrap intervals of the median"


def step_times(tables: dict[str, tuple[pd.DataFrame, Interval]], title: str) -> Figure:
    """Milliseconds per SGD step against the finest level, a panel per regime: measured (dots), by span (lines).

    Each table is that of ``dmlmc.experiments.wall_clock.step_table``, with the seconds of a step at level 0.
    """
    figure, axes = panels(len(tables), (4.6 * len(tables) + 1.4, 3.8))
    for axis, (name, (table, level0)) in zip(axes, tables.items(), strict=True):
        for method in METHODS:
            rows, colour = table[table.method == method], COLOURS[method]
            axis.plot(rows.max_level, 1e3 * rows.predicted, STYLES[method], color=colour, linewidth=1)
            _with_bars(axis, rows.max_level, 1e3 * rows[["seconds", "low", "high"]], method)
        axis.axhline(1e3 * level0.estimate, color="black", linewidth=1, label="a step at level 0")
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set(title=name, xlabel="finest level $l_{max}$", xticks=sorted(table.max_level.unique()))
    axes[0].set_ylabel(MILLISECONDS)
    axes[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), title="measured; lines: by span")
    figure.suptitle(f"{title} ({BARS})", fontsize="medium")
    return finished(figure)


def _with_bars(axis: Axes, x: pd.Series, found: pd.DataFrame, method: str) -> None:
    """Dots with their intervals: ``found`` has the columns seconds, low, high."""
    reach = np.abs(found[["low", "high"]].to_numpy().T - found.seconds.to_numpy())
    axis.errorbar(x, found.seconds, reach, fmt=MARKERS[method], color=COLOURS[method], capsize=3, label=method)


def path_times(chain: pd.DataFrame, level: int) -> Figure:
    """Milliseconds per naive SGD step against the number of parallel paths: columns ``paths, seconds, low, high``."""
    figure, (axis,) = panels(1, (7.4, 3.6))
    _with_bars(axis, chain.paths, 1e3 * chain[["seconds", "low", "high"]], NAIVE)
    axis.plot(chain.paths, 1e3 * chain.seconds, color=COLOURS[NAIVE], linewidth=1)
    last, first = chain.iloc[-1], 1e3 * chain.seconds.iloc[0]
    per_path = 1e3 * last.seconds * chain.paths / last.paths
    axis.plot(chain.paths, per_path, "k:", linewidth=1, label="in proportion to the paths")
    axis.axhline(first, color="black", linestyle="--", linewidth=1, label="as long as one path")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set(xlabel="paths side by side", ylabel=MILLISECONDS, ylim=(1e3 * chain.low.min() / 2, None))
    times = last.seconds / chain.seconds.iloc[0]
    axis.set_title(
        f"Level {level}: {last.paths:g} paths take {times:.2g} times as long as one ({BARS})", fontsize="medium"
    )
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return finished(figure)


def gradient_ratios(ratios: pd.DataFrame) -> Figure:
    """Seconds of other implementations of a gradient over dmlmc's: columns ``gradient, way, ratio, low, high``."""
    figure, (axis,) = panels(1, (7.4, 3.6))
    ways = ratios.way.unique()
    for which, (way, colour) in enumerate(zip(ways, (PALETTE[8], PALETTE[9]), strict=False)):
        rows = ratios[ratios.way == way]
        reach = np.abs(rows[["low", "high"]].to_numpy().T - rows.ratio.to_numpy())
        places = np.arange(len(rows)) + (which - (len(ways) - 1) / 2) * 0.4
        axis.bar(places, rows.ratio, 0.38, yerr=reach, color=colour, edgecolor="black", capsize=3, label=way)
    axis.axhline(1, color="black", linewidth=1, label="dmlmc")
    axis.set_xticks(range(len(rows)), rows.gradient, rotation=30)
    axis.set(ylabel="seconds over dmlmc's", ylim=(0, None))
    least, largest = ratios.ratio.min(), ratios.ratio.max()
    axis.set_title(
        f"Other implementations take {least:.2g} to {largest:.2g} times as long (bars: 95% bootstrap)",
        fontsize="medium",
    )
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return finished(figure)


def scaling(table: pd.DataFrame, max_levels: tuple[int, ...] = (6, 12)) -> Figure:
    """Modelled seconds of a step against devices, a panel per finest level: the table of ``theory.scaling``."""
    figure, axes = panels(len(max_levels), (4.2 * len(max_levels) + 1.4, 3.6), sharey=True)
    for axis, max_level in zip(axes, max_levels, strict=True):
        for method, rows in table[table.max_level == max_level].groupby("method", sort=False):
            colour, style, marker = COLOURS[str(method)], STYLES[str(method)], MARKERS[str(method)]
            width = WIDTHS[str(method)]
            axis.plot(rows.devices, rows.seconds, style + marker, color=colour, linewidth=width, label=method)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(table.devices.unique(), [f"{count:g}" for count in table.devices.unique()])
        axis.set(title=f"$l_{{max}}$ = {max_level}", xlabel="devices")
    axes[0].set_ylabel("seconds per SGD step, modelled")
    axes[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.suptitle("A model, not a measurement: more devices shorten the load, not the span", fontsize="medium")
    return finished(figure)
