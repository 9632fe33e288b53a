"""From statistics per level to the rates b, c and d, with intervals."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dmlmc._internal.checks import instance, integer
from dmlmc.calibration.interval import Interval
from dmlmc.calibration.levels import Measurement
from dmlmc.rates import Rates


class FittedRates(NamedTuple):
    """The three exponents as fitted."""

    b: Interval
    c: Interval
    d: Interval

    def rates(self) -> Rates:
        """The estimates as ``dmlmc.Rates``, ready for ``dmlmc.plan``.

        If the interval of d holds the integer nearest to d, that integer is taken: a d of 0.97 [0.92, 1.02] gives the
        periods (1, 2, 4, 8) and not (1, 1, 2, 4). A d below 0 counts as 0.

        >>> FittedRates(Interval(1.8, 1.7, 1.9), Interval(1.0, 1.0, 1.0), Interval(0.97, 0.92, 1.02)).rates().d
        1.0
        """
        nearest = float(round(self.d.estimate))
        d = nearest if self.d.low <= nearest <= self.d.high else self.d.estimate
        return Rates(self.b.estimate, self.c.estimate, max(d, 0.0))


def fit_rates(
    measured: Measurement | Sequence[Measurement], *, drop: int = 1, resamples: int = 1000, seed: int = 0
) -> FittedRates:
    """Straight lines through the logarithms: b from the variance, d from the pathwise smoothness, c from the steps.

    Each level weighs as much as its standard error over blocks allows. The ``drop`` coarsest levels are left out: level
    0 is no difference, and the next ones may not have reached their rate yet. ``measured`` comes from
    ``dmlmc.measure_levels``; several measurements, such as those at points along an optimisation, give the mean of
    their exponents.

    The interval is a studentised bootstrap (``resamples`` times, from ``seed``) that draws whole blocks, the same ones
    at every level and point, because these share their noise. With a heavy tail, the estimate and its standard error
    are both too small when the rare path is missing, and an interval of two standard errors covers the truth less often
    than it should. Studentising corrects for that. The interval covers sampling errors, not curvature: a rate that
    changes with ``drop`` is not yet asymptotic.

    >>> import jax.numpy as jnp, jax.random as jr
    >>> from dmlmc import QuadraticLoss, measure_levels
    >>> quadratic = QuadraticLoss(dimension=2, L=2.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0))
    >>> found = measure_levels(quadratic, jnp.ones(2), 1.1 * jnp.ones(2), jr.key(0), max_level=3, samples=4096)
    >>> fitted = fit_rates(found)
    >>> abs(fitted.b.estimate - 1.8) < 0.1, round(fitted.d.estimate, 3)
    (True, 1.0)
    """
    several: list[Any] = list(measured) if np.iterable(measured) else [measured]
    for one in several or [measured]:
        instance("fit_rates: measured", one, Measurement, ", made by dmlmc.measure_levels(...), or a list of them")
    levels, blocks = (several[0].blocks[name].nunique() for name in ("level", "block"))
    drop = integer("fit_rates: drop", drop, minimum=0)
    resamples = integer("fit_rates: resamples", resamples, minimum=20)
    if levels - drop < 2:
        raise ValueError(f"fit_rates: drop must leave two levels or more of the {levels} measured, got {drop}.")
    if any(one.blocks.shape != several[0].blocks.shape for one in several):
        raise ValueError("fit_rates: measured must have the same levels and blocks at all points.")
    drawn = np.random.default_rng(integer("fit_rates: seed", seed, minimum=0)).integers(0, blocks, (resamples, blocks))

    def fitted(name: str) -> Interval:
        pivots = [one.blocks.pivot(index="level", columns="block", values=name) for one in several]
        values = np.stack([pivot.to_numpy()[drop:] for pivot in pivots])
        if not np.all(values.mean(axis=2) > 0):
            raise ValueError(f"fit_rates: measured needs a positive {name} at every level fitted, got none at some.")
        return _decay_rate(values, drawn)

    costs = np.log2(several[0].levels.steps.to_numpy()[drop:])
    c = float(_slope_weights(np.ones(levels - drop)) @ costs)
    return FittedRates(fitted("variance"), Interval(c, c, c), fitted("smoothness"))


def _decay_rate(
    values: Float[np.ndarray, "points levels blocks"], drawn: Int[np.ndarray, "resamples blocks"]
) -> Interval:
    """The exponent of a decay and its interval, from block means and the blocks to resample."""
    means, count = values.mean(axis=2), values.shape[2]
    relative = np.maximum(np.std(values, axis=2, ddof=1) / means, 1e-3)
    weights = np.stack([_slope_weights(row**-2.0) for row in relative]) / len(values)

    def exponent(means):  # (points, levels, ...) -> (...)
        # A resampled mean is 0 only where a single block makes all of it.
        return -np.einsum("pl,pl...->...", weights, np.log2(np.maximum(means, np.finfo(float).tiny)))

    def jackknife_error(values):  # (points, levels, ..., blocks) -> (...)
        without_one = (values.sum(axis=-1, keepdims=True) - values) / (count - 1)
        return np.std(exponent(without_one), axis=-1) * math.sqrt(count - 1)

    estimate, error = float(exponent(means)), float(jackknife_error(values))
    if error < 1e-5:  # exact, up to the rounding of single precision
        return Interval(estimate, estimate, estimate)
    again = values[:, :, drawn]
    ratios = (exponent(again.mean(axis=-1)) - estimate) / np.maximum(jackknife_error(again), 1e-9)
    half = error * float(np.quantile(np.abs(ratios), 0.95))
    return Interval(estimate, estimate - half, estimate + half)


def _slope_weights(weights: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " levels"]:
    """What to multiply values at 0, 1, 2, ... with to get the slope of their weighted least squares line."""
    position = np.arange(len(weights))
    centred = position - weights @ position / weights.sum()
    return weights * centred / (weights @ centred**2)
