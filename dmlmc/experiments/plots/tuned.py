"""Figures of the tuned comparison: held noise, losses against learning rates, ratios of span, a run to its end."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from dmlmc.experiments.plots.style import COLOURS, MARKERS, STYLES, finished, interval, legend_below, panels, short
from dmlmc.experiments.tuned import DELAYED_HELD, DELAYED_PAPER, best_losses, quartiles
from dmlmc.schedule import HELD, MLMC, PAPER


def held_noise(errors: pd.DataFrame, long_run: pd.DataFrame) -> Figure:
    """Left, the exact stationary error over MLMC's against the step size. Right, the long-run variance against l_max.

    The tables are from ``experiments.held_noise``.
    """
    figure, (left, right) = panels(2, (10.0, 3.8))
    plain = errors[errors.method == MLMC].set_index("step_size").error
    for method, rows in errors.groupby("method", sort=False):
        ratio = rows.set_index("step_size").error / plain
        left.plot(ratio[np.isfinite(ratio)], STYLES[method], color=COLOURS[method], label=method)
    left.set(xscale="log", yscale="log", xlabel="step size a", ylabel="stationary E|grad F|² over MLMC's")
    for column, method in ((PAPER, DELAYED_PAPER), (HELD, DELAYED_HELD), ("mlmc", MLMC)):
        look = {"color": COLOURS[method], "marker": MARKERS[method], "linestyle": STYLES[method]}
        right.plot(long_run.max_level, long_run[column], label=method, **look)
    right.set(xlabel="finest level l_max", ylabel="long-run variance over MLMC's", yscale="log")
    legend_below(figure, left, right)
    smallest, deepest = errors.step_size.min(), long_run.loc[long_run.max_level.idxmax()]
    ratio = errors[errors.step_size == smallest].set_index("method").error / plain[smallest]
    title = (
        f"Error over MLMC's at step size {smallest:g}: {short(ratio[DELAYED_PAPER])} with the paper's counts, "
        f"{short(ratio[DELAYED_HELD])} with held counts\nLong-run variance over MLMC's at l_max = "
        f"{deepest.max_level:g}: {short(deepest[PAPER])} and {short(deepest[HELD])}. All values are exact"
    )
    return finished(figure, title)


def final_losses(
    losses: Mapping[tuple[str, str], pd.DataFrame], method: str, start: float, floor: float | None = None
) -> Figure:
    """Loss against learning rate at equal cost: a panel per optimiser and cost, the keys of ``losses``.

    The title compares ``method`` with MLMC, each at its best rate.

    Lines are medians over seeds, bands are quartiles, dots are single runs. Runs at or above the loss ``start`` before
    training, diverged ones included, are drawn at the upper rim. The values are from ``tuned.losses_at``.
    """
    figure, axes = panels(len(losses), (4.1 * len(losses), 3.9), sharey=True)
    for axis, ((optimiser, cost), runs) in zip(axes, losses.items(), strict=True):
        _losses_by_rate(axis, runs, rim=start)
        axis.set(xscale="log", yscale="log", xlabel="learning rate", title=f"{optimiser}, equal {cost}")
        used = sorted(runs.learning_rate.unique())
        axis.set_xticks(used, [f"{rate:g}" for rate in used], rotation=45 if len(used) > 4 else 0)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlim(used[0] / 1.5, used[-1] * 1.5)
        if floor is not None:
            axis.axhline(floor, color="black", linewidth=1, linestyle=":", label="floor")
    axes[0].set_ylabel("validation loss")
    legend_below(figure, *axes, columns=3)
    return finished(
        figure, f"{best_loss_found(losses, method)}\nLines: medians over seeds. Bands: quartiles. Dots: runs"
    )


def best_loss_found(losses: Mapping[tuple[str, str], pd.DataFrame], method: str) -> str:
    """The least median loss of a method over MLMC's, as a sentence. Unknown where one of them lost most runs."""
    found = []
    for (optimiser, cost), runs in losses.items():
        least = best_losses(runs)["median"].replace(np.inf, np.nan)
        found.append(f"{short(least[method] / least[MLMC])} ({optimiser}, equal {cost})")
    return f"Least median loss, {method} / MLMC: {', '.join(found)}"


def _losses_by_rate(axis: Axes, runs: pd.DataFrame, rim: float) -> None:
    methods = list(runs.method.unique())
    for place, (method, rows) in enumerate(quartiles(runs).groupby("method", sort=False)):
        shift = 1.05 ** (place - (len(methods) - 1) / 2)  # so that dots of two methods do not hide each other
        colour, shown = COLOURS[method], rows[["median", "low", "high"]].clip(upper=rim)
        look = {"color": colour, "linestyle": STYLES[method], "marker": MARKERS[method], "markersize": 5}
        axis.plot(rows.learning_rate * shift, shown["median"], label=method, **look)
        axis.fill_between(rows.learning_rate * shift, shown.low, shown.high, color=colour, alpha=0.12, linewidth=0)
        single = runs[runs.method == method]
        axis.plot(single.learning_rate * shift, single.loss.clip(upper=rim), ".", color=colour, markersize=3, alpha=0.5)


def span_ratios(
    ratios: Mapping[str, Mapping[str, Mapping[str, float]]],
    by_rate: Mapping[tuple[str, str], pd.DataFrame],
    counted: float,
) -> Figure:
    """Span of MLMC over span of other methods. Left, each method at its own best rate. Right, both at the same rate.

    ``ratios`` maps optimiser and method to mean, low and high; ``by_rate`` maps optimiser and method to
    the table of ``tuned.ratios_by_rate``. ``counted`` is the ratio of the mean spans of a step. Bars are 95%
    t-intervals. Bars that reach below the axis end at it.
    """
    figure, (left, right) = panels(2, (10.5, 3.9), sharey=True)
    for column, found in enumerate(ratios.values()):
        methods = [method for method, one in found.items() if method != MLMC and np.isfinite(one["mean"])]
        for place, method in enumerate(methods):
            mean, low, high = (found[method][end] for end in ("mean", "low", "high"))
            at, look = column + 0.11 * (place - (len(methods) - 1) / 2), {"color": COLOURS[method], "capsize": 3}
            label = method if method not in left.get_legend_handles_labels()[1] else None
            left.errorbar(at, mean, [[mean - low], [high - mean]], fmt=MARKERS[method], label=label, **look)
    left.set_xticks(range(len(ratios)), list(ratios))
    left.set(yscale="log", ylabel="span of MLMC / span of the method", title="Each method at its own best rate")
    styles = {optimiser: style for (optimiser, _), style in zip(by_rate, ("-", "-", "--", "--"), strict=False)}
    for (optimiser, method), table in by_rate.items():
        known = table.dropna()
        bars = np.array([known["mean"] - known.low, known.high - known["mean"]])
        look = {"color": COLOURS[method], "linestyle": styles[optimiser], "marker": MARKERS[method], "capsize": 2}
        right.errorbar(known.relative, known["mean"], bars, label=f"{method}, {optimiser}", **look)
        lost = table[table["mean"].isna()]
        right.plot(lost.relative, np.full(len(lost), 0.6), "x", color=COLOURS[method])
    right.set(
        xscale="log", xlabel="learning rate over MLMC's best", title="At the same rate (crosses: too many runs lost)"
    )
    for axis in (left, right):
        axis.axhline(counted, color="black", linewidth=1, linestyle=":", label=f"counted: {counted:.3g}")
        axis.axhline(1.0, color="0.5", linewidth=1)
        axis.set_ylim(0.5, 2.2 * counted)
        axis.yaxis.set_minor_locator(NullLocator())
    ticks = [value for value in (0.5, 1, 2, 4, 8, 16, 32) if value <= 2.2 * counted]
    left.set_yticks(ticks, [f"{value:g}" for value in ticks])
    relative = [value for table in by_rate.values() for value in table.relative]
    shown = [value for value in (0.03, 0.1, 0.25, 0.5, 1, 2, 4) if min(relative) * 0.8 <= value <= max(relative) * 1.2]
    right.set_xticks(shown, [f"{value:g}" for value in shown])
    right.xaxis.set_minor_locator(NullLocator())
    for axis, where, columns in ((left, 0.27, 2), (right, 0.77, 1)):
        figure.legend(
            *axis.get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(where, 0.01), ncols=columns
        )
    return finished(
        figure, f"{span_ratio_found(ratios)}\nBars: 95% t-intervals over seeds. Dotted: ratio of the spans of a step"
    )


def span_ratio_found(ratios: Mapping[str, Mapping[str, Mapping[str, float]]], method: str = DELAYED_HELD) -> str:
    """MLMC's span over that of a method, as a sentence."""
    found = []
    for optimiser, of_methods in ratios.items():
        ends = [of_methods.get(method, {}).get(end, np.nan) for end in ("mean", "low", "high")]
        found.append(f"{interval(*ends) if np.isfinite(ends[0]) else 'not reached'} ({optimiser})")
    return f"At their best rates, span of MLMC / {method}: {', '.join(found)}"


def to_the_end(record: pd.DataFrame, prices: pd.DataFrame, floor: float, fair: float) -> Figure:
    """Left, the loss against steps until it stops falling, a line per seed. Right, the prices learned, a dot per seed.

    ``floor`` is the loss of the Black-Scholes hedge on the grid of the record, ``fair`` the Black-Scholes price.
    """
    figure, (left, right) = panels(2, (10.0, 3.8), gridspec_kw={"width_ratios": [3, 2]})
    for (method, seed), run in record.groupby(["method", "seed"], sort=False):
        label = method if seed == 0 else None
        left.plot(run.step, run.loss, STYLES[method], color=COLOURS[method], linewidth=1, label=label)
    methods = list(prices.method.unique())
    for place, method in enumerate(methods):
        learned = prices[prices.method == method].price
        right.plot([place] * len(learned), learned, MARKERS[method], color=COLOURS[method])
    left.axhline(floor, color="black", linewidth=1, linestyle=":", label="Black-Scholes hedge, same paths")
    right.axhline(fair, color="black", linewidth=1, linestyle=":", label=f"Black-Scholes price {fair:.4f}")
    left.set(yscale="log", xlabel="iterations", ylabel="validation loss", title="Loss, one line per seed")
    right.set_xticks(range(len(methods)), [method.replace(", ", ",\n") for method in methods])
    right.set(xlim=(-0.5, len(methods) - 0.5), ylabel="learned price p0", title="Price, one dot per seed")
    legend_below(figure, left, right)
    losses = record[record.step == record.step.max()].groupby("method", sort=False).loss.mean()
    loss, price = (
        ", ".join(f"{mean:.{digits}g} ({method})" for method, mean in means.items())
        for means, digits in ((losses, 2), (prices.groupby("method", sort=False).price.mean(), 4))
    )
    title = (
        f"Mean loss at the end: {loss}; Black-Scholes hedge {floor:.2g}\nMean price: {price}; Black-Scholes {fair:.4g}"
    )
    return finished(figure, title)
