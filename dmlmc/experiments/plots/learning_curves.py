"""Loss against work, span, steps or seconds, for several notebooks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dmlmc.experiments.plots.style import (
    AXES,
    COLOURS,
    STYLES,
    WIDTHS,
    finished,
    interval,
    log_bottom,
    note_below_zero,
    panels,
    short,
)
from dmlmc.schedule import DELAYED, MLMC


def learning_curves(record: pd.DataFrame, costs: Sequence[str], *, title: str, floor: float | None = None) -> Figure:
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
    return finished(figure, f"{title}\nLines: means over seeds. Bands: standard deviation")


def ratios_found(targets: Sequence[Mapping[str, Any]], costs: Sequence[str]) -> str:
    """Costs of MLMC over those of delayed MLMC, as a sentence: means over the targets of ``comparison.summarise``.

    >>> ratios_found([{"span_ratio": {"mean": 15.0}}, {"span_ratio": {"mean": 17.0}}], ["span"])
    'To an equal loss, MLMC / delayed MLMC: span 16'
    """
    means = {cost: np.mean([target[f"{cost}_ratio"]["mean"] for target in targets]) for cost in costs}
    return f"To an equal loss, {MLMC} / {DELAYED}: {', '.join(f'{cost} {short(mean)}' for cost, mean in means.items())}"


def span_found(ratios: Mapping[str, Mapping[str, float]]) -> str:
    """Span of MLMC over that of delayed MLMC to the least loss of ``sweeps.span_ratios``, as a sentence.

    >>> span_found({"0.5": {"mean": 3.0, "low": 2.5, "high": 3.5}, "0.1": {"mean": 4.0, "low": 3.0, "high": 5.0}})
    'Span of MLMC / delayed MLMC to a loss of 0.1: 4 [3, 5]'
    >>> span_found({})
    'No loss is reached for good by all runs of MLMC and delayed MLMC'
    """
    if not ratios:
        return f"No loss is reached for good by all runs of {MLMC} and {DELAYED}"
    loss, found = list(ratios.items())[-1]
    return f"Span of {MLMC} / {DELAYED} to a loss of {loss}: {interval(found['mean'], found['low'], found['high'])}"
