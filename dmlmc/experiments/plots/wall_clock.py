"""Figures on wall-clock time: seconds per step, against the number of paths, and of gradients."""

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from dmlmc.experiments.plots.style import COLOURS, PALETTE, STYLES, finished, panels
from dmlmc.schedule import DELAYED, MLMC, NAIVE


def step_times(tables: dict[str, pd.DataFrame]) -> Figure:
    """Seconds per SGD step against the finest level, a panel per regime: measured (dots), predicted by span (lines).

    Each table concatenates those of ``dmlmc.calibration.timing.method_seconds`` for several levels.
    """
    figure, axes = panels(len(tables), (4.4 * len(tables), 3.8))
    for axis, (title, table) in zip(axes, tables.items(), strict=True):
        for method, marker in ((NAIVE, "s"), (MLMC, "o"), (DELAYED, "D")):
            rows, colour = table[table.method == method], COLOURS[method]
            axis.plot(rows.max_level, rows.predicted, STYLES[method], color=colour, linewidth=1)
            axis.plot(rows.max_level, rows.seconds, marker, color=colour, label=method)
        level0 = table[table.method == "level 0"]
        axis.plot(level0.max_level, level0.seconds, "k.:", linewidth=1, label="a level-0 step")
        axis.set_yscale("log", base=2)
        axis.set(title=title, xlabel="finest level $l_{max}$", xticks=sorted(table.max_level.unique()))
    axes[0].set_ylabel("seconds per SGD step")
    axes[0].legend(frameon=True, loc="upper left")
    return finished(figure)


def path_times(chain: pd.DataFrame) -> Figure:
    """Seconds per SGD step against the number of parallel paths: columns ``paths, seconds, low, high``."""
    figure, (axis,) = panels(1, (5.0, 3.6))
    axis.fill_between(chain.paths, chain.low, chain.high, color=COLOURS[NAIVE], alpha=0.3)
    axis.plot(chain.paths, chain.seconds, "s-", color=COLOURS[NAIVE], label="measured, 95% interval of the median")
    last = chain.iloc[-1]
    axis.plot(chain.paths, last.seconds * chain.paths / last.paths, "k:", linewidth=1, label="as much per path")
    axis.axhline(chain.seconds.iloc[0], color="black", linestyle="--", linewidth=1, label="as long as one path")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set(xlabel="paths, side by side", ylabel="seconds per SGD step", ylim=(chain.low.min() / 2, None))
    axis.legend(frameon=True)
    return finished(figure)


def gradient_ratios(tables: dict[str, pd.DataFrame]) -> Figure:
    """Seconds of other implementations of a gradient over dmlmc's, a panel per implementation of dmlmc's.

    Each table has the columns ``gradient, way, ratio``; the line at 1 is dmlmc.
    """
    figure, axes = panels(len(tables), (5.4 * len(tables), 3.6), sharey=True)
    for axis, (title, ratios) in zip(axes, tables.items(), strict=True):
        sns.barplot(
            ratios, x="gradient", y="ratio", hue="way", palette=[PALETTE[2], PALETTE[4]], ax=axis, legend="full"
        )
        axis.axhline(1, color="black", linewidth=1)
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set(xlabel="", title=title)
        axis.tick_params(axis="x", rotation=45)
        axis.get_legend().remove()
    axes[0].set_ylabel("seconds, over dmlmc's")
    axes[0].legend(frameon=True, title=None, loc="upper left")
    return finished(figure)
