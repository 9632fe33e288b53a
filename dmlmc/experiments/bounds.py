"""Tests of the theorem on quadratic losses: tidy tables of runs, exact recursions and bounds."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pandas as pd
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from dmlmc._internal.checks import integer
from dmlmc.estimators import GradientEstimator, delayed_mlmc, mlmc, naive
from dmlmc.losses import QuadraticLoss
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, METHODS, MLMC, NAIVE
from dmlmc.theory.complexity import GUARANTEES, SHARPER, guarantee, guaranteed_step_size
from dmlmc.theory.quadratic import LinearModel, delayed_model, exact_moments, linear_model
from dmlmc.theory.staleness import safe_step_size
from dmlmc.theory.theorem import Problem
from dmlmc.training.step import sgd_step, start_run

ExactGradient = Callable[[Float[Array, " dimension"]], Float[Array, " dimension"]]


def measured_run(
    estimator: GradientEstimator,
    gradient: ExactGradient,
    params: Float[Array, " dimension"],
    step_sizes: ArrayLike,
    steps: int,
    keys: Key[Array, " seeds"],
) -> tuple[Float[np.ndarray, "sizes seeds {steps}"], Float[np.ndarray, "sizes seeds {steps}"]]:
    """``|grad F(x_t)|^2`` and ``|grad F(x_t) - g_t|^2`` along runs of SGD.

    ``gradient(params)`` is the exact gradient of F. All step sizes and seeds run in one compiled program.
    """
    sizes, steps = jnp.atleast_1d(jnp.asarray(step_sizes)), integer("measured_run: steps", steps, minimum=1)

    def run(size, key):
        optimiser = optax.sgd(size)

        def measured_step(run, step):
            exact = gradient(run.params)
            run, used = sgd_step(estimator, optimiser, None, run, step, key)
            return run, (jnp.sum(exact**2), jnp.sum((exact - used) ** 2))

        return jax.lax.scan(measured_step, start_run(estimator, optimiser, params, None), jnp.arange(steps))[1]

    over_seeds = jax.vmap(run, in_axes=(None, 0))
    squares, errors = eqx.filter_jit(jax.vmap(over_seeds, in_axes=(0, None)))(sizes, keys)
    return np.asarray(squares, dtype=float), np.asarray(errors, dtype=float)


def quadratic_setup(
    problem: Problem, method: str, samples: int, dimension: int = 4
) -> tuple[GradientEstimator, ExactGradient, Float[Array, " {dimension}"], LinearModel]:
    """Estimator, exact gradient, start and linear model of a method on the quadratic loss of a problem."""
    loss = QuadraticLoss(dimension, problem.L, problem.M, problem.rates)
    level, plan = problem.max_level, problem.plan(samples)
    estimators = {NAIVE: lambda: naive(loss, level, samples), MLMC: lambda: mlmc(loss, plan)}
    estimator = estimators.get(method, lambda: delayed_mlmc(loss, plan))()
    start = jnp.full(dimension, math.sqrt(2 * problem.gap / loss.curvature(level) / dimension))
    return estimator, lambda params: loss.curvature(level) * params, start, linear_model(problem, method, samples)


def bound_check(problem: Problem, samples: int, step_counts: Sequence[int], seeds: int) -> pd.DataFrame:
    """Measured and exact average of ``|grad F|^2``, and its bound, at the step size each guarantee allows.

    One row per guarantee and number of steps. ``measured`` is a mean over seeds, ``error`` its standard error.
    """
    rows = []
    for method in METHODS:
        estimator, gradient, start, model = quadratic_setup(problem, method, samples)
        names = [name for name in GUARANTEES if name in (method, f"{method}, sharper")]
        cases = list(itertools.product(names, step_counts))
        sizes = [guaranteed_step_size(problem, name, samples, steps) for name, steps in cases]
        squares, _ = measured_run(estimator, gradient, start, sizes, max(step_counts), jr.split(jr.key(1), seeds))
        exact, _ = exact_moments(model, problem.gap, sizes, max(step_counts))
        for row, (name, steps) in enumerate(cases):
            means = squares[row, :, :steps].mean(axis=1)
            found = guarantee(problem, name, samples)(steps)
            rows.append(
                {"guarantee": name, "max_level": problem.max_level, "d": problem.rates.d, "samples": samples}
                | {"steps": steps, "step_size": sizes[row], "measured": means.mean()}
                | {"error": means.std(ddof=1) / math.sqrt(seeds), "exact": exact[row, :steps].mean()}
                | {"bound": found.total, "start": found.start, "noise": found.noise}
            )
    return pd.DataFrame(rows)


def exact_check(problems: Sequence[Problem], samples: Sequence[int], step_counts: Sequence[int]) -> pd.DataFrame:
    """``bound_check`` without runs: exact averages and bounds for every problem, batch and number of steps."""
    rows = []
    for problem, size, steps, name in itertools.product(problems, samples, step_counts, GUARANTEES):
        model = linear_model(problem, DELAYED if name == SHARPER else name, size)
        step_size = guaranteed_step_size(problem, name, size, steps)
        exact = exact_moments(model, problem.gap, step_size, steps)[0].mean()
        found = guarantee(problem, name, size)(steps).total
        rows.append(
            {"guarantee": name, "max_level": problem.max_level, "d": problem.rates.d, "samples": size}
            | {"steps": steps, "step_size": step_size, "exact": exact, "bound": found}
        )
    return pd.DataFrame(rows)


def span_to_reach(problem: Problem, method: str, step_size: float, target: float, most: int = 100_000) -> float:
    """Mean span per step times the fewest steps T for which the mean of ``|grad F|^2`` over t < T is at most target.

    Computed exactly, on the quadratic loss without noise. NaN if ``most`` steps are not enough.
    """
    plan = problem.plan(1e15)
    plan = plan if method == DELAYED else plan.without_delay()
    steps = 64
    while steps <= most:
        squares, _ = exact_moments(delayed_model(problem, plan), problem.gap, step_size, steps)
        reached = np.flatnonzero(np.cumsum(squares) / np.arange(1, steps + 1) <= target)
        if reached.size:
            return float(reached[0] + 1) * plan.mean_span()
        steps *= 8
    return math.nan


def reached_spans(problem: Problem, max_levels: Sequence[int], target: float) -> pd.DataFrame:
    """The span to an accuracy by exact runs, of MLMC and delayed MLMC, each at the largest step size known to be safe.

    The columns are ``max_level, guarantee, span``, where the guarantee is the one that allows the step size.
    """
    rows = []
    for level in max_levels:
        here = replace(problem, max_level=level)
        safe = safe_step_size(here, here.plan(1e15))
        rows.append((level, MLMC, span_to_reach(here, MLMC, 1 / here.L_prime, target)))
        rows.append((level, SHARPER, span_to_reach(here, DELAYED, safe, target)))
    return pd.DataFrame(rows, columns=["max_level", "guarantee", "span"])


def estimated_constants(table: pd.DataFrame, rates: Rates) -> tuple[float, float]:
    """L and M at one point, from a table of ``dmlmc.measure_levels``: the smallest values that fit all its levels.

    L is taken from the pathwise smoothness, which is at least that of the mean.

    >>> table = pd.DataFrame({"level": [0, 1], "smoothness": [3.0, 2.0], "variance": [1.0, 0.1]})
    >>> estimated_constants(table, Rates(b=1.0, c=0.5, d=1.0))
    (4.0, 1.0)
    """
    L = np.max(table.smoothness * 2.0 ** (rates.d * table.level))
    M = np.max(table.variance * 2.0 ** (rates.b * table.level))
    return float(L), float(M)
