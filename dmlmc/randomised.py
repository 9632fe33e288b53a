"""Randomised MLMC: the unbiased rival of delayed MLMC. Chance decides when a level is computed, a weight makes up."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh

from dmlmc._internal.array_checks import parameters, random_key
from dmlmc._internal.checks import integer
from dmlmc.estimators import GradientEstimator, constant, level_gradients, on_mesh, traced_step
from dmlmc.losses import MultilevelLoss
from dmlmc.schedule import RANDOMISED, Plan


def randomised_mlmc(loss: MultilevelLoss, plan: Plan, *, seed: int = 0, mesh: Mesh | None = None) -> GradientEstimator:
    """Level l is computed with probability ``1 / p_l`` and multiplied by p_l, the period of the plan, or left out.

    The gradient is unbiased and never stale, and nothing is held. Its variance is ``sum p_l V_l / N_l``, the long-run
    variance of delayed MLMC, plus ``sum (p_l - 1) |grad D_l F|^2``, where delayed MLMC has a bias instead. The mean
    work is that of delayed MLMC. ``work`` and ``span`` of the estimator are expected values, the same at every step.

    Whether a level is computed at a step is drawn from ``seed`` and the step alone. So it is the same for all runs
    that are batched over seeds, and a level that is not drawn costs nothing. Such runs have independent noise, but they
    leave out levels at the same steps.

    ``loss`` is any ``dmlmc.MultilevelLoss``, ``plan`` comes from ``dmlmc.plan``. ``mesh``: devices that share samples.

    >>> import dmlmc
    >>> rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    >>> estimator = randomised_mlmc(loss, dmlmc.plan(rates, max_level=2, level0_samples=8))
    >>> grads, state = estimator.estimate(jnp.ones(2), estimator.init(jnp.ones(2)), 0, jr.key(0))
    >>> grads.shape, estimator.work(0), estimator.span(0)
    ((2,), 32.0, 2.125)
    """
    gradients = level_gradients("randomised_mlmc", loss, plan)
    plan = replace(plan, fine_paths=loss.fine_paths)
    seed = integer("randomised_mlmc: seed", seed, minimum=0)
    weights = [float(period) for period in plan.periods]

    def init(params):
        parameters("randomised_mlmc: params", params)
        return ()

    @eqx.filter_jit
    def estimate(params, state, step, key):
        parameters("randomised_mlmc: params", params)
        step_key = jr.fold_in(random_key("randomised_mlmc: key", key), step)
        drawn = jr.uniform(jr.fold_in(jr.key(seed), step), (len(weights),))
        zeros = jax.tree.map(jnp.zeros_like, eqx.filter(params, eqx.is_inexact_array))
        terms = []
        for level, (gradient, weight) in enumerate(zip(gradients, weights, strict=True)):
            # A real branch, because nothing in ``drawn`` depends on the seed of a run.
            def compute(gradient=gradient, level=level, weight=weight):
                return jax.tree.map(lambda leaf: weight * leaf, gradient(params, jr.fold_in(step_key, level)))

            terms.append(compute() if weight == 1 else jax.lax.cond(drawn[level] < 1 / weight, compute, lambda: zeros))
        return jax.tree.map(lambda *leaves: sum(leaves), *terms), state

    costs = constant(plan.mean_work()), constant(expected_span(plan))
    return on_mesh(mesh, GradientEstimator(init, traced_step(estimate), RANDOMISED, *costs))


def expected_span(plan: Plan) -> float:
    """Span of the highest level that is drawn, in the mean: it is level l with probability 1/p_l if none above is.

    >>> from dmlmc import Rates, plan
    >>> expected_span(plan(Rates(b=1.8, c=1.0, d=1.0), max_level=2, level0_samples=8))
    2.125
    """
    chances = 1 / np.asarray(plan.periods, dtype=float)
    none_above = np.cumprod(np.append(1 - chances[1:], 1.0)[::-1])[::-1]
    return float(np.sum(np.asarray(plan.costs) * chances * none_above))
