"""Shared by all figures: one colour and line style per method, and how to create, finish and save a figure."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from dmlmc._internal.files import whole
from dmlmc.experiments.streaming import CLIPPED, STRIDE_2, STRIDE_4
from dmlmc.experiments.tuned import DELAYED_HELD, DELAYED_PAPER, SHORTER
from dmlmc.schedule import DELAYED, MLMC, NAIVE, RANDOMISED, STREAMING

PALETTE = sns.color_palette("colorblind")
COLOURS = {NAIVE: PALETTE[7], MLMC: PALETTE[1], DELAYED: PALETTE[0], DELAYED_PAPER: PALETTE[0]}
COLOURS |= {DELAYED_HELD: PALETTE[2], RANDOMISED: PALETTE[3], SHORTER: PALETTE[9]}
COLOURS |= {STREAMING: PALETTE[4], STRIDE_2: PALETTE[5], STRIDE_4: (0.25, 0.25, 0.25), CLIPPED: PALETTE[9]}
STYLES = {NAIVE: ":", MLMC: "--", DELAYED: "-", DELAYED_PAPER: "-"}
STYLES |= {DELAYED_HELD: "-", RANDOMISED: "-.", SHORTER: "--"}
STYLES |= {STREAMING: "-", STRIDE_2: "-.", STRIDE_4: ":", CLIPPED: "--"}
MARKERS = {NAIVE: "s", MLMC: "o", DELAYED: "D", DELAYED_PAPER: "D"}
MARKERS |= {DELAYED_HELD: "^", RANDOMISED: "v", SHORTER: "P"}
MARKERS |= {STREAMING: "*", STRIDE_2: "<", STRIDE_4: ">", CLIPPED: "X"}
WIDTHS = dict.fromkeys(COLOURS, 1.4) | {NAIVE: 3.0, MLMC: 2.2}  # so that overlapping curves are all visible
AXES = {
    "work": "cumulative work [level-0 paths]",
    "span": "cumulative span [level-0 paths]",
    "step": "iterations",
    "seconds": "wall clock on this CPU [s], all seeds",
}


def panels(count: int, size: tuple[float, float], *, grid: str = "whitegrid", **options: Any) -> tuple[Figure, Any]:
    """A figure (size in inches) and its axes, panels in one row; ``options`` go to ``plt.subplots``."""
    with sns.axes_style(grid):
        figure, axes = plt.subplots(1, count, figsize=size, squeeze=False, **options)
    return figure, axes[0]


def finished(figure: Figure) -> Figure:
    """The figure, laid out so that no label is cut off."""
    figure.tight_layout()
    return figure


def log_bottom(centre: ArrayLike, low: ArrayLike) -> float | None:
    """The lower limit of a logarithmic axis for values ``centre`` whose bars or bands reach down to ``low``.

    It is below all positive ends, but never much more than a decade below the lowest value: an end that happens to be
    close to zero would make the axis very long. None, which leaves the axis as it is, if no value is positive.

    >>> log_bottom([10.0, 1.2], [6.0, -0.5]), log_bottom([10.0, 1.2], [0.6, 1e-9])
    (1.0, 0.5)
    """
    values, ends = (np.asarray(array, float).ravel() for array in (centre, low))
    values = values[np.isfinite(values) & (values > 0)]
    if values.size == 0:
        return None
    return float(np.min([*values, *ends[ends > values.min() / 10]]) / 1.2)


def note_below_zero(figure: Figure, low: ArrayLike, *, drawn: str = "bars", height: float = 0.0) -> None:
    """Say under a figure with a logarithmic axis where bars or bands end whose ends ``low`` are not positive.

    ``height`` is the upper edge of the note, in heights of the figure.
    """
    if np.any(np.asarray(low, float) <= 0):
        note = f"{drawn} that reach below zero end at the axis"
        figure.text(0.5, height, note, horizontalalignment="center", verticalalignment="top", fontsize="small")


def save_figure(figure: Figure, directory: str | Path, name: str) -> None:
    """Write ``name.pdf`` and ``name.png`` to a directory."""
    for kind, options in (("pdf", {"metadata": {"CreationDate": None}}), ("png", {"dpi": 150})):
        with whole(Path(directory) / f"{name}.{kind}") as temporary:
            figure.savefig(temporary, format=kind, bbox_inches="tight", **options)
