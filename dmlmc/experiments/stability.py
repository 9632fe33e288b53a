"""Heavy-ball momentum and stale gradients on a quadratic loss: the exact limit of stability, and runs on either side.

Without delay momentum m raises the largest stable learning rate, from 2 to 2 (1 + m) over the curvature. A gradient
that is reused for many steps is another matter: it is added up, each step acts like 1 / (1 - m) of them, and before its
next refresh nothing corrects that. The limit falls in that proportion.
"""

from collections.abc import Sequence
from functools import partial

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pandas as pd

from dmlmc.allocation import plan
from dmlmc.estimators import delayed_mlmc
from dmlmc.experiments.bounds import SignedQuadraticLoss
from dmlmc.experiments.sweeps import sweep
from dmlmc.rates import Rates
from dmlmc.theory.quadratic import LinearModel, growth_factor, stability_limit


def stability_limits(fresh: float, periods: Sequence[int], momenta: Sequence[float]) -> pd.DataFrame:
    """The largest stable learning rate for each period of a stale level of curvature 1 and each momentum.

    ``fresh`` is the curvature of a level that is refreshed at every step. The columns are ``period, momentum, limit``.

    >>> stability_limits(0.0, [1, 4], [0.0, 0.5]).limit.round(3).tolist()
    [2.0, 3.0, 0.5, 0.447]
    """
    return pd.DataFrame(
        [
            {"period": period, "momentum": m, "limit": stability_limit(_model(fresh, period), m, points=100)}
            for period in periods
            for m in momenta
        ]
    )


def runs_near_limits(
    fresh: float, limits: pd.DataFrame, factors: Sequence[float] = (0.8, 1.25), steps: int = 1000
) -> pd.DataFrame:
    """Runs of delayed MLMC with ``optax.sgd(rate, momentum)`` at ``factors`` times each limit: which ones diverge?

    A run is ``unstable`` if its loss ends above where it began; ``growth`` is the exact factor per step.
    """
    loss = SignedQuadraticLoss(1, 2.0, 1e-12, Rates(b=1.8, c=1.0, d=1.0), signs=(fresh / 2, 1.0))
    frames = []
    for period, rows in limits.groupby("period", sort=False):
        estimator = delayed_mlmc(loss, plan(loss.rates, 1, samples=[1, 1], periods=[1, period]))
        optimisers = {
            str(row.momentum): (partial(optax.sgd, momentum=row.momentum), [factor * row.limit for factor in factors])
            for row in rows.itertuples()
        }
        start, key = jnp.ones((1, 1)), jr.key(0)[None]
        _, record = sweep(
            estimator,
            optimisers,
            start,
            key,
            steps=steps,
            validation=lambda params: loss.mean(params, 1),
            evaluate_every=steps,
        )
        ends = record[record.step == steps]
        found = pd.DataFrame({"period": period, "momentum": ends.optimiser.astype(float)})
        found["learning_rate"] = ends.learning_rate
        found["unstable"] = ~(ends.loss < record[record.step == 0].loss.to_numpy())
        pairs = zip(found.learning_rate, found.momentum, strict=True)
        found["growth"] = [float(growth_factor(_model(fresh, int(str(period))), rate, m)) for rate, m in pairs]
        frames.append(found)
    return pd.concat(frames, ignore_index=True)


def _model(fresh: float, period: int) -> LinearModel:
    return LinearModel((fresh, 1.0), (1.0, 1.0), (1, period))


def worst_drop(limits: pd.DataFrame) -> float:
    """By how much momentum lowers the limit at most: the largest ratio of the limit without to that with it."""
    without = limits[limits.momentum == 0.0].set_index("period").limit
    return float(np.max(without.loc[limits.period].to_numpy() / limits.limit))
