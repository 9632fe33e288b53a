import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

import dmlmc
from dmlmc.experiments import bounds
from dmlmc.theory.complexity import GUARANTEES, SHARPER, guaranteed_spans
from dmlmc.theory.theorem import Problem


def problem(max_level=1, d=1.0):
    return Problem(1.0, 1.0, dmlmc.Rates(1.8, 1.0, d), max_level, 1.0)


def test_runs_are_below_their_bounds_and_near_the_exact_averages():
    table = bounds.bound_check(problem(), 8, [5, 40], seeds=300)
    assert table.guarantee.unique().tolist() == list(GUARANTEES) and len(table) == 8
    assert np.all(table.measured - 2 * table.error <= table.bound)
    assert np.all(np.abs(table.measured - table.exact) <= 5 * table.error + 1e-5 * table.exact)
    np.testing.assert_allclose(table.start + table.noise, table.bound)


def test_measured_run_agrees_with_train():
    estimator, gradient, start, _ = bounds.quadratic_setup(problem(), "delayed MLMC", 4)
    keys = jr.split(jr.key(5), 3)
    squares, _ = bounds.measured_run(estimator, gradient, start, [0.1], 7, keys)
    params, _ = dmlmc.train(estimator, optax.sgd(0.1), start, 6, keys, progress=False)
    np.testing.assert_allclose(squares[0, :, 6], jnp.sum(gradient(params) ** 2, axis=1), rtol=1e-4)


def test_exact_averages_are_below_every_bound():
    problems = [problem(level, d) for level in (0, 2, 5) for d in (0.5, 1.0, 2.0)]
    table = bounds.exact_check(problems, [4, 500], [1, 7, 60])
    assert len(table) == 9 * 2 * 3 * 4 and np.all(table.exact <= table.bound)


def test_span_to_reach_counts_the_first_mean_below_the_target():
    # Without noise, a step of size 1/2 at level 0 multiplies |grad F|^2, which starts at 2, by 1/4.
    means = np.cumsum(2 * 0.25 ** np.arange(50)) / np.arange(1, 51)
    first = np.flatnonzero(means <= 0.3)[0] + 1
    assert bounds.span_to_reach(problem(0), "MLMC", 0.5, 0.3) == first
    assert np.isnan(bounds.span_to_reach(problem(0), "MLMC", 1e-4, 1e-6, most=100))


def test_delay_saves_more_span_with_more_levels():
    table = bounds.reached_spans(problem(), [1, 4, 6], 0.1).pivot(index="max_level", columns="guarantee", values="span")
    ratio = table["MLMC"] / table[SHARPER]
    assert np.all(ratio > 1) and ratio.is_monotonic_increasing


def test_runs_need_no_more_span_than_is_guaranteed():
    reached = bounds.reached_spans(problem(), [2, 5], 0.05).set_index(["max_level", "guarantee"]).span
    needed = guaranteed_spans(problem(), [2, 5], [0.05]).set_index(["max_level", "guarantee"]).span
    assert np.all(reached <= needed[reached.index])
