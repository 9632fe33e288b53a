"""Points along a run of SGD, to measure at."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import Array, Key, PyTree

from dmlmc._internal import array_checks, checks
from dmlmc.estimators import GradientEstimator, check_estimator
from dmlmc.training.step import sgd_steps, start_run


class Iterate(NamedTuple):
    """Two consecutive points of an optimisation: those before and after step ``step``."""

    step: int
    params: PyTree
    following: PyTree


def iterates(
    estimator: GradientEstimator,
    optimiser: optax.GradientTransformation,
    params: PyTree,
    stops: Sequence[int],
    key: Key[Array, ""],
) -> list[Iterate]:
    """Run SGD and keep the parameters before and after each of the steps ``stops``.

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

    @jax.jit
    def advance(run, first, last):
        return sgd_steps(estimator, optimiser, static, run, first, last, key)

    run, step, met = start_run(estimator, optimiser, trainable, static), 0, []
    for stop in listed:
        run = advance(run, step, stop)
        following = advance(run, stop, stop + 1)
        met.append(Iterate(stop, eqx.combine(run.params, static), eqx.combine(following.params, static)))
        run, step = following, stop + 1
    return met
