"""Figures of streaming MLMC: who is where at which step, frozen parameters, losses, seconds, limits."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from dmlmc._internal.checks import integer
from dmlmc.allocation import plan
from dmlmc.experiments.plots.style import (
    COLOURS,
    MARKERS,
    STYLES,
    WIDTHS,
    finished,
    interval,
    legend_below,
    panels,
    short,
)
from dmlmc.experiments.plots.widgets import picture_under_sliders
from dmlmc.experiments.streaming import BACK, FORWARD, late_loss_ratio, whereabouts
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, MLMC, STREAMING

WAYS = {FORWARD: "0.6", BACK: COLOURS[STREAMING]}
COSTS = {"step": "iterations", "span": "span [level-0 paths]", "seconds": "seconds, measured per step"}


def raster(step: int = 11, stride: int = 1, max_level: int = 4) -> Figure:
    """Who is at which point of its path at which step, with one step marked; below, the span of every step.

    pyplot does not manage the figure, so redrawing while a slider is dragged does not leak memory.
    """
    max_level, stride = integer("raster: max_level", max_level, minimum=1), min(stride, 2**max_level)
    steps = 3 * 2**max_level
    where = whereabouts(max_level, steps, stride)
    figure = Figure(figsize=(10, 5.8))
    above, below = figure.add_axes((0.09, 0.42, 0.89, 0.51)), figure.add_axes((0.09, 0.09, 0.89, 0.17))
    whole = abs(where.end - where.begin) == 1  # forward in the first half of a step, back in the second
    where["first"] = where.step + 0.5 * (whole & (where.way == BACK))
    where["last"] = where.step + 1 - 0.5 * (whole & (where.way == FORWARD))
    for way, rows in where.groupby("way", sort=False):
        begins = zip(rows["first"], rows.level + 0.84 * rows.begin, strict=True)
        ends = zip(rows["last"], rows.level + 0.84 * rows.end, strict=True)
        label = "forward" if way == FORWARD else "back: a piece of the gradient at every step"
        lines = list(zip(begins, ends, strict=True))
        above.add_collection(LineCollection(lines, colors=[WAYS[str(way)]], linewidths=1.4, label=label))
    now = where[where.step == min(step, steps - 1)]
    middles = now.level + 0.84 * (now.begin + now.end) / 2
    above.scatter((now["first"] + now["last"]) / 2, middles, c=now.way.map(WAYS), s=28, zorder=3)
    for axis in (above, below):
        axis.axvspan(min(step, steps - 1), min(step, steps - 1) + 1, color="0.9", zorder=0)
        axis.set(xlim=(0, steps))
        axis.spines[["top", "right"]].set_visible(False)
    above.set_ylim(-0.1, max_level + 1)
    above.set_yticks(np.arange(max_level + 1) + 0.42, [f"level {level}" for level in range(max_level + 1)])
    above.tick_params(length=0)
    means = _spans(below, max_level, stride, np.arange(steps))
    found = ", ".join(f"{method} {mean:.3g}" for method, mean in means.items())
    above.set_title(f"Mean span of a step: {found}. Bands: paths, start at the bottom", loc="left", fontsize="medium")
    above.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.05), ncols=2)
    return figure


def _spans(axis: Axes, max_level: int, stride: int, steps: np.ndarray) -> dict[str, float]:
    """Draw the span of every step, and return the means over a period of the finest level."""
    delayed = plan(Rates(b=1.8, c=1.0, d=1.0), max_level, level0_samples=64)
    spans = {MLMC: np.full(steps.shape, 2.0**max_level), DELAYED: delayed.span(steps)}
    spans |= {STREAMING: np.full(steps.shape, float(stride))}
    means = {method: float(np.mean(span[: 2**max_level])) for method, span in spans.items()}
    for method, span in spans.items():
        label = f"{method}, mean {means[method]:.3g}"
        axis.step(
            np.append(steps, len(steps)), np.append(span, span[-1]), where="post", color=COLOURS[method], label=label
        )
    axis.set_yscale("log", base=2)
    axis.set(ylim=(0.7, 2.0**max_level * 1.4), xlabel="SGD step", ylabel="span\n[level-0 paths]")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 0.95), ncols=3)
    return means


def raster_explorer() -> Any:
    """``raster`` with a slider for each argument."""
    import ipywidgets  # in the extra "paper"; only notebooks need it

    sliders = {
        "step": ipywidgets.IntSlider(11, min=0, max=95, description="step"),
        "stride": ipywidgets.SelectionSlider(options=[1, 2, 4, 8], value=1, description="stride"),
        "max_level": ipywidgets.IntSlider(4, min=2, max=5, description="l_max"),
    }
    return picture_under_sliders(raster, sliders)


def frozen(distances: pd.DataFrame) -> Figure:
    """Distance from MLMC's gradient against the number of periods averaged, of ``streaming.running_distances``."""
    figure, (axis,) = panels(1, (5.4, 3.6))
    axis.plot(distances.periods, distances.level0, "k:", label="level 0 alone")
    axis.plot(distances.periods, distances.streaming, color=COLOURS[STREAMING], label="mean of the pieces")
    axis.plot(distances.periods, distances.error, "--", color="0.4", label="its standard error")
    axis.set(xscale="log", yscale="log", xlabel="periods of the finest level", ylabel="distance from MLMC, relative")
    legend_below(figure, axis)
    last = distances.iloc[-1]
    title = (
        f"Relative distance after {last.periods:g} periods: {last.streaming:.2g} for the mean of the pieces "
        f"({last.streaming / last.error:.2g} standard errors), {last.level0:.2g} for level 0 alone"
    )
    return finished(figure, title)


def losses(records: Mapping[str, pd.DataFrame]) -> Figure:
    """Loss against iterations, span and seconds, a row per optimiser: median over seeds, and quartiles as a band.

    The records have ``seconds``, and each method at one rate, as ``streaming.at_best_rates`` returns them.
    """
    with sns.axes_style("whitegrid"):
        figure, axes = plt.subplots(
            len(records), len(COSTS), figsize=(12.6, 3.3 * len(records)), squeeze=False, sharey=True
        )
    for row, (optimiser, record) in zip(axes, records.items(), strict=True):
        for method, runs in record[record.step > 0].groupby("method", sort=False):
            name = str(method)
            by_step = runs.groupby("step")
            low, middle, high = (by_step.loss.quantile(q, interpolation="nearest") for q in (0.25, 0.5, 0.75))
            for axis, cost in zip(row, COSTS, strict=True):
                at = by_step[cost].first()
                look = {"color": COLOURS[name], "linewidth": WIDTHS[name]}
                axis.plot(at, middle, STYLES[name], label=name, **look)
                axis.fill_between(at, low, high, color=COLOURS[name], alpha=0.15, linewidth=0)
        for axis, (cost, label) in zip(row, COSTS.items(), strict=True):
            axis.set(xscale="linear" if cost == "step" else "log", yscale="log", xlabel=label)
        row[0].set_ylabel(f"{optimiser}: validation loss")
    legend_below(figure, axes[0, 0])
    title = "\n".join(f"{optimiser}, {losses_found(record)}" for optimiser, record in records.items())
    return finished(
        figure, f"{title}\nAt equal iterations. Lines: medians over seeds. Bands: quartiles. Brackets: 95% t-intervals"
    )


def losses_found(record: pd.DataFrame) -> str:
    """Streaming MLMC over MLMC at equal iterations, as a sentence: late loss, span and seconds."""
    ends = record[record.step == record.step.max()].groupby("method")[["span", "seconds"]].first()
    span, seconds = ends.loc[STREAMING] / ends.loc[MLMC]
    late = interval(*late_loss_ratio(record))
    return f"streaming MLMC / MLMC: late loss {late}, span {short(span)}, seconds {short(seconds)}"


def seconds(levels: pd.DataFrame, batches: pd.DataFrame) -> Figure:
    """Seconds per step against l_max (left) and against the paths at level 0 (right), of ``seconds_tables``."""
    figure, axes = panels(2, (10.5, 3.9))
    labels = "finest level l_max, four paths at level 0", "paths at level 0"
    for axis, table, label in zip(axes, (levels, batches), labels, strict=True):
        for method, rows in table.groupby("method", sort=False):
            name = str(method)
            look = {"color": COLOURS.get(name, "black"), "marker": MARKERS.get(name, "."), "markersize": 5}
            bars = np.array([rows.seconds - rows.low, rows.high - rows.seconds])
            style = STYLES.get(name, ":")
            axis.errorbar(rows["plan"], rows.seconds, bars, label=name, linestyle=style, capsize=2, **look)
        axis.set(yscale="log", xlabel=label)
    axes[0].set(ylabel="seconds per SGD step", xticks=sorted(levels["plan"].unique()))
    axes[1].set_xscale("log", base=2)
    axes[1].set_xticks(sorted(batches["plan"].unique()), [f"{batch}" for batch in sorted(batches["plan"].unique())])
    legend_below(figure, *axes)
    return finished(figure, f"{seconds_found(levels, batches)}\nBars: 95% bootstrap intervals of the median")


def seconds_found(levels: pd.DataFrame, batches: pd.DataFrame) -> str:
    """Seconds of MLMC over those of streaming MLMC, as a sentence, at the first and last plan with both."""
    found = []
    for table, name in ((levels, "l_max = {}".format), (batches, "{} paths".format)):
        both = table.pivot(index="plan", columns="method", values="seconds").reindex(columns=[MLMC, STREAMING]).dropna()
        ends = dict.fromkeys([both.index[0], both.index[-1]]) if len(both) else {}
        found += [f"{short(both[MLMC][plan] / both[STREAMING][plan])} ({name(plan)})" for plan in ends]
    return f"Seconds of a step, MLMC / streaming MLMC: {', '.join(found) or 'not timed'}"


def limits(stability: pd.DataFrame, errors: Mapping[float, pd.DataFrame]) -> Figure:
    """Left, limits of stability over MLMC's against d. Right, stationary errors over MLMC's against the step size.

    ``errors`` maps d to the table of ``stationary_table``; a curve ends where its method becomes unstable.
    """
    figure, axes = panels(1 + len(errors), (4.2 * (1 + len(errors)), 3.7))
    for method, rows in stability.groupby("method", sort=False):
        name = str(method)
        look = {"color": COLOURS[name], "linestyle": STYLES[name], "marker": MARKERS[name], "markersize": 5}
        axes[0].plot(rows.d, rows.limit, label=name, **look)
    axes[0].set(xlabel="d", ylabel="limit of stability over MLMC's", ylim=(0, None), title="How large a step may be")
    for axis, (d, table) in zip(axes[1:], errors.items(), strict=True):
        for method, rows in table.groupby("method", sort=False):
            name, shown = str(method), rows[np.isfinite(rows.error)]
            axis.plot(shown.step_size, shown.error, STYLES[name], color=COLOURS[name], label=name)
        axis.set(xscale="log", xlabel="step size over MLMC's limit", title=f"Stationary error, d = {d:g}")
        axis.set_ylabel("E|grad F|² over MLMC's")
    legend_below(figure, axes[0])
    return finished(figure, f"Exact values, {limits_found(stability, errors)}")


def limits_found(stability: pd.DataFrame, errors: Mapping[float, pd.DataFrame]) -> str:
    """Streaming MLMC over MLMC, as a sentence: the limits at the ends of d, and the largest errors."""
    limit = stability[stability.method == STREAMING].set_index("d").limit
    ends = ", ".join(f"{short(limit[d])} (d = {d:g})" for d in (limit.index.min(), limit.index.max()))
    largest = []
    for d, table in errors.items():
        error = table[table.method == STREAMING].error
        text = short(error[np.isfinite(error)].max())
        largest.append(f"{text} (d = {d:g}{'' if np.isfinite(error).all() else ', until it is unstable'})")
    return f"streaming MLMC / MLMC: largest stable step {ends};\nlargest stationary error {', '.join(largest)}"
