"""Gradient estimators for SGD: their interface, and naive, MLMC and delayed MLMC."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key, PyTree

from dmlmc._internal.array_checks import alike, parameters, random_key, step_index
from dmlmc._internal.checks import function, instance, integer, numbers, positive
from dmlmc.devices import SAMPLES, WHOLE, check_mesh, share_call
from dmlmc.gradients import mean_gradient
from dmlmc.held import Held, carried_over, never_computed, of_all_seeds
from dmlmc.losses import MultilevelLoss
from dmlmc.schedule import DELAYED, MLMC, NAIVE, Plan, level_cost


def constant(value: float) -> Callable[[Any], Any]:
    """A cost that is the same at every step."""
    return lambda step: np.full(np.shape(step), value) if np.ndim(step) else value


class GradientEstimator(NamedTuple):
    """A pair of pure functions, and what a step costs.

    - ``init(params) -> state``: the state before step 0, at which every level is refreshed.
    - ``estimate(params, state, step, key) -> (grads, state)``: the gradient of step ``step``. ``key`` is the key of
      the whole run: fresh noise for each step and level is folded out of it, so pass the same key at every
      step, and steps 0, 1, 2, ... in order. ``grads`` is shaped like ``params`` (``None`` for leaves that are
      not floating point arrays) and fits any optax optimiser.
    - ``method``: the name under which a run is recorded.
    - ``work(step)`` and ``span(step)``: its cost at a step or an array of steps, in level-0 units. NaN is recorded
      for an estimator without them.
    - ``mesh``: the devices that share the samples of every estimate, or None.
    - ``state_spec``: how they share the state, a ``jax.sharding.PartitionSpec`` or a PyTree of them. By default every
      device has all of it.

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

    init: Callable[[PyTree], PyTree]
    estimate: Callable[[PyTree, PyTree, Any, Array], tuple[PyTree, PyTree]]
    method: str = "custom"
    work: Callable[[Any], Any] = constant(math.nan)
    span: Callable[[Any], Any] = constant(math.nan)
    mesh: Mesh | None = None
    state_spec: PyTree = WHOLE

    def checked(self, params: PyTree, state: PyTree, step: Any, key: Key[Array, ""]) -> tuple[PyTree, PyTree]:
        """What ``estimate`` returns, or an error if the gradient or the state has the wrong form."""
        found = self.estimate(params, state, step, key)
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError(f"GradientEstimator: estimate must return a pair (grads, state), got {found!r}.")
        floats = eqx.filter(params, eqx.is_inexact_array)
        alike("GradientEstimator: grads", found[0], floats, "like the float arrays of params", dtypes=False)
        alike("GradientEstimator: state", found[1], state, "like the state of the step before")
        return found

    def adopt(self, state: PyTree, params: PyTree) -> PyTree:
        """A state of this estimator with what another one, of another plan, has left in ``state``.

        Levels of delayed MLMC that both hold keep their gradient. Levels that only this one holds are computed at the
        next step, whichever it is, levels that it computes at every step are dropped. A state that does not fit, such
        as that of another method, is replaced by ``init(params)``. Map it over a batch of seeds with ``jax.vmap``.

        >>> import dmlmc
        >>> rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
        >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
        >>> first, second = (
        ...     dmlmc.delayed_mlmc(loss, dmlmc.plan(rates, 3, samples=[8, 4, 2, 1], periods=periods))
        ...     for periods in ([1, 2, 4, 1], [1, 1, 2, 4])
        ... )
        >>> params = jnp.ones(2)
        >>> _, state = first.estimate(params, first.init(params), 0, jr.key(0))
        >>> {level: bool(flag) for level, flag in second.adopt(state, params).computed.items()}
        {2: True, 3: False}
        """
        return carried_over(state, self.init(params))


def naive(
    loss: MultilevelLoss, level: int, samples: int, *, c: float = 1.0, mesh: Mesh | None = None
) -> GradientEstimator:
    """The mean gradient of ``samples`` independent paths, all at ``level``. ``c`` is the cost rate, for the accounts.

    ``loss`` is any ``dmlmc.MultilevelLoss``; ``plan.naive_samples()`` is the number of paths with a plan's variance.
    ``mesh``: devices that share the samples, see ``dmlmc.mesh``. The mesh does not change the samples.

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
    gradient = mean_gradient(loss.losses, loss, level, samples)

    def init(params):
        parameters("naive: params", params)
        return ()

    @eqx.filter_jit
    def estimate(params, state, step, key):
        parameters("naive: params", params)
        random_key("naive: key", key)
        return gradient(params, jr.fold_in(key, step)), state

    work = constant(samples * span)
    return on_mesh(mesh, GradientEstimator(init, traced_step(estimate), NAIVE, work, constant(span)))


def mlmc(loss: MultilevelLoss, plan: Plan, *, mesh: Mesh | None = None) -> GradientEstimator:
    """Multilevel Monte Carlo: the sum over levels of the mean gradient of coupled pairs.

    It computes ``plan.without_delay()``, the MLMC plan with the noise of ``plan``, and carries no state. ``loss`` is
    any ``dmlmc.MultilevelLoss``, ``plan`` comes from ``dmlmc.plan``. ``mesh``: devices that share the samples.

    >>> import dmlmc
    >>> rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    >>> estimator = mlmc(loss, dmlmc.plan(rates, max_level=6, level0_samples=512))
    >>> estimator.init(jnp.ones(2)), estimator.span(1)
    ((), 64.0)
    """
    instance("mlmc: plan", plan, Plan, ", made by dmlmc.plan(...)")
    return multilevel("mlmc", MLMC, loss, plan.without_delay(), mesh)


def delayed_mlmc(loss: MultilevelLoss, plan: Plan, *, mesh: Mesh | None = None) -> GradientEstimator:
    """Delayed MLMC, the paper's Algorithm 1: level l is refreshed every ``plan.periods[l]`` steps, else reused.

    ``loss`` is any ``dmlmc.MultilevelLoss``, ``plan`` comes from ``dmlmc.plan``. The state has the last gradient of
    each level that can be stale (period above 1), and is valid at any step. ``mesh``: devices that share the samples.

    >>> import dmlmc
    >>> rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    >>> estimator = delayed_mlmc(loss, dmlmc.plan(rates, max_level=6, level0_samples=512))
    >>> list(estimator.init(jnp.ones(2)).gradients), [float(estimator.span(step)) for step in range(5)]
    ([1, 2, 3, 4, 5, 6], [64.0, 1.0, 2.0, 1.0, 4.0])
    """
    return multilevel("delayed_mlmc", DELAYED, loss, plan, mesh)


def multilevel(name: str, method: str, loss: MultilevelLoss, plan: Plan, mesh: Mesh | None) -> GradientEstimator:
    """Algorithm 1. ``name`` is the public function that was called, for errors, ``method`` goes to the records."""
    gradients = level_gradients(name, loss, plan)
    plan = replace(plan, fine_paths=loss.fine_paths)
    stale_levels = [level for level, period in enumerate(plan.periods) if period > 1]

    def init(params):
        parameters(f"{name}: params", params)
        return never_computed(stale_levels, params) if stale_levels else ()

    @eqx.filter_jit
    def estimate(params, state, step, key):
        alike(f"{name}: state", state, init(params), "that of init(params) or of the step before")
        step_key = jr.fold_in(random_key(f"{name}: key", key), step)
        latest = []
        for level, (gradient, period) in enumerate(zip(gradients, plan.periods, strict=True)):
            # A real branch: nothing of the level is computed at a step at which it is not due.
            def refresh(gradient=gradient, level=level):
                return gradient(params, jr.fold_in(step_key, level))

            if period == 1:
                latest.append(refresh())
                continue
            cached, computed = state.gradients[level], state.computed[level]
            due = step % min(period, np.iinfo(np.int32).max) == 0  # no run is longer
            fresh = jax.lax.cond(due | ~of_all_seeds(computed), refresh, lambda cached=cached: cached)
            latest.append(jax.tree.map(partial(jnp.where, due | ~computed), fresh, cached))
        grads = jax.tree.map(lambda *terms: sum(terms), *latest)
        held = {level: latest[level] for level in stale_levels}
        return grads, Held(held, dict.fromkeys(stale_levels, jnp.array(True))) if stale_levels else ()

    return on_mesh(mesh, GradientEstimator(init, traced_step(estimate), method, plan.work, plan.span))


def level_gradients(name: str, loss: MultilevelLoss, plan: Plan) -> list[Callable[[PyTree, Key[Array, ""]], PyTree]]:
    """One function of params and key per level: the mean gradient of D_l over the samples of the plan."""
    instance(f"{name}: loss", loss, MultilevelLoss, ", such as dmlmc.SDELoss(...)")
    instance(f"{name}: plan", plan, Plan, ", made by dmlmc.plan(...)")
    return [mean_gradient(partial(loss.differences, level=l), loss, l, n) for l, n in enumerate(plan.samples)]


def on_mesh(mesh: Mesh | None, estimator: GradientEstimator) -> GradientEstimator:
    """The estimator with its samples shared by the devices of a mesh."""
    if mesh is None:
        return estimator
    mesh = check_mesh(estimator.method, mesh)
    if SAMPLES not in mesh.axis_names:
        return estimator._replace(mesh=mesh)
    spec = estimator.state_spec
    init = share_call(mesh, estimator.init, (WHOLE,), spec)
    estimate = share_call(mesh, estimator.estimate, (WHOLE, spec, WHOLE, WHOLE), (WHOLE, spec))
    return estimator._replace(init=init, estimate=traced_step(estimate), mesh=mesh)


def traced_step(estimate):
    """``estimate`` with the step as an array: an int would be a compile-time constant, compiled anew at every step."""
    return lambda params, state, step, key: estimate(params, state, step_index("estimate: step", step), key)


def check_estimator(name: str, estimator: Any) -> None:
    """Check an estimator, perhaps the user's own, before a long run starts."""
    instance(name, estimator, GradientEstimator, ", made by dmlmc.delayed_mlmc(...) for one")
    function(f"{name}.init", estimator.init, "params")
    function(f"{name}.estimate", estimator.estimate, "params", "state", "step", "key")
    for field, cost in (("work", estimator.work), ("span", estimator.span)):
        function(f"{name}.{field}", cost, "step")
        per_step = numbers(f"{name}.{field}", np.atleast_1d(cost(np.arange(3))))
        if per_step.size not in (1, 3):
            raise ValueError(f"{name}.{field} must return one number per step, got {per_step.size} for 3 steps.")
