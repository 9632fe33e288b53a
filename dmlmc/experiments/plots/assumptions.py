"""Figures for the assumptions: decay over levels, fitted exponents, checks, and a comparison of solvers."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from dmlmc.experiments.plots.style import PALETTE, finished, log_bottom, note_below_zero, panels, short


def assumption_decay(tables: pd.DataFrame, b: float, d: float) -> Figure:
    """Figure 1: second moment (left) and pathwise smoothness (right) of the coupled gradient, per level.

    ``tables`` concatenates several measurements, labelled by the column ``point``; each is a thin line. The thick line
    is their geometric mean, because the first points of a run can be orders of magnitude larger than the last. The
    dashed lines fall like ``2^(-b l)`` and ``2^(-d l)``.
    """
    figure, axes = panels(2, (10.4, 3.8))
    labels = {"second_moment": r"second moment of $\nabla D_l$", "smoothness": r"pathwise smoothness of $\nabla D_l$"}
    for axis, (name, label), rate in zip(axes, labels.items(), (b, d), strict=True):
        mean = np.log2(tables.set_index("level")[name]).groupby("level").mean()
        axis.plot(mean.index, 2**mean, "o-", color="black", linewidth=2, label="geometric mean")
        fine = mean.index[mean.index >= 1].to_numpy()
        reference = 2.0 ** (mean[fine[0]] + 1 - rate * (fine - fine[0]))
        axis.plot(fine, reference, "k--", linewidth=1, label="slope in the title")
        for colour, (point, rows) in _points(tables):
            axis.plot(rows.level, rows[name], ".-", color=colour, linewidth=1, label=f"step {point}")
        axis.set_yscale("log", base=2)
        axis.set(xlabel="level $l$", ylabel=label, xticks=mean.index)
        axis.set_title(f"dashed: like $2^{{-{'' if rate == 1 else f'{rate:.3g}'}\\,l}}$", fontsize="medium")
    axes[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    fitted = " and ".join(f"{name.replace('_', ' ')} {_slope(tables, name):.2f}" for name in labels)
    last = tables.level.max()
    return finished(figure, f"Rates at which the geometric mean falls, levels 1 to {last}: {fitted}")


def _slope(tables: pd.DataFrame, name: str) -> float:
    """The rate at which the geometric mean over the points falls from level 1 on, by least squares."""
    mean = np.log2(tables[tables.level >= 1].set_index("level")[name]).groupby("level").mean()
    return -float(np.polyfit(mean.index, mean, 1)[0])


def _points(tables: pd.DataFrame):
    """The colour and the rows of each point, from dark (early) to light (late)."""
    colours = sns.color_palette("viridis", tables.point.nunique())
    return zip(colours, tables.groupby("point", sort=False), strict=True)


def fitted_exponents(fits: pd.DataFrame, paper: dict[str, float]) -> Figure:
    """Fitted exponents with intervals along the optimisation; the columns are ``step, rate, estimate, low, high``.

    The first steps are close together, so points are evenly spaced and labelled by their step. The axis limits follow
    the estimates, so very wide intervals are cut off.
    """
    steps = sorted(fits.step.unique())
    figure, (axis,) = panels(1, (5.6, 3.4))
    for shift, colour, (rate, rows) in zip((-0.06, 0.06, 0.0), PALETTE, fits.groupby("rate"), strict=False):
        at = np.array([steps.index(step) for step in rows.step]) + shift
        bars = np.abs(rows[["low", "high"]].to_numpy().T - rows.estimate.to_numpy())
        axis.errorbar(at, rows.estimate, bars, fmt="o-", capsize=3, color=colour, label=f"{rate}, fitted")
        axis.axhline(paper[str(rate)], linestyle="--", linewidth=1, color=colour, label=f"{rate}, paper")
    axis.set(xticks=range(len(steps)), xticklabels=steps, xlabel="step of the run", ylabel="exponent")
    axis.set_ylim(0, 1.4 * max(fits.estimate.max(), *paper.values()))
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ranges = fits.groupby("rate").estimate.agg(["min", "max"])
    found = ", ".join(f"{rate} = {low:.2f} to {high:.2f}" for rate, (low, high) in ranges.iterrows())
    return finished(figure, f"Along the run {found}\nBars: 95% bootstrap intervals")


def level_checks(tables: pd.DataFrame, *, heavy: float) -> Figure:
    """Kurtosis and telescoping check per level and point, and smoothness of the mean with its noise floor."""
    figure, axes = panels(3, (13.0, 3.5))
    for axis, (name, limit) in zip(axes, {"kurtosis": heavy, "consistency": 3.0}.items(), strict=False):
        for colour, (point, rows) in _points(tables):
            axis.plot(rows.level, rows[name], "o-", markersize=4, linewidth=1, color=colour, label=f"step {point}")
        axis.axhline(limit, color="black", linestyle="--", linewidth=1, label="limit of a warning")
        axis.set(xlabel="level $l$", ylabel=name, xticks=sorted(tables.level.unique()))
    axes[0].set(yscale="log", ylabel=r"kurtosis of $\nabla D_l$")
    axes[1].set(ylabel="telescoping gap [standard errors]", ylim=(0, max(4.5, 1.5 * tables.consistency.max())))
    last = tables[tables.point == tables.point.iloc[-1]]
    names = {"smoothness": "pathwise", "mean_smoothness": "of the mean", "noise_floor": "noise floor"}
    for style, colour, (name, label) in zip(("o-", "s-", ":"), (*PALETTE[:2], "black"), names.items(), strict=True):
        shown = last[last[name] > 0]
        axes[2].plot(shown.level, shown[name], style, color=colour, markersize=4, linewidth=1.4, label=label)
    axes[2].set_yscale("log", base=2)
    axes[2].set(xlabel="level $l$", ylabel=f"smoothness at step {tables.point.iloc[-1]}", xticks=last.level)
    points, smoothness = (axis.get_legend_handles_labels() for axis in axes[1:])
    beside = {"frameon": False, "alignment": "left", "bbox_transform": axes[2].transAxes}
    figure.legend(*points, title="left and middle", loc="upper left", bbox_to_anchor=(1.0, 1.05), **beside)
    figure.legend(*smoothness, title="right", loc="lower left", bbox_to_anchor=(1.0, -0.1), **beside)
    return finished(figure, checks_found(tables, heavy))


def checks_found(tables: pd.DataFrame, heavy: float) -> str:
    """What the figure of the checks shows, as a sentence. Smoothness of the mean that is not positive is left out."""
    above = int(np.sum(tables["kurtosis"] > heavy))
    found = f"Kurtosis above {heavy:g} in {above} of {len(tables)} cases; the largest telescoping gap is "
    found += f"{tables.consistency.max():.2g} standard errors"
    last = tables[tables.point == tables.point.iloc[-1]]
    ratio = (last.mean_smoothness / last.smoothness)[last.mean_smoothness > 0]
    if ratio.empty:
        return found
    found += f";\nsmoothness at step {last.point.iloc[0]}, of the mean / pathwise: "
    return f"{found}{ratio.min():.2g} to {ratio.max():.2g}"


def solver_decay(tables: pd.DataFrame, rates: dict[str, str]) -> Figure:
    """Variance of the coupled gradient per level, a line per value of ``solver``; ``rates`` are for the labels.

    Bars are two standard errors. One that reaches below zero ends at the axis, and a note under the figure says so.
    """
    tables = tables[tables.level >= 1]
    low = tables.variance - 2 * tables.variance_error
    figure, (axis,) = panels(1, (6.6, 3.6))
    for colour, marker, (solver, rows) in zip(PALETTE, "os^", tables.groupby("solver", sort=False), strict=False):
        bars, label = 2 * rows.variance_error, f"{solver}: b = {rates[str(solver)]}"
        axis.errorbar(rows.level, rows.variance, bars, fmt=f"{marker}-", capsize=3, color=colour, label=label)
    axis.set_yscale("log", base=2)
    axis.set_ylim(bottom=log_bottom(tables.variance, low))
    axis.set(
        xlabel="level $l$",
        ylabel=r"variance of $\nabla D_l$",
        xticks=sorted(tables.level.unique()),
    )
    note_below_zero(figure, low)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    first, last = tables.level.min(), tables.level.max()
    ends = tables.groupby(["solver", "level"]).variance.mean()
    found = ", ".join(f"{short(ends[name, first] / ends[name, last])} with {name}" for name in rates)
    return finished(figure, f"Variance at level {first} / at level {last}: {found}\nBars: two standard errors")
