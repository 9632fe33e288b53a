"""A run that changes its plan in the middle, beside the same run with its old plan: what the new plan gains."""

import numpy as np
import pandas as pd

from dmlmc.calibration.interval import mean_interval

COSTS = ("step", "span", "work")


def gains(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """The loss with the old plan over that with the new one, when both have spent as much: above 1 the new one gains.

    ``old`` and ``new`` are the records of ``dmlmc.train`` with the same seeds. One row per cost, with the geometric
    mean over pairs of seeds and its 95% interval. Between evaluations the logarithm of the loss is interpolated. "As
    much" is all that the run which spends less has spent.

    >>> slow, fast = (
    ...     pd.DataFrame(
    ...         {"seed": seed, "step": step, "span": step, "work": step, "loss": (1 + seed) * rate**-step}
    ...         for seed in (0, 1) for step in (0, 1, 2)
    ...     )
    ...     for rate in (2.0, 4.0)
    ... )
    >>> gains(slow, fast).round(3).to_dict("records")[0]
    {'cost': 'step', 'spent': 2, 'gain': 4.0, 'low': 4.0, 'high': 4.0}
    """
    rows = []
    for cost in COSTS:
        spent = min(old[cost].max(), new[cost].max())
        before, after = (
            np.array([np.interp(spent, run[cost], np.log(run.loss)) for _, run in record.groupby("seed")])
            for record in (old, new)
        )
        rows.append((cost, spent, *np.exp(mean_interval(before - after))))
    return pd.DataFrame(rows, columns=["cost", "spent", "gain", "low", "high"])
