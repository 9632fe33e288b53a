"""Shared by all figures: one colour and line style per method, and how to create, finish and save a figure."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

from dmlmc._internal.files import whole
from dmlmc.schedule import DELAYED, MLMC, NAIVE

PALETTE = sns.color_palette("colorblind")
COLOURS = {NAIVE: PALETTE[7], MLMC: PALETTE[1], DELAYED: PALETTE[0]}
STYLES = {NAIVE: ":", MLMC: "--", DELAYED: "-"}
WIDTHS = {NAIVE: 3.0, MLMC: 2.2, DELAYED: 1.4}  # so that overlapping curves are all visible
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


def save_figure(figure: Figure, directory: str | Path, name: str) -> None:
    """Write ``name.pdf`` and ``name.png`` to a directory."""
    for kind, options in (("pdf", {"metadata": {"CreationDate": None}}), ("png", {"dpi": 150})):
        with whole(Path(directory) / f"{name}.{kind}") as temporary:
            figure.savefig(temporary, format=kind, bbox_inches="tight", **options)
