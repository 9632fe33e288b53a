"""The points that an optimisation passes through, to look at what it met on its way."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import optax
from jax import Array

from dmlmc._internal import array_checks, checks
from dmlmc.estimators import GradientEstimator, check_estimator


class Iterate(NamedTuple):
    """Two consecutive points of an optimisation: those before and after step ``step``."""

    step: int
    params: Any
    following: Any


def iterates(
    estimator: GradientEstimator,
    optimiser: optax.GradientTransformation,
    params: Any,
    stops: Sequence[int],
    key: Array,
) -> list[Iterate]:
    """Run SGD and keep the parameters before and after each of the steps ``stops``, to measure at what it meets.

    ``estimator``, ``optimiser``, ``params`` and ``key`` are those of ``dmlmc.train``, ``stops`` increasing steps. Each
    of the points returned has ``step``, ``params`` before and ``following`` after it.

    >>> from dmlmc import QuadraticLoss, Rates, naive
    >>> import jax.numpy as jnp, jax.random as jr
    >>> quadratic = QuadraticLoss(dimension=1, L=1.0, M=1e-12, rates=Rates(b=1.8, c=1.0, d=1.0))
    >>> met = iterates(naive(quadratic, level=0, samples=1), optax.sgd(0.5), jnp.ones(1), [0, 2], jr.key(0))
    >>> [(at.step, round(float(at.params[0]), 3), round(float(at.following[0]), 3)) for at in met]
    [(0, 1.0, 0.5), (2, 0.25, 0.125)]
    """
    check_estimator("iterates: estimator", estimator)
    array_checks.parameters("iterates: params", params)
    array_checks.optimiser("iterates: optimiser", optimiser, params)
    array_checks.random_key("iterates: key", key)
    listed = np.asarray(stops).tolist() if np.iterable(stops) else []
    listed = [checks.integer("iterates: stops", stop, minimum=0) for stop in listed]
    if not listed or listed != sorted(set(listed)):
        raise ValueError(f"iterates: stops must be increasing steps, at least one, got {stops!r}.")
    trainable, static = eqx.partition(params, eqx.is_inexact_array)

    def one_step(step, carry):
        trainable, memory, state = carry
        gradients, state = estimator.checked(eqx.combine(trainable, static), state, step, key)
        updates, memory = optimiser.update(gradients, memory, trainable)
        return optax.apply_updates(trainable, updates), memory, state

    advance = jax.jit(lambda carry, first, last: jax.lax.fori_loop(first, last, one_step, carry))
    carry, step, met = (trainable, optimiser.init(trainable), estimator.init(params)), 0, []
    for stop in listed:
        carry = advance(carry, step, stop)
        following = advance(carry, stop, stop + 1)
        met.append(Iterate(stop, eqx.combine(carry[0], static), eqx.combine(following[0], static)))
        carry, step = following, stop + 1
    return met
