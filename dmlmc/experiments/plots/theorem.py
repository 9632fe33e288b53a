"""Figures about the theorem from tidy tables, and its bounds with sliders."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dmlmc.experiments.plots.style import (
    COLOURS,
    PALETTE,
    STYLES,
    WIDTHS,
    finished,
    legend_below,
    note_below_zero,
    panels,
    short,
)
from dmlmc.experiments.plots.widgets import picture_under_sliders
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, MLMC
from dmlmc.theory.complexity import GUARANTEES, SHARPER, guarantee, pays_from, span_per_step
from dmlmc.theory.theorem import Problem

GUARANTEE_COLOURS = {**COLOURS, SHARPER: PALETTE[2]}
GUARANTEE_STYLES = {**STYLES, SHARPER: "-."}
GUARANTEE_WIDTHS = {**WIDTHS, SHARPER: 1.4}
MARKERS = dict(zip(GUARANTEES, "sovD", strict=True))


def bounds_against_truth(check: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    """Bound against the true average, one point per setting; the bound holds on or above the diagonal.

    ``check`` has the columns ``guarantee, exact, bound``; ``runs`` also has ``measured`` and ``error``, for error bars
    of two standard errors. One that reaches below zero ends at the axis, and a note under the figure says so.
    """
    figure, (axis,) = panels(1, (5.2, 4.4))
    both = pd.concat([check.exact, runs.measured])
    ends = [both.min() / 2, both.max() * 2]
    axis.plot(ends, ends, color="black", linewidth=1, label="bound = truth")
    for name, rows in check.groupby("guarantee", sort=False):
        axis.plot(rows.exact, rows.bound, MARKERS[name], color=GUARANTEE_COLOURS[name], alpha=0.35, markersize=4)
        measured = runs[runs.guarantee == name]
        axis.errorbar(
            measured.measured,
            measured.bound,
            xerr=2 * measured.error,
            fmt=MARKERS[name],
            color=GUARANTEE_COLOURS[name],
            markeredgecolor="black",
            markersize=6,
            label=name,
        )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel=r"average of $|\nabla F|^2$: exact, and measured (outlined, bars: 2 standard errors)",
    )
    above = int(np.sum(check.exact <= check.bound))
    axis.set(ylabel="its bound", xlim=ends, title=f"{above} of {len(check)} exact averages are at or under their bound")
    note_below_zero(figure, runs.measured - 2 * runs.error)
    legend_below(figure, axis, columns=3)
    return finished(figure)


def error_along_run(bounds: pd.DataFrame, measured: Float[np.ndarray, "seeds steps"]) -> Figure:
    """The error of the delayed gradient along a run and its bound by each lemma, from ``proof.error_bounds``.

    ``measured`` has the squared errors of runs: the dots are their means, with bars of two standard errors. One that
    reaches below zero ends at the axis, and a note under the figure says so.
    """
    figure, (axis,) = panels(1, (5.6, 4.0))
    names = {"remark": "remark", "lemma 2": "Bounded Bias 2", "kernel": "kernel 1/(t-s)", "lemma 1": "Bounded Bias 1"}
    names |= {"orthogonal": "ours, at each step", "exact": "exact"}
    styles = [":", (0, (5, 1)), "-.", "--", (0, (3, 1, 1, 1)), "-"]
    colours = [*sns.color_palette("viridis", 5), "black"]
    for (column, name), style, colour in zip(names.items(), styles, colours, strict=True):
        axis.plot(bounds.step + 1, bounds[column], linestyle=style, color=colour, linewidth=1.2, label=name)
    shown = np.unique(np.geomspace(1, measured.shape[1], 12).astype(int)) - 1
    means, error = measured.mean(axis=0)[shown], measured.std(axis=0, ddof=1)[shown] / np.sqrt(len(measured))
    axis.errorbar(shown + 1, means, 2 * error, fmt="o", markersize=4, color=PALETTE[1], label="runs, 2 standard errors")
    note_below_zero(figure, means - 2 * error)
    axis.set(xscale="log", yscale="log", xlabel="step t + 1", ylabel=r"$E|\nabla F(x_t) - g_t|^2$ and its bounds")
    axis.set_title(f"The remark's bound is up to {np.max(bounds.remark / bounds.exact):.0f} times the exact error")
    axis.legend(frameon=True, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return finished(figure)


def proof_steps(table: pd.DataFrame) -> Figure:
    """Bars of the bound on the average after each step of the proof, from ``proof.looseness``."""
    figure, (axis,) = panels(1, (6.4, 3.0))
    axis.barh(table["step of the proof"], table.value, color=PALETTE[0])
    for row, (value, factor) in enumerate(zip(table.value, table.factor, strict=True)):
        axis.text(
            value + 0.01 * table.value.max(),
            row,
            f"{value:.3g}" + ("" if np.isnan(factor) else f"  (x {factor:.3g})"),
            va="center",
        )
    axis.set(xlabel=r"bound on the average of $|\nabla F|^2$", xlim=(0, table.value.max() * 1.35))
    axis.grid(False, axis="y")  # it would cross the numbers
    axis.set_title(f"The theorem's bound is {table.value.iloc[-1] / table.value.iloc[0]:.2g} times the exact average")
    axis.invert_yaxis()
    return finished(figure)


def trade(needed: pd.DataFrame, reached: pd.DataFrame, target: float) -> Figure:
    """The span to an accuracy against l_max: a line per guarantee, and open markers for exact runs.

    ``needed`` and ``reached`` have the columns ``max_level, guarantee, span``, for one target.
    """
    figure, (axis,) = panels(1, (6.4, 4.0))
    for name, rows in needed.groupby("guarantee", sort=False):
        colour, width = GUARANTEE_COLOURS[name], GUARANTEE_WIDTHS[name]
        label = {DELAYED: f"{DELAYED}, paper's bound", SHARPER: f"{DELAYED}, sharper bound"}.get(name, name)
        axis.plot(rows.max_level, rows.span, GUARANTEE_STYLES[name], color=colour, linewidth=width, label=label)
    for name, rows in reached.groupby("guarantee", sort=False):
        marker, colour = MARKERS[name], GUARANTEE_COLOURS[name]
        label = f"{DELAYED if name == SHARPER else name}, exact run"
        axis.plot(rows.max_level, rows.span, marker, color=colour, markerfacecolor="white", label=label)
    paper, sharper = pays_from(needed.assign(target=target))[[DELAYED, SHARPER]].iloc[0]
    when = ["at no l_max shown" if np.isnan(level) else f"from l_max = {level:g}" for level in (paper, sharper)]
    axis.set_title(f"By the paper's bound delay pays {when[0]}, by the sharper one {when[1]}", fontsize=10)
    axis.set(yscale="log", xlabel="finest level l_max")
    axis.set(ylabel=rf"span to a mean $|\nabla F|^2$ of {target:g} [level-0 paths]")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return finished(figure)


def stability(maps: dict[str, pd.DataFrame], lines: pd.DataFrame, runs: dict[str, pd.DataFrame]) -> Figure:
    """Where growth per step is at least 1, over the exponent d' of the periods and the step size; a panel per map.

    ``maps`` has the columns ``exponent, step_size, growth``; ``lines`` has ``exponent`` and one column per line;
    ``runs``, keyed by panel, has the columns ``exponent, step_size, unstable``.
    """
    figure, axes = panels(len(maps), (4.6 * len(maps), 3.8), grid="ticks", sharey=True)
    for axis, (title, frame) in zip(axes, maps.items(), strict=True):
        table = frame.pivot(index="step_size", columns="exponent", values="growth")
        unstable = (table >= 1).to_numpy().astype(float)
        axis.pcolormesh(table.columns, table.index, unstable, cmap="Oranges", vmin=0, vmax=2, shading="nearest")
        for column, style in zip(lines.columns.drop("exponent"), ("-", "--", ":"), strict=False):
            axis.plot(lines.exponent, lines[column], style, color="black", linewidth=1.5, label=column)
        for unstable_runs, marker, label in ((False, "o", "run: stable"), (True, "x", "run: unstable")):
            here = runs.get(title, pd.DataFrame(columns=["exponent", "step_size", "unstable"]))
            here = here[here.unstable == unstable_runs]
            face = "white" if marker == "o" else None
            axis.scatter(
                here.exponent, here.step_size, marker=marker, s=26, color=PALETTE[0], facecolor=face, label=label
            )
        axis.set(yscale="log", title=title, xlabel="exponent d' of the periods")
    axes[0].set_ylabel("step size times L")
    handles, labels = axes[-1].get_legend_handles_labels()
    shade = Patch(color=plt.get_cmap("Oranges")(0.5), label="unstable, exactly")
    below: dict[str, Any] = {
        "ncols": 5,
        "fontsize": 8,
        "frameon": False,
        "loc": "upper center",
        "bbox_to_anchor": (0.5, 0.01),
    }
    figure.legend([*handles, shade], [*labels, "unstable, exactly"], **below)
    found = ", ".join(f"{short(least_margin(frame, lines))} ({name})" for name, frame in maps.items())
    return finished(figure, f"Smallest unstable step size over '{lines.columns[1]}', least over d': {found}")


def least_margin(frame: pd.DataFrame, lines: pd.DataFrame) -> float:
    """The least ratio, over the exponents, of the smallest unstable step size on the map to the first of the lines.

    NaN if nothing on the map is unstable. Above 1 the line is safe everywhere.
    """
    unstable = frame[frame.growth >= 1].groupby("exponent").step_size.min()
    return float((unstable / lines.set_index("exponent")[lines.columns[1]]).min())


def step_sizes(experiment: pd.DataFrame, marks: dict[str, tuple[float, float]]) -> Figure:
    """Loss after some steps against the step size, with shaded ranges of step sizes to compare.

    ``experiment`` has ``step_size, loss``; a loss that is not finite is a cross at the top. ``marks`` maps the label of
    a range to its two ends, which may be equal.
    """
    figure, (axis,) = panels(1, (6.4, 3.8))
    finite = experiment[np.isfinite(experiment.loss)]
    lost = experiment[~np.isfinite(experiment.loss)]
    top = 4 * finite.loss.max()
    axis.plot(finite.step_size, finite.loss, "o-", color=GUARANTEE_COLOURS[DELAYED], label=f"{DELAYED}, loss")
    if len(lost):
        axis.plot(lost.step_size, [top] * len(lost), "x", color="black", label="diverged")
    for colour, (label, (low, high)) in zip((PALETTE[3], PALETTE[2], PALETTE[4]), marks.items(), strict=False):
        axis.axvspan(low / 1.03, high * 1.03, color=colour, alpha=0.35, label=label)
    best = finite.step_size[finite.loss.idxmin()]
    axis.set(xscale="log", yscale="log", xlabel="step size", ylabel="validation loss [price squared]")
    axis.set_title(f"Deep hedging: the least loss is at step size {best:.1g}")
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return finished(figure)


def bounds_picture(max_level: int = 6, log2_steps: int = 12, log2_samples: int = 16, d: float = 1.0) -> Figure:
    """The bounds of all guarantees against steps and span, for L = M = gap = 1, b = 1.8, c = 1.

    The vertical line marks ``2^log2_steps`` steps in the left panel.

    >>> figure = bounds_picture(max_level=3)
    >>> len(figure.axes)
    2
    >>> plt.close(figure)
    """
    problem = Problem(1.0, 1.0, Rates(b=1.8, c=1.0, d=d), max_level, 1.0)
    steps = np.unique(np.geomspace(1, 2 ** (log2_steps + 8), 60).astype(int))
    figure, axes = panels(2, (9.0, 3.8), sharey=True)
    for name in GUARANTEES:
        after = guarantee(problem, name, 2.0**log2_samples)
        values = [after(int(count)).total for count in steps]
        for axis, cost in zip(axes, (1.0, span_per_step(problem, name)), strict=True):
            colour, width = GUARANTEE_COLOURS[name], GUARANTEE_WIDTHS[name]
            axis.plot(steps * cost, values, GUARANTEE_STYLES[name], color=colour, linewidth=width, label=name)
    axes[0].axvline(2**log2_steps, color="0.5", linewidth=1)
    axes[0].set(xscale="log", yscale="log", xlabel="steps T", ylabel=r"bound on the average of $|\nabla F|^2$")
    axes[1].set(xscale="log", xlabel="cumulative span [level-0 paths]")
    axes[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    totals = {name: guarantee(problem, name, 2.0**log2_samples)(2**log2_steps).total for name in GUARANTEES}
    found = ", ".join(f"{short(totals[name] / totals[MLMC])} ({name})" for name in (DELAYED, SHARPER))
    figure.suptitle(f"Bound after {2**log2_steps:,} steps (grey line) over MLMC's: {found}", fontsize="medium")
    return finished(figure)


def bounds_explorer() -> Any:
    """``bounds_picture`` with sliders for l_max, log2 T, log2 N and d."""
    import ipywidgets  # in the extra "paper"; only notebooks need it

    ranges = {
        "max_level": ipywidgets.IntSlider(6, 0, 14, description="l_max"),
        "log2_steps": ipywidgets.IntSlider(12, 4, 20, description="log2 T"),
        "log2_samples": ipywidgets.IntSlider(16, 4, 30, description="log2 N"),
        "d": ipywidgets.FloatSlider(1.0, min=0.25, max=2.5, step=0.25, description="d"),
    }
    return picture_under_sliders(bounds_picture, ranges)
