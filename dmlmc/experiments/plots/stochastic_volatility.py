"""Figures of deep hedging in the Heston model: rates by coupling, training, hedges, profit and loss."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike
from scipy import stats

from dmlmc.calibration.checklist import CheckList
from dmlmc.experiments.couplings import DELAYED_ANTITHETIC, MLMC_ANTITHETIC, best_rates, shown_rate, variance_ratio
from dmlmc.experiments.heston_profits import risk_table
from dmlmc.experiments.plots.style import AXES, COLOURS, MARKERS, PALETTE, STYLES, finished, panels
from dmlmc.experiments.tuned import COSTS
from dmlmc.schedule import DELAYED, MLMC

# One colour per method, a full line for the antithetic coupling.
_COLOURS = {**COLOURS, MLMC_ANTITHETIC: COLOURS[MLMC], DELAYED_ANTITHETIC: COLOURS[DELAYED]}
_STYLES = {**STYLES, MLMC: "--", DELAYED: "--", MLMC_ANTITHETIC: "-", DELAYED_ANTITHETIC: "-"}


def variances(panels_of_reports: Mapping[str, Mapping[str, CheckList]]) -> Figure:
    """The variance of the coupled gradients over that of level 0, by level and coupling; a panel per point.

    The title has the ratio of the plain to the antithetic variance at the finest level.
    """
    figure, axes = panels(len(panels_of_reports), (4.8 * len(panels_of_reports), 4.6), sharey=True)
    for axis, (title, reports) in zip(axes, panels_of_reports.items(), strict=True):
        for place, (name, report) in enumerate(reports.items()):
            table, look = report.table, {"color": PALETTE[place], "marker": "osD^v"[place], "capsize": 2}
            errors = 2 * table.variance_error / table.variance[0]
            label = f"{name}: b = {report.fitted.b}"
            axis.errorbar(table.level, table.variance / table.variance[0], errors, label=label, **look)
        last = variance_ratio(reports["plain"], reports["antithetic"])[-1].estimate
        finding = f"level {table.level.max()}: antithetic {last:.2g} times below plain"
        axis.set(yscale="log", xlabel="level", title=f"{title}\n{finding}")
        axis.set_xticks(table.level)
        axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16))
    axes[0].set_ylabel("variance over that of level 0\nbars: 2 standard errors")
    return finished(figure)


def training(record: pd.DataFrame, found: Mapping[str, Any]) -> Figure:
    """Loss against work and against span, every method at its best rate for that cost: median and quartiles.

    ``found`` is what ``couplings.ratios`` finds in the record: the loss to reach, and ratios of costs for the title.
    """
    figure, axes = panels(len(COSTS), (5.4 * len(COSTS), 4.6), sharey=True)
    for axis, cost in zip(axes, COSTS, strict=True):
        for method, rate in best_rates(record, found["loss"], cost).items():
            runs = record[(record.method == method) & (record.learning_rate == rate)]
            label = f"{method}, rate {shown_rate(record, method, rate)}"
            _quartiles(axis, runs, cost, label, style=_STYLES[method], colour=_COLOURS[method])
        axis.axhline(found["loss"], color="black", linewidth=1, linestyle=":", label="the loss to reach")
        axis.set(xscale="log", yscale="log", xlabel=AXES[cost], title=_finding(cost, found[cost]))
        axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    axes[0].set_ylabel("validation loss: median, quartiles")
    return finished(figure)


def _quartiles(axis: Axes, runs: pd.DataFrame, cost: str, label: str, *, style: str, colour: Any) -> None:
    by_step = runs[runs.step > 0].groupby("step")
    spent, (low, middle, high) = by_step[cost].first(), (by_step.loss.quantile(q) for q in (0.25, 0.5, 0.75))
    axis.plot(spent, middle, style, color=colour, label=label)
    axis.fill_between(spent, low, high, color=colour, alpha=0.12, linewidth=0)


def _finding(cost: str, methods: Mapping[str, Mapping[str, float]]) -> str:
    """Which method reaches the loss with the least cost, if its interval says that it needs less than plain MLMC."""
    best = max(methods, key=lambda name: methods[name]["mean"])
    if methods[best]["low"] > 1:
        return f"{best}:\n{methods[best]['mean']:.2g} times less {cost} than plain MLMC"
    return f"no method clearly needs less {cost}\nthan plain MLMC"


def instruments(runs: Mapping[str, pd.DataFrame], exact: Mapping[str, float]) -> Figure:
    """Residual risk, the root of the loss, against span: hedged with the stock, and with stock and variance swap.

    ``runs`` has the runs of each at one rate, ``exact`` what the exact hedges leave in continuous time.
    """
    figure, axes = panels(1, (6.4, 4.2))
    last = {}
    for place, (name, of_one) in enumerate(runs.items()):
        risk = of_one.assign(loss=of_one.loss**0.5)
        last[name] = risk[risk.step == risk.step.max()].loss.median()
        style, colour = ("--", "-")[place], PALETTE[place + 2]
        _quartiles(axes[0], risk, "span", f"learned, {name}", style=style, colour=colour)
        if exact[name] > 0:
            axes[0].axhline(exact[name], color="black", linewidth=1, linestyle=":", label=f"exact, {name}")
    title = "\n".join(f"{name}: residual risk {risk:.3f} (exact {exact[name]:.3f})" for name, risk in last.items())
    axes[0].set(xlabel=AXES["span"], title=title, ylim=(0, None))
    axes[0].set_ylabel("residual risk, in prices of the stock\nmedian, quartiles")
    axes[0].legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    return finished(figure)


def cost_ratios(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """MLMC's cost over that of each method to reach a loss for good, a panel per cost, with 95% intervals."""
    figure, axes = panels(len(found), (5.0 * len(found), 3.4), sharey=True)
    names = [name for name in next(iter(found.values())) if name != MLMC]
    for axis, (cost, methods) in zip(axes, found.items(), strict=True):
        for place, name in enumerate(names):
            if name not in methods:
                continue
            mean, low, high = (methods[name][end] for end in ("mean", "low", "high"))
            bars = [[mean - low], [high - mean]] if np.isfinite(high - low) else None
            axis.errorbar(mean, place, xerr=bars, fmt=MARKERS.get(name, "o"), color=_COLOURS[name], capsize=3)
        axis.axvline(1.0, color="0.5", linewidth=1)
        axis.set(xscale="log", xlabel=f"{cost} of plain MLMC / {cost} of the method\nbars: 95% intervals")
        axis.set_title(_finding(cost, methods))
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
    axes[0].set_ylabel("holding [units]")
    figure.suptitle(f"Root mean square distance of learned from exact holdings: {_distances(curves)}")
    labels = axes[0].get_legend_handles_labels()
    figure.legend(*labels, loc="upper center", ncols=2, bbox_to_anchor=(0.5, 0.01), fontsize="small")
    return finished(figure)


def _distances(curves: pd.DataFrame) -> str:
    where = ["instrument", "t", "s"]
    exact = curves[curves.source == "exact"].set_index(where).holding.rename("exact")
    learned = curves[curves.source == "learned"].join(exact, on=where)
    squares = ((learned.holding - learned.exact) ** 2).groupby(learned.instrument, sort=False).mean()
    return ", ".join(f"{name} {square**0.5:.2g}" for name, square in squares.items())


def profit_and_loss(panels_of_results: Mapping[str, Mapping[str, ArrayLike]], tail: float) -> Figure:
    """Smoothed densities of profit and loss around the mean, a panel per way to trade; the legend has the deviation.

    The title has the hedges with the least deviation and the least expected shortfall of the worst ``tail``.
    """
    figure, axes = panels(len(panels_of_results), (5.4 * len(panels_of_results), 3.9))
    for axis, (title, results) in zip(axes, panels_of_results.items(), strict=True):
        _densities(axis, {name: np.asarray(one, np.float64).ravel() for name, one in results.items()})
        risks = risk_table(results, tail)
        least = [f"least {name}: {values.min():.3f}, {values.idxmin()}" for name, values in risks.items()][1:]
        axis.set(title="\n".join([title, *least]), xlabel="profit and loss less its mean, in prices of the stock")
        axis.legend(frameon=True, fontsize="x-small", loc="upper left")
    axes[0].set_ylabel("density")
    return finished(figure)


def _densities(axis: Axes, results: Mapping[str, Float[np.ndarray, " _"]]) -> None:
    widest = max(np.std(values) for values in results.values())
    grid = np.linspace(-3.5 * widest, 2 * widest, 400)
    tallest = 0.0
    for place, (name, values) in enumerate(results.items()):
        density = stats.gaussian_kde(values - values.mean())(grid)
        tallest = max(tallest, float(density.max()))
        colour, style = "0.6" if place == 0 else PALETTE[place - 1], ("-", "--", "-", "-.", ":")[place]
        axis.plot(grid, density, style, color=colour, label=f"{name}: deviation {np.std(values):.3f}")
    axis.set(xlim=(grid[0], grid[-1]), ylim=(0, 1.45 * tallest))
