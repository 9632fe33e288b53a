"""The small SDE of notebook 00. Its loss is known exactly on every grid, so runs can be judged without noise."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from dmlmc._internal.checks import integer
from dmlmc.calibration.interval import mean_interval

DIFFUSION, TARGET = 0.3, 0.5


def exact_loss(theta: Any, steps: int) -> Any:
    """``E (Y - 0.5)^2`` at time 1 for ``dY = -theta Y dt + 0.3 dB`` from 1, on a grid of ``steps`` time steps.

    The noise is additive, so a step of Milstein is one of Euler, ``Y -> (1 - theta / steps) Y + 0.3 dB``, and Y is
    normal. ``theta`` is a number or an array.

    >>> round(float(exact_loss(0.1, 10**6)), 4)  # without a grid: (exp(-0.1) - 0.5)^2 + 0.09 (1 - exp(-0.2)) / 0.2
    0.2455
    """
    steps = integer("exact_loss: steps", steps, minimum=1)
    factor = 1 - np.asarray(theta, float) / steps
    return (factor**steps - TARGET) ** 2 + DIFFUSION**2 / steps * (1 - factor ** (2 * steps)) / (1 - factor**2)


def best_theta(steps: int) -> float:
    """The theta of the least exact loss on a grid of ``steps`` time steps.

    >>> round(best_theta(64), 2)
    0.77
    """
    return float(minimize_scalar(lambda theta: exact_loss(theta, steps), bounds=(0.01, 3.0), options={"xatol": 1e-9}).x)


def excess_loss(theta: Any, steps: int) -> Any:
    """How far the exact loss at ``theta`` is above the least one."""
    return exact_loss(theta, steps) - exact_loss(best_theta(steps), steps)


def mean_curves(runs: pd.DataFrame) -> pd.DataFrame:
    """Loss by method and step: geometric mean over seeds and 95% t-interval, both of the logarithm, with the span.

    >>> runs = pd.DataFrame({"method": "MLMC", "seed": [0, 1], "step": 4, "span": 64.0, "loss": [0.1, 0.4]})
    >>> mean_curves(runs)[["method", "span", "loss"]].to_dict("records")
    [{'method': 'MLMC', 'span': 64.0, 'loss': 0.2}]
    """
    rows = []
    for (method, step), seeds in runs.groupby(["method", "step"], sort=False):
        found = np.exp(mean_interval(np.log(seeds.loss.to_numpy())))
        rows.append((method, step, seeds.span.iloc[0], *(round(float(end), 12) for end in found)))
    return pd.DataFrame(rows, columns=["method", "step", "span", "loss", "low", "high"])
