"""Loss against work, span, steps or seconds, for several notebooks."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dmlmc.experiments.plots.style import AXES, COLOURS, STYLES, WIDTHS, finished, panels


def learning_curves(record: pd.DataFrame, costs: Sequence[str], *, floor: float | None = None) -> Figure:
    """Loss against each of ``costs``, one panel each: mean and standard deviation over seeds, log scales.

    ``floor``, a loss that no method should get far below, is in the legend title: it may be decades below the curves.
    """
    figure, axes = panels(len(costs), (4.2 * len(costs), 3.6), sharey=True)
    for axis, cost in zip(axes, costs, strict=True):
        for method, runs in record.groupby("method", sort=False):
            by_step = runs[runs.step > 0].groupby("step")
            at, mean, deviation = by_step[cost].first(), by_step.loss.mean(), by_step.loss.std(ddof=1).fillna(0.0)
            colour = COLOURS[str(method)]
            axis.plot(at, mean, STYLES[str(method)], color=colour, linewidth=WIDTHS[str(method)], label=method)
            axis.fill_between(at, np.maximum(mean - deviation, mean / 10), mean + deviation, color=colour, alpha=0.2)
        axis.set(xscale="log", yscale="log", xlabel=AXES[cost])
    axes[0].set_ylabel("validation loss")
    axes[0].legend(frameon=True, loc="lower left", title=None if floor is None else f"floor: {floor:.0e}")
    return finished(figure)
