"""Tidy tables in, figures out. Each method has one colour and one line style everywhere."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from dmlmc._files import whole

PALETTE = sns.color_palette("colorblind")
COLOURS = {"naive": PALETTE[7], "MLMC": PALETTE[1], "delayed MLMC": PALETTE[0]}
STYLES = {"naive": ":", "MLMC": "--", "delayed MLMC": "-"}
WIDTHS = {"naive": 3.0, "MLMC": 2.2, "delayed MLMC": 1.4}  # curves that lie on each other can still be told apart
AXES = {
    "work": "cumulative work [level-0 paths]",
    "span": "cumulative span [level-0 paths]",
    "step": "iterations",
    "seconds": "wall clock on this CPU [s], all seeds",
}


def learning_curves(record: pd.DataFrame, costs: Sequence[str], *, floor: float | None = None) -> Figure:
    """Loss against each of ``costs``, a panel each: mean and standard deviation over seeds, log scales.

    ``floor``, the loss that cannot be expected to be beaten by much, is told in the legend: it may lie decades below.
    """
    with sns.axes_style("whitegrid"):
        figure, axes = plt.subplots(1, len(costs), figsize=(4.2 * len(costs), 3.6), sharey=True, squeeze=False)
    for axis, cost in zip(axes[0], costs, strict=True):
        for method, runs in record.groupby("method", sort=False):
            by_step = runs[runs.step > 0].groupby("step")
            at, mean, deviation = by_step[cost].first(), by_step.loss.mean(), by_step.loss.std(ddof=1).fillna(0.0)
            colour = COLOURS[str(method)]
            axis.plot(at, mean, STYLES[str(method)], color=colour, linewidth=WIDTHS[str(method)], label=method)
            axis.fill_between(at, np.maximum(mean - deviation, mean / 10), mean + deviation, color=colour, alpha=0.2)
        axis.set(xscale="log", yscale="log", xlabel=AXES[cost])
    axes[0, 0].set_ylabel("validation loss")
    axes[0, 0].legend(frameon=True, loc="lower left", title=None if floor is None else f"floor: {floor:.0e}")
    figure.tight_layout()
    return figure


def hedge_ratios(curves: pd.DataFrame, living: pd.DataFrame) -> Figure:
    """Learned hedge ratios beside the Black-Scholes delta, a panel per time.

    ``curves`` has the columns ``t, s, source, seed, ratio``; ``living`` has ``t, low, high``, the prices between which
    nine paths in ten are at that time, shaded.
    """
    times = sorted(curves.t.unique())
    with sns.axes_style("whitegrid"):
        figure, axes = plt.subplots(1, len(times), figsize=(3.8 * len(times), 3.4), sharey=True, squeeze=False)
    for axis, t in zip(axes[0], times, strict=True):
        here = living[living.t == t].iloc[0]
        axis.axvspan(here.low, here.high, color="0.92", zorder=0, label="nine paths in ten")
        for source, rows in curves[curves.t == t].groupby("source", sort=False):
            by_price = rows.groupby("s").ratio
            mean, deviation = by_price.mean(), by_price.std(ddof=1).fillna(0.0)
            colour = COLOURS.get(str(source), "black")
            style, width = STYLES.get(str(source), "-"), WIDTHS.get(str(source), 1.4)
            axis.plot(mean.index, mean, style, color=colour, linewidth=width, label=source)
            axis.fill_between(mean.index, mean - deviation, mean + deviation, color=colour, alpha=0.2)
        axis.set(title=f"t = {t:g}", xlabel="price s", xlim=(rows.s.min(), rows.s.max()))
    axes[0, 0].set_ylabel("hedge ratio H(t, s)")
    axes[0, -1].legend(frameon=True, loc="lower right")
    figure.tight_layout()
    return figure


def option_prices(prices: pd.DataFrame, marks: dict[str, float]) -> Figure:
    """The learned p0 of every seed, by method, with reference values drawn as lines."""
    with sns.axes_style("whitegrid"):
        figure, axis = plt.subplots(figsize=(5.6, 2.6))
    sns.stripplot(
        prices,
        x="price",
        y="method",
        hue="method",
        palette=COLOURS,
        ax=axis,
        size=5,
        alpha=0.6,
        jitter=False,
        legend=False,
    )
    for (name, value), style in zip(marks.items(), ("-", "--", ":"), strict=False):
        axis.axvline(value, color="black", linestyle=style, linewidth=1, label=name)
    axis.set(xlabel="price p0 of the option", ylabel="")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(marks), frameon=False)
    figure.tight_layout()
    return figure


def step_times(tables: dict[str, pd.DataFrame]) -> Figure:
    """Seconds of an SGD step against the finest level, a panel per regime: measured (dots) and by the spans (lines).

    The tables are those of ``dmlmc.timing.method_seconds``, for several levels one below the other.
    """
    with sns.axes_style("whitegrid"):
        figure, axes = plt.subplots(1, len(tables), figsize=(4.4 * len(tables), 3.8), squeeze=False)
    for axis, (title, table) in zip(axes[0], tables.items(), strict=True):
        for method, marker in (("naive", "s"), ("MLMC", "o"), ("delayed MLMC", "D")):
            rows, colour = table[table.method == method], COLOURS[method]
            axis.plot(rows.max_level, rows.predicted, STYLES[method], color=colour, linewidth=1)
            axis.plot(rows.max_level, rows.seconds, marker, color=colour, label=method)
        level0 = table[table.method == "level 0"]
        axis.plot(level0.max_level, level0.seconds, "k.:", linewidth=1, label="a level-0 step")
        axis.set_yscale("log", base=2)
        axis.set(title=title, xlabel="finest level $l_{max}$", xticks=sorted(table.max_level.unique()))
    axes[0, 0].set_ylabel("seconds per SGD step")
    axes[0, 0].legend(frameon=True, loc="upper left")
    figure.tight_layout()
    return figure


def path_times(chain: pd.DataFrame) -> Figure:
    """Seconds of an SGD step against paths side by side: columns ``paths, seconds, fastest, slowest``."""
    with sns.axes_style("whitegrid"):
        figure, axis = plt.subplots(figsize=(5.0, 3.6))
    axis.fill_between(chain.paths, chain.fastest, chain.slowest, color=COLOURS["naive"], alpha=0.3)
    axis.plot(chain.paths, chain.seconds, "s-", color=COLOURS["naive"], label="measured, and its range")
    last = chain.iloc[-1]
    axis.plot(chain.paths, last.seconds * chain.paths / last.paths, "k:", linewidth=1, label="as much per path")
    axis.axhline(chain.seconds.iloc[0], color="black", linestyle="--", linewidth=1, label="as long as one path")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set(xlabel="paths, side by side", ylabel="seconds per SGD step", ylim=(chain.fastest.min() / 2, None))
    axis.legend(frameon=True)
    figure.tight_layout()
    return figure


def gradient_ratios(panels: dict[str, pd.DataFrame]) -> Figure:
    """How many times as long as ours other ways to write a gradient take, a panel for each of ours.

    Each table has the columns ``gradient, way, ratio``; the line at 1 is ours.
    """
    with sns.axes_style("whitegrid"):
        figure, axes = plt.subplots(1, len(panels), figsize=(5.4 * len(panels), 3.6), sharey=True, squeeze=False)
    for axis, (title, ratios) in zip(axes[0], panels.items(), strict=True):
        sns.barplot(
            ratios, x="gradient", y="ratio", hue="way", palette=[PALETTE[2], PALETTE[4]], ax=axis, legend="full"
        )
        axis.axhline(1, color="black", linewidth=1)
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set(xlabel="", title=title)
        axis.tick_params(axis="x", rotation=45)
        axis.get_legend().remove()
    axes[0, 0].set_ylabel("seconds, over dmlmc's")
    axes[0, 0].legend(frameon=True, title=None, loc="upper left")
    figure.tight_layout()
    return figure


def save_figure(figure: Figure, directory: Any, name: str) -> None:
    """Write ``name.pdf`` and ``name.png`` to a directory."""
    for kind, options in (("pdf", {"metadata": {"CreationDate": None}}), ("png", {"dpi": 150})):
        with whole(Path(directory) / f"{name}.{kind}") as temporary:
            figure.savefig(temporary, format=kind, bbox_inches="tight", **options)
