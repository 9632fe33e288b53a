"""The one SGD step of the project: training, iterates, sweeps and the runs beside the bounds all take it."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, Key, PyTree

from dmlmc.estimators import GradientEstimator


class Run(NamedTuple):
    """What a run carries from one step to the next."""

    params: PyTree  # its arrays of floats alone, see eqx.partition
    optimiser_state: PyTree
    estimator_state: PyTree
    diverged_at: Int[Array, "..."]  # the first step with a gradient that is not finite, or -1


def start_run(
    estimator: GradientEstimator, optimiser: optax.GradientTransformation, trainable: PyTree, static: PyTree
) -> Run:
    """A run before its first step. ``trainable`` and ``static`` are the two parts of the parameters."""
    state = estimator.init(eqx.combine(trainable, static))
    return Run(trainable, optimiser.init(trainable), state, jnp.array(-1))


def sgd_step(
    estimator: GradientEstimator,
    optimiser: optax.GradientTransformation,
    static: PyTree,
    run: Run,
    step: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[Run, Any]:
    """The run after a step, and the gradient it used."""
    params = eqx.combine(run.params, static)
    grads, estimator_state = estimator.checked(params, run.estimator_state, step, key)
    updates, optimiser_state = optimiser.update(grads, run.optimiser_state, run.params)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(grads)]))
    diverged_at = jnp.where((run.diverged_at < 0) & ~finite, step, run.diverged_at)
    return Run(optax.apply_updates(run.params, updates), optimiser_state, estimator_state, diverged_at), grads


def sgd_steps(
    estimator: GradientEstimator,
    optimiser: optax.GradientTransformation,
    static: PyTree,
    run: Run,
    first: Any,
    last: Any,
    key: Key[Array, ""],
) -> Run:
    """The run after the steps ``first``, ..., ``last - 1``.

    The bounds may be traced: one compiled program runs any number of steps. Leave them unbatched when mapping over
    seeds. Then the step is not batched either, and a level that is not due is skipped by a real branch.
    """
    return jax.lax.fori_loop(
        first, last, lambda step, run: sgd_step(estimator, optimiser, static, run, step, key)[0], run
    )
