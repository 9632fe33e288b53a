"""The picture at the top of the README: who computes when, and what it saves."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmlmc.experiments.comparison import cost_to_reach, ratio_to_reach
from dmlmc.experiments.plots.start_here import refresh_raster
from dmlmc.experiments.plots.style import AXES, COLOURS, STYLES, WIDTHS, finished
from dmlmc.schedule import DELAYED, MLMC, Plan

FONT: dict[Any, Any] = {"font.size": 12, "axes.titlesize": 12.5, "axes.labelsize": 12}  # to be read at half of its size


def hero(plan: Plan, record: pd.DataFrame, target: float, floor: float) -> Figure:
    """Left, the refreshes of a plan; right, the loss against span, and the factor in span at the loss ``target``.

    ``record`` is that of ``comparison.compare``, with step 0. ``floor`` is a loss that no method gets far below.
    """
    with plt.rc_context(FONT), sns.axes_style("ticks"):
        figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), width_ratios=(1.05, 1))
        refresh_raster(left, plan, count=max(plan.periods) + 1)
        left.set_ylabel("level")
        left.set_title("Blue: a level computes. Grey: its last gradient is reused", loc="left")
        _losses(right, record, floor)
        _mark_factor(right, record, target)
        return finished(figure)


def _losses(axis: Axes, record: pd.DataFrame, floor: float) -> None:
    """Mean over seeds, from the start of the runs, which is at span 0, and the floor."""
    by_step = record.groupby(["method", "step"], sort=False)
    curves = by_step[["span"]].first().assign(loss=by_step.loss.mean())
    for method, curve in curves.groupby("method", sort=False):
        style, width = STYLES[str(method)], 1.2 * WIDTHS[str(method)]
        axis.plot(curve.span, curve.loss, style, color=COLOURS[str(method)], linewidth=width, label=method)
    start = curves.loss.iloc[0]
    axis.plot(0, start, "ko", clip_on=False, zorder=6)
    axis.annotate(f"start: {start:.2g}", (0, start), (8, 0), textcoords="offset points", va="bottom")
    axis.axhline(floor, color="black", linewidth=1)
    axis.annotate(
        f"floor, the Black-Scholes hedge: {floor:.0e}", (1, floor), (-2, 4), axis.get_yaxis_transform(),
        textcoords="offset points", ha="right",
    )  # fmt: skip
    first = record.span[record.span > 0].min()
    axis.set_xscale("symlog", linthresh=first, linscale=0.4)  # linear from the start to the first evaluation
    axis.set_xticks([0, *(10.0**k for k in range(9) if first < 10**k < record.span.max())])
    axis.set_yscale("log")
    axis.set(xlabel=AXES["span"], xlim=(0, 1.2 * record.span.max()), ylim=(floor / 1.5, 2 * start))
    axis.set_ylabel("validation loss")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="center left")


def _mark_factor(axis: Axes, record: pd.DataFrame, target: float) -> None:
    """An arrow from the span that MLMC needs to reach the target to that of delayed MLMC, and their ratio."""
    needed = cost_to_reach(record, target, "span").groupby(level="method").mean()
    times = ratio_to_reach(record, target, "span").estimate
    arrow = {"arrowstyle": "-|>", "color": "black", "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", xy=(needed[DELAYED], target), xytext=(needed[MLMC], target), arrowprops=arrow, zorder=5)
    middle = (needed[DELAYED] * needed[MLMC]) ** 0.5
    axis.annotate(
        f"{times:.2g} times", (middle, target), (0, 4), textcoords="offset points", ha="center", weight="bold"
    )
    axis.set_title(f"Deep hedging: {times:.2g} times less span to a loss of {target:g}", loc="left")
