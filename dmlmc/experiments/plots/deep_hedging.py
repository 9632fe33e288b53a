"""Figures of notebook 03: Figure 2 of the paper, hedge ratios and prices at equal iterations."""

import pandas as pd
from matplotlib.figure import Figure

from dmlmc.experiments.hedging import DELTA
from dmlmc.experiments.plots.learning_curves import learning_curves
from dmlmc.experiments.plots.style import AXES, COLOURS, STYLES, WIDTHS, finished, panels, short


def figure_2(record: pd.DataFrame, *, title: str, floor: float | None = None) -> Figure:
    """Figure 2 of the paper: loss against work and span, with a third panel against iterations."""
    return learning_curves(record, ["work", "span", "step"], floor=floor, title=title)


def hedge_ratios(curves: pd.DataFrame, living: pd.DataFrame, iterations: int) -> Figure:
    """Hedge ratios of networks after so many ``iterations`` and the Black-Scholes delta, one panel per time.

    ``curves`` has the columns ``t, s, source, seed, ratio``; ``living`` has ``t, low, high``. Nine paths in ten are
    between the prices ``low`` and ``high`` at time ``t``; this range is shaded.
    """
    times = sorted(curves.t.unique())
    figure, axes = panels(len(times), (3.8 * len(times), 3.4), sharey=True)
    for axis, t in zip(axes, times, strict=True):
        here = living[living.t == t].iloc[0]
        axis.axvspan(here.low, here.high, color="0.92", zorder=0, label="nine paths in ten")
        for source, rows in curves[curves.t == t].groupby("source", sort=False):
            by_price = rows.groupby("s").ratio
            mean, deviation = by_price.mean(), by_price.std(ddof=1).fillna(0.0)
            colour = COLOURS.get(str(source), "black")
            style, width = STYLES.get(str(source), "-"), WIDTHS.get(str(source), 1.4)
            axis.plot(mean.index, mean, style, color=colour, linewidth=width, label=source)
            axis.fill_between(mean.index, mean - deviation, mean + deviation, color=colour, alpha=0.2)
        axis.set(title=f"t = {t:g}", xlabel="price s", xlim=(rows.s.min(), rows.s.max()))
    axes[0].set_ylabel("hedge ratio H(t, s)")
    axes[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    found = ", ".join(f"{short(gap)} ({method})" for method, gap in furthest(curves, living).items())
    title = (
        f"Largest distance from the {DELTA} where nine paths in ten are: {found}\n"
        f"Hedges after {iterations} iterations: means over seeds. Bands: standard deviation"
    )
    return finished(figure, title)


def furthest(curves: pd.DataFrame, living: pd.DataFrame) -> pd.Series:
    """By method, the largest distance of the mean hedge from the Black-Scholes delta within the shaded ranges."""
    means = curves.groupby(["t", "s", "source"], sort=False).ratio.mean().unstack("source")
    ranges = living.set_index("t").loc[means.index.get_level_values("t")]
    prices = means.index.get_level_values("s")
    inside = means[(prices >= ranges.low.to_numpy()) & (prices <= ranges.high.to_numpy())]
    return inside.drop(columns=DELTA).sub(inside[DELTA], axis=0).abs().max()


def price_traces(record: pd.DataFrame, marks: dict[str, float], iterations: int) -> Figure:
    """The price p0 against iterations: mean and standard deviation over seeds, by method.

    ``record`` has the columns ``method, seed, step, price``. Horizontal lines are the reference values ``marks``, a
    vertical one is at the number of ``iterations`` at which methods are compared.
    """
    figure, (axis,) = panels(1, (7.6, 3.6))
    by_step = record.groupby(["method", "step"], sort=False).price
    curves = pd.DataFrame({"mean": by_step.mean(), "deviation": by_step.std(ddof=1).fillna(0.0)}).reset_index()
    for method, curve in curves.groupby("method", sort=False):
        colour, style, width = COLOURS[str(method)], STYLES[str(method)], WIDTHS[str(method)]
        axis.plot(curve.step, curve["mean"], style, color=colour, linewidth=width, label=method)
        low, high = curve["mean"] - curve.deviation, curve["mean"] + curve.deviation
        axis.fill_between(curve.step, low, high, color=colour, alpha=0.2)
    for (name, value), style in zip(marks.items(), ("-", "--", ":"), strict=False):
        axis.axhline(value, color="black", linestyle=style, linewidth=1, label=f"{name}: {value:.3g}")
    axis.axvline(iterations, color="0.4", linewidth=1, label=f"{iterations} iterations")
    axis.set(xlabel=AXES["step"], ylabel="price p0 of the option", xlim=(0, record.step.max()))
    there = curves[curves.step == iterations]["mean"]
    ends = " to ".join(dict.fromkeys(f"{value:.2g}" for value in (there.min(), there.max())))
    axis.set_title(
        f"After {iterations} iterations p0 is {ends}; bands: standard deviation over seeds", fontsize="medium"
    )
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return finished(figure)
