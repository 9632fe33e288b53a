"""Gradient estimators for SGD: naive, MLMC and delayed MLMC."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import Array
from jax.sharding import Mesh

from dmlmc._internal.array_checks import alike, parameters, random_key, returned, step_index
from dmlmc._internal.checks import function, instance, integer, numbers, positive
from dmlmc.devices import SAMPLES, WHOLE, check_mesh, devices_sharing
from dmlmc.losses import MultilevelLoss
from dmlmc.schedule import Plan, level_cost


def _constant(value: float) -> Callable[[Any], Any]:
    return lambda step: np.full(np.shape(step), value) if np.ndim(step) else value


class GradientEstimator(NamedTuple):
    """A pair of pure functions, and what a step costs.

    - ``init(params) -> state``: the state before step 0, at which every level is refreshed.
    - ``estimate(params, state, step, key) -> (grads, state)``: the gradient of step ``step``. ``key`` is the key of
      the whole run: fresh noise for each step and level is folded out of it, so pass the same key at every
      step, and steps 0, 1, 2, ... in order. ``grads`` is shaped like ``params`` (``None`` for leaves that are
      not floating point arrays) and fits any optax optimiser.
    - ``method``: the name under which a run is recorded.
    - ``work(step)`` and ``span(step)``: its cost at a step or an array of steps, in level-0 units. An estimator
      of your own that does not say is recorded with NaN.
    - ``mesh``: the devices that share the samples of every estimate, or None.

    Both functions can be compiled, batched over seeds with ``jax.vmap`` (leave ``step`` unbatched, or every
    level is computed at every step) and put in a ``lax.scan``. In a ``jax.shard_map`` of your own with an axis
    called "samples", ``estimate`` computes the share of its device and returns the gradient of all.

    >>> import dmlmc
    >>> rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    >>> estimator = dmlmc.delayed_mlmc(loss, dmlmc.plan(rates, max_level=2, level0_samples=16))
    >>> params = jnp.ones(2)
    >>> state = estimator.init(params)
    >>> for step in range(3):
    ...     grads, state = estimator.estimate(params, state, step, jr.key(0))
    ...     params = params - 0.1 * grads
    >>> estimator.method, params.shape, estimator.span(np.arange(3)).tolist()
    ('delayed MLMC', (2,), [4.0, 1.0, 2.0])
    """

    init: Callable[[Any], Any]
    estimate: Callable[[Any, Any, Any, Array], tuple[Any, Any]]
    method: str = "custom"
    work: Callable[[Any], Any] = _constant(math.nan)
    span: Callable[[Any], Any] = _constant(math.nan)
    mesh: Mesh | None = None

    def checked(self, params: Any, state: Any, step: Any, key: Array) -> tuple[Any, Any]:
        """What ``estimate`` returns, or an error if that fits neither ``params`` nor ``state``."""
        found = self.estimate(params, state, step, key)
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError(f"GradientEstimator: estimate must return a pair (grads, state), got {found!r}.")
        floats = eqx.filter(params, eqx.is_inexact_array)
        alike("GradientEstimator: grads", found[0], floats, "like the float arrays of params", dtypes=False)
        alike("GradientEstimator: state", found[1], state, "like the state of the step before")
        return found


def naive(
    loss: MultilevelLoss, level: int, samples: int, *, c: float = 1.0, mesh: Mesh | None = None
) -> GradientEstimator:
    """The mean gradient of ``samples`` independent paths, all at ``level``. ``c`` is the cost rate, for the accounts.

    ``loss`` is any ``dmlmc.MultilevelLoss``; ``plan.naive_samples()`` gives as many paths as match a plan's variance.
    ``mesh``: devices that share the samples, see ``dmlmc.mesh``. The samples are the same on any.

    >>> import dmlmc
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=dmlmc.Rates(b=1.8, c=1.0, d=1.0))
    >>> estimator = naive(loss, level=6, samples=148)
    >>> params = jnp.ones(2)
    >>> grads, state = estimator.estimate(params, estimator.init(params), 0, jr.key(0))
    >>> grads.shape, estimator.work(0), estimator.span(0)
    ((2,), 9472.0, 64.0)
    """
    instance("naive: loss", loss, MultilevelLoss, ", such as dmlmc.SDELoss(...)")
    level = integer("naive: level", level, minimum=0)
    samples = integer("naive: samples", samples, minimum=1)
    span = level_cost(level, positive("naive: c", c))
    gradient = _mean_gradient(loss.losses, loss, level, samples)

    def init(params):
        parameters("naive: params", params)
        return ()

    @eqx.filter_jit
    def estimate(params, state, step, key):
        parameters("naive: params", params)
        random_key("naive: key", key)
        return gradient(params, jr.fold_in(key, step)), state

    work = _constant(samples * span)
    return _on_mesh(mesh, GradientEstimator(init, _traced_step(estimate), "naive", work, _constant(span)))


def mlmc(loss: MultilevelLoss, plan: Plan, *, mesh: Mesh | None = None) -> GradientEstimator:
    """Multilevel Monte Carlo: the sum over levels of the mean gradient of ``plan.samples[l]`` coupled pairs.

    It is delayed MLMC with every period 1, and carries no state. ``loss`` is any ``dmlmc.MultilevelLoss``, ``plan``
    comes from ``dmlmc.plan``; its periods do not matter here. ``mesh``: devices that share the samples.

    >>> import dmlmc
    >>> rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    >>> estimator = mlmc(loss, dmlmc.plan(rates, max_level=6, level0_samples=512))
    >>> estimator.init(jnp.ones(2)), estimator.span(1)
    ((), 64.0)
    """
    instance("mlmc: plan", plan, Plan, ", made by dmlmc.plan(...)")
    return delayed_mlmc(loss, plan.without_delay(), mesh=mesh)._replace(method="MLMC")


def delayed_mlmc(loss: MultilevelLoss, plan: Plan, *, mesh: Mesh | None = None) -> GradientEstimator:
    """Delayed MLMC, the paper's Algorithm 1: level l is refreshed every ``plan.periods[l]`` steps, else reused.

    ``loss`` is any ``dmlmc.MultilevelLoss``, ``plan`` comes from ``dmlmc.plan``. The state is a tuple with the last
    gradient of each level that can be stale (period above 1). ``mesh``: devices that share the samples.

    >>> import dmlmc
    >>> rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    >>> estimator = delayed_mlmc(loss, dmlmc.plan(rates, max_level=6, level0_samples=512))
    >>> len(estimator.init(jnp.ones(2))), [float(estimator.span(step)) for step in range(5)]
    (6, [64.0, 1.0, 2.0, 1.0, 4.0])
    """
    instance("delayed_mlmc: loss", loss, MultilevelLoss, ", such as dmlmc.SDELoss(...)")
    instance("delayed_mlmc: plan", plan, Plan, ", made by dmlmc.plan(...)")
    gradients = [_mean_gradient(partial(loss.differences, level=l), loss, l, n) for l, n in enumerate(plan.samples)]
    stale_levels = [level for level, period in enumerate(plan.periods) if period > 1]

    def init(params):
        parameters("delayed_mlmc: params", params)
        zeros = jax.tree.map(jnp.zeros_like, eqx.filter(params, eqx.is_inexact_array))
        return tuple(zeros for _ in stale_levels)

    @eqx.filter_jit
    def estimate(params, state, step, key):
        alike("delayed_mlmc: state", state, init(params), "that of init(params) or of the step before")
        step_key = jr.fold_in(random_key("delayed_mlmc: key", key), step)
        cached = dict(zip(stale_levels, state, strict=True))
        latest = []
        for level, (gradient, period) in enumerate(zip(gradients, plan.periods, strict=True)):
            # A real branch: nothing of the level is computed at a step at which it is not due.
            def refresh(gradient=gradient, level=level):
                return gradient(params, jr.fold_in(step_key, level))

            period = min(period, np.iinfo(np.int32).max)  # a longer one than any run is as good
            if period == 1:
                latest.append(refresh())
            else:
                latest.append(jax.lax.cond(step % period == 0, refresh, lambda level=level: cached[level]))
        grads = jax.tree.map(lambda *terms: sum(terms), *latest)
        return grads, tuple(latest[level] for level in stale_levels)

    return _on_mesh(mesh, GradientEstimator(init, _traced_step(estimate), "delayed MLMC", plan.work, plan.span))


def _mean_gradient(function, loss: MultilevelLoss, level: int, samples: int):
    """``gradient(params, key)`` of the mean of ``function(params, noises)`` over fresh noise."""

    @eqx.filter_grad
    def gradient_of_chunk(params, keys, weights):
        losses = returned(f"{type(loss).__name__}: losses", function(params, loss.batch(keys, level)), keys.shape)
        return jnp.dot(weights.astype(losses.dtype), losses)

    def gradient(params, key):
        devices = devices_sharing()
        device = 0 if devices is None else jax.lax.axis_index(SAMPLES)
        slots = _slots(samples, devices or 1, loss.samples_at_once(level))
        source, weights = (jnp.asarray(of_all)[device] for of_all in slots)
        # Forward and backward pass of a chunk follow each other, so its intermediates are still in the cache.
        inputs = (jr.split(key, samples)[source], weights)
        zeros = jax.tree.map(jnp.zeros_like, eqx.filter(params, eqx.is_inexact_array))
        total, _ = jax.lax.scan(
            lambda total, chunk: (jax.tree.map(jnp.add, total, gradient_of_chunk(params, *chunk)), None), zeros, inputs
        )
        return total if devices is None else jax.lax.psum(total, SAMPLES)

    return gradient


def _slots(samples: int, devices: int, at_once: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Which sample each slot of each chunk of each device computes, and its weight in the mean.

    Devices and chunks are equally long. Slots that are left over repeat the last sample, without weight.

    >>> source, weights = _slots(samples=5, devices=2, at_once=2)
    >>> source.tolist(), (5 * weights).tolist()
    ([[[0, 1], [2, 3]], [[4, 4], [4, 4]]], [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]])
    """
    share = math.ceil(samples / devices)
    chunks = math.ceil(share / (at_once or share))
    index = np.arange(devices * chunks * math.ceil(share / chunks)).reshape(devices, chunks, -1)
    return np.minimum(index, samples - 1), (index < samples) / samples


def _on_mesh(mesh: Mesh | None, estimator: GradientEstimator) -> GradientEstimator:
    """The estimator with its samples shared by the devices of a mesh."""
    if mesh is None:
        return estimator
    mesh = check_mesh(estimator.method, mesh)
    if SAMPLES not in mesh.axis_names:
        return estimator._replace(mesh=mesh)

    @eqx.filter_jit
    def estimate(params, state, step, key):
        if devices_sharing() is not None:  # dmlmc.train has spread itself over the mesh already
            return estimator.estimate(params, state, step, key)
        arrays, static = eqx.partition(params, eqx.is_array)
        on_device = jax.shard_map(
            lambda arrays, *rest: estimator.estimate(eqx.combine(arrays, static), *rest),
            mesh=mesh, in_specs=WHOLE, out_specs=WHOLE, check_vma=False,
        )  # fmt: skip
        return on_device(arrays, state, step, key)

    return estimator._replace(estimate=_traced_step(estimate), mesh=mesh)


def _traced_step(estimate):
    # A Python integer would be a compile-time constant, hence a new compilation at every step.
    return lambda params, state, step, key: estimate(params, state, step_index("estimate: step", step), key)


def check_estimator(name: str, estimator: Any) -> None:
    """An estimator, perhaps the user's own: what is wrong with it should show before a long run, not after."""
    instance(name, estimator, GradientEstimator, ", made by dmlmc.delayed_mlmc(...) for one")
    function(f"{name}.init", estimator.init, "params")
    function(f"{name}.estimate", estimator.estimate, "params", "state", "step", "key")
    for field, cost in (("work", estimator.work), ("span", estimator.span)):
        function(f"{name}.{field}", cost, "step")
        per_step = numbers(f"{name}.{field}", np.atleast_1d(cost(np.arange(3))))
        if per_step.size not in (1, 3):
            raise ValueError(f"{name}.{field} must return one number per step, got {per_step.size} for 3 steps.")
