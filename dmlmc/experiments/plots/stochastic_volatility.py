"""Figures of deep hedging in the Heston model: rates by coupling, training, hedges, profit and loss."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from scipy import stats

from dmlmc.calibration.checklist import CheckList
from dmlmc.experiments.couplings import DELAYED_ANTITHETIC, MLMC_ANTITHETIC
from dmlmc.experiments.plots.style import AXES, COLOURS, MARKERS, PALETTE, STYLES, finished, panels
from dmlmc.schedule import DELAYED, MLMC

# One colour per method, a full line for the antithetic coupling.
_COLOURS = {**COLOURS, MLMC_ANTITHETIC: COLOURS[MLMC], DELAYED_ANTITHETIC: COLOURS[DELAYED]}
_STYLES = {**STYLES, MLMC: "--", DELAYED: "--", MLMC_ANTITHETIC: "-", DELAYED_ANTITHETIC: "-"}


def variances(panels_of_reports: Mapping[str, Mapping[str, CheckList]]) -> Figure:
    """The variance of the coupled gradients over that of level 0, by level and coupling; a panel per point."""
    figure, axes = panels(len(panels_of_reports), (4.8 * len(panels_of_reports), 4.6), sharey=True)
    for axis, (title, reports) in zip(axes, panels_of_reports.items(), strict=True):
        for place, (name, report) in enumerate(reports.items()):
            table, look = report.table, {"color": PALETTE[place], "marker": "osD^v"[place], "capsize": 2}
            errors = 2 * table.variance_error / table.variance[0]
            label = f"{name}: b = {report.fitted.b}"
            axis.errorbar(table.level, table.variance / table.variance[0], errors, label=label, **look)
        axis.set(yscale="log", xlabel="level", title=title)
        axis.set_xticks(table.level)
        axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16))
    axes[0].set_ylabel("variance over that of level 0")
    return finished(figure)


def training(record: pd.DataFrame, best: Mapping[str, Mapping[str, float]], target: float) -> Figure:
    """Loss against work and against span, every method at its best rate for that cost: median and quartiles.

    ``best`` maps a cost and a method to a learning rate, ``target`` is the loss to reach.
    """
    figure, axes = panels(len(best), (5.4 * len(best), 4.6), sharey=True)
    for axis, (cost, rates) in zip(axes, best.items(), strict=True):
        for method, rate in rates.items():
            runs = record[(record.method == method) & (record.learning_rate == rate) & (record.step > 0)]
            by_step = runs.groupby("step")
            spent, (low, middle, high) = by_step[cost].first(), (by_step.loss.quantile(q) for q in (0.25, 0.5, 0.75))
            label = f"{method}, rate {rate:g}"
            axis.plot(spent, middle, _STYLES[method], color=_COLOURS[method], label=label)
            axis.fill_between(spent, low, high, color=_COLOURS[method], alpha=0.12, linewidth=0)
        axis.axhline(target, color="black", linewidth=1, linestyle=":", label="the loss to reach")
        axis.set(xscale="log", yscale="log", xlabel=AXES[cost], title=f"each method at its best rate for {cost}")
        axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    axes[0].set_ylabel("validation loss: median, quartiles")
    return finished(figure)


def cost_ratios(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """MLMC's cost over that of each method to reach a loss for good, a panel per cost, with 95% intervals."""
    figure, axes = panels(len(found), (5.0 * len(found), 3.0), sharey=True)
    names = [name for name in next(iter(found.values())) if name != MLMC]
    for axis, (cost, methods) in zip(axes, found.items(), strict=True):
        for place, name in enumerate(names):
            if name not in methods:
                continue
            mean, low, high = (methods[name][end] for end in ("mean", "low", "high"))
            bars = [[mean - low], [high - mean]] if np.isfinite(high - low) else None
            axis.errorbar(mean, place, xerr=bars, fmt=MARKERS.get(name, "o"), color=_COLOURS[name], capsize=3)
        axis.axvline(1.0, color="0.5", linewidth=1)
        axis.set(xscale="log", xlabel=f"{cost} of plain MLMC / {cost} of the method", title=f"right of 1: less {cost}")
        least, most = axis.get_xlim()
        ticks = [
            tick
            for tick in (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 5, 7, 10)
            if least <= tick <= most
        ]
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.xaxis.set_minor_locator(NullLocator())
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    return finished(figure)


def hedges(curves: pd.DataFrame) -> Figure:
    """Holdings against the price of the stock: a panel per instrument and time, learned ones beside the exact ones."""
    shown = list(curves.groupby(["instrument", "t"], sort=False))
    figure, axes = panels(len(shown), (3.5 * len(shown), 3.3))
    for axis, ((instrument, t), rows) in zip(axes, shown, strict=True):
        for seed, run in rows[rows.source == "learned"].groupby("seed"):
            label = "learned, a line per seed" if seed == 0 else None
            axis.plot(run.s, run.holding, color=COLOURS[DELAYED], linewidth=1, label=label)
        exact = rows[rows.source == "exact"]
        axis.plot(exact.s, exact.holding, "k:", label="exact")
        axis.set(xlabel="price of the stock S", title=f"{instrument}, t = {t:g}")
    axes[0].set_ylabel("holding")
    labels = axes[0].get_legend_handles_labels()
    figure.legend(*labels, loc="upper center", ncols=2, bbox_to_anchor=(0.5, 0.01), fontsize="small")
    return finished(figure)


def profit_and_loss(panels_of_results: Mapping[str, Mapping[str, Float[Array, " _"]]]) -> Figure:
    """Smoothed densities of profit and loss, a panel per way to trade; the legend has the deviation."""
    figure, axes = panels(len(panels_of_results), (5.4 * len(panels_of_results), 3.9))
    for axis, (title, results) in zip(axes, panels_of_results.items(), strict=True):
        _densities(axis, results)
        axis.set(title=title, xlabel="profit and loss, in prices of the stock")
        axis.legend(frameon=True, fontsize="x-small", loc="upper left")
    axes[0].set_ylabel("density")
    return finished(figure)


def _densities(axis: Axes, results: Mapping[str, Float[Array, " _"]]) -> None:
    arrays = {name: np.asarray(values, np.float64) for name, values in results.items()}
    widest = max(np.std(values) for values in arrays.values())
    grid = np.linspace(-3.5 * widest, 2 * widest, 400)
    tallest = 0.0
    for place, (name, values) in enumerate(arrays.items()):
        density = stats.gaussian_kde(values)(grid)
        tallest = max(tallest, float(density.max()))
        colour, style = "0.6" if place == 0 else PALETTE[place - 1], ("-", "--", "-", "-.", ":")[place]
        axis.plot(grid, density, style, color=colour, label=f"{name}: deviation {np.std(values):.3f}")
    axis.set(xlim=(grid[0], grid[-1]), ylim=(0, 1.45 * tallest))
