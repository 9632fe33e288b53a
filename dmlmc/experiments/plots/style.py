"""Shared by all figures: one colour and line style per method, and how to create, finish and save a figure."""

import re
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
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


def finished(figure: Figure, title: str = "") -> Figure:
    """The figure, laid out so that no label is cut off. A title is wrapped to its width and stands above it."""
    figure.tight_layout()
    if title:
        width = min(90, int(12 * figure.get_figwidth()))  # in characters
        lines = "\n".join(wrapped(line, width) for line in title.split("\n"))
        figure.suptitle(lines, y=1.0, verticalalignment="bottom", fontsize="medium")  # the panels keep their heights
    return figure


def wrapped(text: str, width: int) -> str:
    """The text on as few lines of at most ``width`` characters as can be, and these about equally long.

    What is in brackets stays together, with the word before.

    >>> print(wrapped("one 2 [1, 3] (three) four", 21))
    one 2 [1, 3] (three)
    four
    >>> print(wrapped("one two three four", 13))
    one two
    three four
    """
    whole = re.sub(r" ?[\[(][^\])]*[\])]", lambda found: found[0].replace(" ", "\xa0"), text)
    fit = partial(textwrap.wrap, whole, break_long_words=False, break_on_hyphens=False)
    count = len(fit(width=width))
    even = next((one for one in range(1, width) if len(fit(width=one)) == count), width)
    return "\n".join(fit(width=even)).replace("\xa0", " ")


def short(value: float) -> str:
    """A number in a title: two digits, or "unknown" if it is not finite.

    >>> short(1094.3), short(0.8649), short(float("nan"))
    ('1,100', '0.86', 'unknown')
    """
    return f"{float(f'{value:.2g}'):,g}" if np.isfinite(value) else "unknown"


def interval(estimate: float, low: float, high: float) -> str:
    """An estimate and its interval in a title, "unknown" if there is no estimate.

    >>> interval(7.1234, 6.04, 12.96), interval(0.5, float("nan"), float("nan"))
    ('7.1 [6, 13]', '0.5')
    """
    return (
        f"{short(estimate)} [{short(low)}, {short(high)}]"
        if np.isfinite([estimate, low, high]).all()
        else short(estimate)
    )


def legend_below(figure: Figure, *axes: Axes, columns: int = 6) -> None:
    """One legend under the figure, with what is drawn on some axes. A label that is on several is listed once."""
    named: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        named |= {label: handle for handle, label in zip(handles, labels, strict=True) if label not in named}
    columns = min(columns, len(named))
    figure.legend(named.values(), named.keys(), loc="upper center", bbox_to_anchor=(0.5, 0.01), ncols=columns)


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
