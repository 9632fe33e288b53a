"""What a callback gets at each evaluation, and where a run starts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PyTree

from dmlmc._internal import array_checks
from dmlmc._internal.checks import integer
from dmlmc.training.record import COLUMNS


class Evaluation(NamedTuple):
    """A run at a step at which it is evaluated: what ``callback`` of ``dmlmc.train`` gets, and where a run can go on.

    ``step``, ``params``, ``loss``, ``metrics``, ``optimiser_state`` and ``estimator_state`` are those of that step,
    ``work``, ``span`` and ``seconds`` those spent until then. With an array of keys, all but ``step`` and the costs
    have a leading axis over seeds. The loss and the metrics are NumPy's; the loss is NaN without a validation.

    >>> import dmlmc, optax
    >>> rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    >>> first, second = (
    ...     dmlmc.delayed_mlmc(loss, dmlmc.plan(rates, max_level=2, level0_samples=64, periods=periods))
    ...     for periods in ([1, 2, 8], [1, 2, 4])
    ... )
    >>> optimiser, key, seen = optax.adam(0.1), jax.random.key(0), []
    >>> _ = dmlmc.train(first, optimiser, jnp.ones(2), 20, key, callback=seen.append, progress=False)
    >>> _, record = dmlmc.train(second, optimiser, seen[-1], 40, key, evaluate_every=10, progress=False)
    >>> record.step.tolist(), bool(record.span[0] == seen[-1].span)
    ([20, 30, 40], True)
    """

    step: int
    params: PyTree
    loss: Float[np.ndarray, "..."] | float
    metrics: dict[str, Any]
    work: float
    span: float
    seconds: float
    optimiser_state: PyTree
    estimator_state: PyTree


class Start(NamedTuple):
    """Where the seeds of a run start. Arrays have a leading axis over seeds; a state that is None is a fresh one."""

    params: PyTree
    optimiser_state: PyTree = None
    estimator_state: PyTree = None
    step: int = 0
    work: float = 0.0
    span: float = 0.0
    seconds: float = 0.0


def start_of(
    name: str,
    params: PyTree,
    optimiser: optax.GradientTransformation,
    key: Key[Array, ""] | Key[Array, " seeds"],
    steps: int,
    params_per_seed: bool,
) -> Start:
    """The start for parameters or an ``Evaluation``, with an axis over seeds."""
    if not isinstance(params, Evaluation):
        return Start(one_start_per_seed(name, params, key.size, params_per_seed))
    given = params
    if np.shape(given.loss) != key.shape:
        raise ValueError(
            f"{name}: params must be an Evaluation of as many seeds as there are keys, got seeds of shape "
            f"{np.shape(given.loss)} and keys of shape {key.shape}."
        )
    if steps < integer(f"{name}: params.step", given.step, minimum=0):
        raise ValueError(f"{name}: steps must be at least {given.step}, where params is already, got {steps}.")
    if key.ndim == 0:
        given = with_seeds(given)
    trainable = eqx.filter(given.params, eqx.is_inexact_array)
    array_checks.alike(
        f"{name}: params.optimiser_state",
        given.optimiser_state,
        jax.eval_shape(jax.vmap(optimiser.init), trainable),
        "that of the optimiser (give params.params to start with a fresh one)",
    )
    costs = (float(cost) for cost in (given.work, given.span, given.seconds))
    return Start(given.params, given.optimiser_state, given.estimator_state, int(given.step), *costs)


def one_start_per_seed(name: str, params: PyTree, seeds: int, params_per_seed: bool) -> PyTree:
    """The parameters with a leading seed axis on every array that is trained."""
    trainable, static = eqx.partition(params, eqx.is_inexact_array)
    if not params_per_seed:
        return eqx.combine(jax.tree.map(lambda leaf: jnp.repeat(leaf[None], seeds, axis=0), trainable), static)
    for leaf in jax.tree.leaves(trainable):
        if leaf.ndim == 0 or leaf.shape[0] != seeds:
            raise ValueError(
                f"{name}: with params_per_seed=True every array of params needs a leading axis of length {seeds}, "
                f"one entry per key, got shape {leaf.shape}."
            )
    return params


def with_seeds(given: Evaluation) -> Evaluation:
    """The evaluation of a single seed with an axis over seeds."""
    return _each(given, lambda leaf: leaf[None])


def without_seeds(given: Evaluation) -> Evaluation:
    """The evaluation of a single seed without its axis over seeds."""
    return _each(given, lambda leaf: leaf[0])


def _each(given: Evaluation, change: Callable[[Any], Any]) -> Evaluation:
    states = jax.tree.map(lambda leaf: change(jnp.asarray(leaf)), (given.optimiser_state, given.estimator_state))
    params = jax.tree.map(lambda leaf: change(leaf) if eqx.is_inexact_array(leaf) else leaf, given.params)
    metrics = {name: change(np.asarray(value)) for name, value in given.metrics.items()}
    return given._replace(
        params=params,
        loss=change(np.asarray(given.loss)),
        metrics=metrics,
        optimiser_state=states[0],
        estimator_state=states[1],
    )


def evaluated(
    name: str, validation: Callable[[Any], Any] | None, metrics: Callable[[Any], Any] | None
) -> Callable[[Any], tuple[Array, dict[str, Array]]] | None:
    """The loss and the metrics as one function of the parameters, which checks what they return as it is traced."""
    if validation is None and metrics is None:
        return None

    def evaluate(params):
        loss = jnp.array(jnp.nan)
        if validation is not None:
            loss = array_checks.returned(f"{name}: validation", validation(params), (), float)
        return loss, {} if metrics is None else _named_scalars(f"{name}: metrics", metrics(params))

    return evaluate


def _named_scalars(name: str, found: Any) -> dict[str, Array]:
    if not isinstance(found, dict):
        raise TypeError(f"{name} must return a dict of scalars, such as {{'drift': ...}}, got {found!r}.")
    for key in found:
        if not isinstance(key, str) or not key or key in COLUMNS:
            raise ValueError(
                f"{name} must be named by text that is no column of the record ({', '.join(COLUMNS)}), got {key!r}."
            )
    return {key: array_checks.returned(f"{name}[{key!r}]", value, (), float) for key, value in found.items()}
