"""The tables of notebook 01: fitted rates with intervals, by point, by solver and beside the paper's, and plans."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dmlmc.calibration.fits import FittedRates
from dmlmc.schedule import Plan

PAPER_READ = {"b": "about 2", "c": "", "d": "about 1"}  # off its Figure 1
PAPER_USED = {"b": 1.8, "c": 1.0, "d": 1.0}  # in its training
INTERVAL = "[95% interval]"


def rates_table(fits: Mapping[Any, FittedRates], name: str, rates: Sequence[str] = ("b", "d")) -> pd.DataFrame:
    """One row per fit, labelled by its key, and one column per rate: estimate and interval.

    >>> from dmlmc.calibration.interval import Interval
    >>> fit = FittedRates(Interval(1.8, 1.7, 1.9), Interval(1.0, 1.0, 1.0), Interval(0.97, 0.92, 1.02))
    >>> rates_table({0: fit}, "step").reset_index().to_dict("records")
    [{'step': 0, 'b [95% interval]': '1.80 [1.70, 1.90]', 'd [95% interval]': '0.97 [0.92, 1.02]'}]
    """
    rows = [{f"{rate} {INTERVAL}": str(getattr(fit, rate)) for rate in rates} for fit in fits.values()]
    return pd.DataFrame(rows, index=pd.Index(list(fits), name=name))


def beside_the_papers(fit: FittedRates) -> pd.DataFrame:
    """The three rates as fitted, beside those that the paper reads off its Figure 1 and those it trains with."""
    measured = {rate: str(value) for rate, value in fit._asdict().items()}
    columns = {f"measured {INTERVAL}": measured, "paper, read off its Figure 1": PAPER_READ}
    return pd.DataFrame(columns | {"paper, used in training": PAPER_USED}).rename_axis("rate")


def plans_table(plans: Mapping[str, Plan]) -> pd.DataFrame:
    """One row per plan: its rates, samples and periods.

    >>> from dmlmc.allocation import plan
    >>> from dmlmc.rates import Rates
    >>> plans_table({"paper": plan(Rates(b=1.8, c=1.0, d=1.0), 1, level0_samples=8)}).loc["paper"].tolist()
    ['1.80', '1.00', '1.00', '8, 8', '1, 2']
    """
    rows = [
        [*(f"{rate:.2f}" for rate in (one.rates.b, one.rates.c, one.rates.d))]
        + [", ".join(map(str, counts)) for counts in (one.samples, one.periods)]
        for one in plans.values()
    ]
    return pd.DataFrame(rows, list(plans), ["b", "c", "d", "samples, level by level", "period, level by level [steps]"])
