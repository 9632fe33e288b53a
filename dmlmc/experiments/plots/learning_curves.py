"""Loss against work, span, steps or seconds, for several notebooks."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dmlmc.experiments.plots.style import (
    AXES,
    COLOURS,
    STYLES,
    WIDTHS,
    finished,
    log_bottom,
    note_below_zero,
    panels,
)


def learning_curves(
    record: pd.DataFrame, costs: Sequence[str], *, floor: float | None = None, title: str | None = None
) -> Figure:
    """Loss against each of ``costs``, one panel each: mean and standard deviation over seeds, log scales.

    A band that reaches below zero ends at the axis, and a note under the figure says so. ``floor``, a loss that no
    method should get far below, is in the legend title: it may be decades below the curves.
    """
    figure, axes = panels(len(costs), (4.2 * len(costs) + 2.4, 3.6), sharey=True)
    by_step = record[record.step > 0].groupby(["method", "step"], sort=False)
    curves = by_step[list(costs)].first().assign(loss=by_step.loss.mean())
    deviation = by_step.loss.std(ddof=1).fillna(0.0)
    curves = curves.assign(low=curves.loss - deviation, high=curves.loss + deviation)
    bottom = log_bottom(curves.loss, curves.low)
    for axis, cost in zip(axes, costs, strict=True):
        for method, curve in curves.groupby("method", sort=False):
            colour, width = COLOURS[str(method)], WIDTHS[str(method)]
            axis.plot(curve[cost], curve.loss, STYLES[str(method)], color=colour, linewidth=width, label=method)
            axis.fill_between(curve[cost], np.maximum(curve.low, bottom or 0), curve.high, color=colour, alpha=0.2)
        axis.set(xscale="log", yscale="log", xlabel=AXES[cost])
    axes[0].set_ylim(bottom=bottom)
    note_below_zero(figure, curves.low, drawn="bands")
    axes[0].set_ylabel("validation loss")
    beside = {"frameon": False, "loc": "center left", "bbox_to_anchor": (1.01, 0.5)}
    axes[-1].legend(**beside, title=None if floor is None else f"floor: {floor:.0e}")
    if title is not None:
        figure.suptitle(title, fontsize="medium")
    return finished(figure)
