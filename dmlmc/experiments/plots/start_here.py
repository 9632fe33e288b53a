"""A picture of a plan, with sliders: refreshes, samples per level, and the speed-ups in work and span."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from dmlmc._internal.checks import integer
from dmlmc.allocation import plan
from dmlmc.brownian import coarsen, increments
from dmlmc.experiments.plots.style import COLOURS, finished
from dmlmc.experiments.plots.widgets import picture_under_sliders
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, METHODS, MLMC, PAPER, Plan, level_cost

STEPS = 129  # enough to see level 6 refreshed three times at d = 1
REUSED = "0.9"


def plan_picture(b: float = 1.8, c: float = 1.0, d: float = 1.0, max_level: int = 6, samples: float = 823) -> Figure:
    """Draw the plan for the rates b, c, d, the finest level and the effective batch size N.

    The defaults are the paper's experiment: N = 823 gives the sample counts of its code to within one. pyplot does not
    manage the figure, so redrawing while a slider is dragged does not leak memory.

    >>> [axis.get_title(loc="left").split(",")[0].split(" (")[0] for axis in plan_picture(max_level=2).axes]
    ['Who computes when', 'Samples per level', 'Work per step', 'Span per step']
    """
    max_level = integer("plan_picture: max_level", max_level, minimum=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that b <= c: the sliders allow it
        delayed = plan(Rates(b, c, d), max_level, samples=samples, allocation=PAPER)
    figure = Figure(figsize=(10, 5.6))
    # Fixed positions: matplotlib's layout engines take longer than the drawing itself, too slow for sliders.
    raster = figure.add_axes((0.11, 0.54, 0.87, 0.39))
    refresh_raster(raster, delayed)
    raster.set_title(
        "Who computes when, delayed MLMC (blue: level refreshed, grey: its last gradient reused)", loc="left"
    )
    _samples(figure.add_axes((0.06, 0.1, 0.25, 0.28)), delayed)
    undelayed, top = delayed.without_delay(), level_cost(max_level, c)
    work = [delayed.naive_samples() * top, undelayed.mean_work(), delayed.mean_work()]
    _costs(figure.add_axes((0.44, 0.1, 0.25, 0.28)), "Work per step, mean", work, names=METHODS)
    span = [top, undelayed.mean_span(), delayed.mean_span()]
    _costs(figure.add_axes((0.73, 0.1, 0.25, 0.28)), "Span per step, mean", span)
    return figure


def refresh_raster(axis: Axes, delayed: Plan, count: int = STEPS) -> None:
    """Levels against the first ``count`` steps of SGD, filled where a level is refreshed."""
    steps = np.arange(count)
    due = np.array([steps % period == 0 for period in delayed.periods])
    axis.pcolormesh(due, cmap=ListedColormap([REUSED, COLOURS[DELAYED]]), vmin=0, vmax=1)
    levels = np.arange(delayed.max_level + 1)
    axis.set_yticks(levels + 0.5, [f"{level}: every {period}" for level, period in enumerate(delayed.periods)])
    axis.set_xticks(steps[::16] + 0.5, steps[::16])
    axis.hlines(levels[1:], 0, count, color="white", linewidth=2)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("SGD step")


def _samples(axis: Axes, delayed: Plan) -> None:
    bars = axis.bar(range(delayed.max_level + 1), delayed.samples, color=COLOURS[DELAYED])
    axis.bar_label(bars, fontsize=7)
    axis.set(yscale="log", xlabel="level", xticks=range(delayed.max_level + 1), ylim=(0.5, 3 * delayed.samples[0]))
    _finish(axis, f"Samples per level (naive: {delayed.naive_samples()} at level {delayed.max_level})")


def _costs(axis: Axes, title: str, costs: list[float], names: Sequence[str] = ()) -> None:
    """A bar per method, and how many times cheaper it is than the one above."""
    low = min(1.0, *costs) / 2
    axis.barh(range(len(costs)), costs, color=[COLOURS[name] for name in METHODS])
    for row, cost in enumerate(costs):
        gain = f", {costs[row - 1] / cost:.3g}x less" if row and costs[row - 1] > cost else ""
        axis.annotate(
            f" {cost:,.0f}{gain}" if cost >= 100 else f" {cost:.3g}{gain}", (cost, row), va="center", fontsize=9
        )
    axis.set(xscale="log", xlim=(low, low * (max(costs) / low) ** 1.8), xlabel="level-0 paths, log scale")
    axis.set_xticks([])
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    _finish(axis, title)


def _finish(axis: Axes, title: str) -> None:
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(title, loc="left", fontsize=10)


def coupled_paths(steps: int = 80, seed: int = 3) -> Figure:
    """Geometric Brownian motion on a grid and on one with half the steps, with the same and with different noise."""
    keys = jr.split(jr.key(seed))
    fine, other = (increments(key, steps, 1.0, 1) for key in keys)
    panels = {"coupled: the same noise on both grids": coarsen(fine), "not coupled: each its own": coarsen(other)}
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
    for axis, (title, coarse) in zip(axes, panels.items(), strict=True):
        for noise, colour, style in ((fine, COLOURS[DELAYED], "-"), (coarse, COLOURS[MLMC], "--")):
            step, dw = 1 / len(noise), np.asarray(noise)[:, 0]
            path = np.cumprod([1.0, *(1 + step + dw + 0.5 * (dw**2 - step))])  # Milstein, mu = sigma = 1
            label = f"{len(noise)} steps"
            axis.plot(np.linspace(0, 1, len(path)), path, style, color=colour, label=label)
        axis.set_xlabel("time")
        _finish(axis, title)
    axes[0].set_ylabel("price")
    axes[0].legend(frameon=False)
    return finished(figure)


def plan_explorer(**start: Any) -> Any:
    """``plan_picture`` with a slider for each argument; ``start`` sets their initial values."""
    import ipywidgets  # in the extra "paper"; only notebooks need it

    ranges = {
        "b": ipywidgets.FloatSlider(1.8, min=0.2, max=4.0, step=0.1, description="b"),
        "c": ipywidgets.FloatSlider(1.0, min=0.2, max=2.0, step=0.1, description="c"),
        "d": ipywidgets.FloatSlider(1.0, min=0.0, max=2.0, step=0.1, description="d"),
        "max_level": ipywidgets.IntSlider(6, min=0, max=10, description="l_max"),
        "samples": ipywidgets.IntSlider(823, min=8, max=4096, description="N"),
    }
    for name, value in start.items():
        ranges[name].value = value
    return picture_under_sliders(plan_picture, ranges)
