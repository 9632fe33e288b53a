"""Figures of notebook 03: Figure 2 of the paper, the learned hedge ratios and prices."""

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from dmlmc.experiments.plots.learning_curves import learning_curves
from dmlmc.experiments.plots.style import COLOURS, STYLES, WIDTHS, finished, panels


def figure_2(record: pd.DataFrame, *, floor: float | None = None) -> Figure:
    """Figure 2 of the paper: loss against work and span, with a third panel against iterations."""
    return learning_curves(record, ["work", "span", "step"], floor=floor)


def hedge_ratios(curves: pd.DataFrame, living: pd.DataFrame) -> Figure:
    """Learned hedge ratios and the Black-Scholes delta, one panel per time.

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
    axes[-1].legend(frameon=True, loc="lower right")
    return finished(figure)


def option_prices(prices: pd.DataFrame, marks: dict[str, float]) -> Figure:
    """The learned p0 of every seed, by method, with vertical lines at the reference values ``marks``."""
    figure, (axis,) = panels(1, (5.6, 2.6))
    sns.stripplot(
        prices,
        x="price",
        y="method",
        hue="method",
        palette=COLOURS,
        ax=axis,
        size=5,
        alpha=0.6,
        jitter=False,
        legend=False,
    )
    for (name, value), style in zip(marks.items(), ("-", "--", ":"), strict=False):
        axis.axvline(value, color="black", linestyle=style, linewidth=1, label=name)
    axis.set(xlabel="price p0 of the option", ylabel="")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(marks), frameon=False)
    return finished(figure)
