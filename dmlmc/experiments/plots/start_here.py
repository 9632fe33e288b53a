"""Figures of notebook 00: coupled paths, losses of the methods, and a plan with sliders."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PyTree
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from dmlmc._internal.checks import integer
from dmlmc.allocation import plan
from dmlmc.calibration.interval import Interval
from dmlmc.experiments.plots.style import COLOURS, PALETTE, STYLES, WIDTHS, finished, panels, short
from dmlmc.experiments.plots.widgets import picture_under_sliders
from dmlmc.experiments.start_here import mean_curves
from dmlmc.paths import one_path
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, METHODS, MLMC, PAPER, Plan, level_cost
from dmlmc.sde import SDELoss

STEPS = 129  # enough to see level 6 refreshed three times at d = 1
GREYS = LinearSegmentedColormap.from_list("age", ["0.94", "0.4"])  # from one step old to the oldest
AGES = GREYS.with_extremes(under=COLOURS[DELAYED], bad="white")


def plan_picture(
    b: float = 1.8, c: float = 1.0, d: float = 1.0, max_level: int = 6, samples: float = 823, step: int = STEPS - 2
) -> Figure:
    """Draw the plan for the rates b, c, d, the finest level and the effective batch size N, after a number of steps.

    The raster ends at ``step`` and gives the age of every level's gradient there, by default one step before all are
    refreshed. The other defaults are the paper's experiment: N = 823 gives the sample counts of its code to within one.
    pyplot does not manage the figure, so redrawing while a slider is dragged does not leak memory.

    >>> [axis.get_title(loc="left").split(",")[0].split(" (")[0] for axis in plan_picture(max_level=2).axes]
    ['Delayed MLMC up to step 127', 'Samples per level', 'Work per step', 'Span per step']
    """
    max_level = integer("plan_picture: max_level", max_level, minimum=0)
    step = integer("plan_picture: step", step, minimum=0, maximum=STEPS - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that b <= c: the sliders allow it
        delayed = plan(Rates(b, c, d), max_level, samples=samples, allocation=PAPER)
    figure = Figure(figsize=(10, 5.6))
    # Fixed positions: matplotlib's layout engines take longer than the drawing itself, too slow for sliders.
    _raster(figure.add_axes((0.11, 0.54, 0.78, 0.36)), delayed, step)
    _samples(figure.add_axes((0.06, 0.1, 0.25, 0.28)), delayed)
    undelayed, top = delayed.without_delay(), level_cost(max_level, c)
    work = [delayed.naive_samples() * top, undelayed.mean_work(), delayed.mean_work()]
    _costs(figure.add_axes((0.44, 0.1, 0.25, 0.28)), "Work per step, mean", work, names=METHODS)
    span = [top, undelayed.mean_span(), delayed.mean_span()]
    _costs(figure.add_axes((0.73, 0.1, 0.25, 0.28)), "Span per step, mean", span)
    gains = [f"{name} {short(costs[1] / costs[2])}" for name, costs in {"work": work, "span": span}.items()]
    figure.suptitle(f"Mean of a step, MLMC / delayed MLMC: {', '.join(gains)}", y=0.995)
    return figure


def refresh_raster(axis: Axes, delayed: Plan, count: int = STEPS, last: int = STEPS) -> None:
    """A row per level, ``count`` steps. Refreshed ones are blue, later ones grey, the older the gradient the darker.

    Steps after ``last`` are white.
    """
    steps = np.arange(count)
    ages = np.array([steps % min(period, count) for period in delayed.periods])
    shown = np.where(steps <= last, ages, np.nan)
    axis.pcolormesh(np.log2(np.maximum(shown, 0.5)), cmap=AGES, vmin=0, vmax=np.log2(STEPS - 1))  # below 0: age 0
    levels = np.arange(delayed.max_level + 1)
    axis.set_yticks(levels + 0.5, [f"{level}: every {period}" for level, period in enumerate(delayed.periods)])
    axis.set_xticks(steps[::16] + 0.5, steps[::16])
    axis.hlines(levels[1:], 0, count, color="white", linewidth=2)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("SGD step")


def _raster(axis: Axes, delayed: Plan, step: int) -> None:
    """The raster up to a step, and how old the gradient of each level is there."""
    refresh_raster(axis, delayed, last=step)
    axis.vlines([step, step + 1], 0, delayed.max_level + 1, color="black", linewidth=1)
    for level, period in enumerate(delayed.periods):
        age = step % period
        text = "refreshed" if age == 0 else f"{age} step{'s' if age > 1 else ''} old"
        axis.annotate(text, (STEPS + 1, level + 0.5), va="center", fontsize=9, annotation_clip=False)
    title = (
        f"Delayed MLMC up to step {step} (blue: level refreshed; grey: its last gradient reused, the older the darker)"
    )
    axis.set_title(title, loc="left", fontsize=11)


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


def coupled_paths(loss: SDELoss, params: PyTree, level: int = 3, seed: int = 3) -> Figure:
    """The first coordinate of a path on the grid of a level and on that below, with the same and with other noise."""
    fine, other = (loss.sample(key, level) for key in jr.split(jr.key(seed)))
    noises = {"Coupled: the same noise on both grids": loss.coarsen(fine), "Not coupled": loss.coarsen(other)}
    figure, axes = panels(2, (9.6, 3.0), grid="ticks", sharey=True)
    fine_path, gaps = path_of(loss, params, fine)[:, 0], []
    for axis, (title, coarse) in zip(axes, noises.items(), strict=True):
        coarse_path = path_of(loss, params, coarse)[:, 0]
        gaps.append(np.mean(np.abs(fine_path[::2] - coarse_path)))
        for noise, path, colour, style in ((fine, fine_path, "black", "-"), (coarse, coarse_path, PALETTE[3], "--")):
            label = f"level {level if noise is fine else level - 1}: {len(noise)} time steps"
            axis.plot(np.linspace(0, loss.t1, len(path)), path, style, color=colour, label=label)
        axis.set_xlabel("time")
        _finish(axis, title)
    axes[0].set_ylabel("state $Y$")
    axes[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return finished(figure, f"Mean distance of the two paths: {short(gaps[0])} coupled, {short(gaps[1])} not coupled")


def path_of(loss: SDELoss, params: PyTree, noise: Float[Array, "steps noise_dim"]) -> Float[np.ndarray, "points dim"]:
    """All states of one path, its start included."""
    simulator = loss.simulator(params, None, noise.dtype)._replace(keep=True)
    _, states = one_path(simulator, jnp.linspace(0.0, loss.t1, len(noise) + 1, dtype=noise.dtype), noise)
    return np.concatenate([np.asarray(simulator.y0)[None], np.asarray(states)])


def methods(runs: pd.DataFrame, target: float, factor: Interval) -> Figure:
    """Loss against span, a line per method, and the factor between MLMC and delayed MLMC at the loss ``target``."""
    figure, (axis,) = panels(1, (7.6, 4.0))
    curves = mean_curves(runs[runs.step > 0])
    crossings = {}
    for method, curve in curves.groupby("method", sort=False):
        name = str(method)
        axis.plot(curve.span, curve.loss, STYLES[name], color=COLOURS[name], linewidth=WIDTHS[name], label=name)
        axis.fill_between(curve.span, curve.low, curve.high, color=COLOURS[name], alpha=0.2, linewidth=0)
        crossings[name] = np.exp(np.interp(-np.log(target), -np.log(curve.loss.cummin()), np.log(curve.span)))
    ends = [(crossings[name], target) for name in (MLMC, DELAYED)]
    axis.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "<->", "color": "black", "shrinkA": 0, "shrinkB": 0})
    axis.set(xscale="log", yscale="log", xlabel="cumulative span [level-0 paths]", ylabel="loss above the least one")
    title = f"MLMC needs {factor.estimate:.1f} [{factor.low:.1f}, {factor.high:.1f}] times the span of delayed MLMC"
    axis.set_title(f"{title}\nto come within {target:.2g} of the least loss (arrow)", loc="left", fontsize=10)
    handles = f"{runs.seed.nunique()} seeds: geometric\nmean, 95% interval"
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), title=handles)
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
        "step": ipywidgets.IntSlider(STEPS - 2, min=0, max=STEPS - 1, description="step"),
    }
    for name, value in start.items():
        ranges[name].value = value
    return picture_under_sliders(plan_picture, ranges)
