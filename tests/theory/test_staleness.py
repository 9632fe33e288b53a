import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.theory.quadratic import LinearModel, exact_moments, growth_factor
from dmlmc.theory.staleness import largest_safe_step, safe_step_size, sharper_bound, staleness
from dmlmc.theory.theorem import Problem, theorem_step_size

rates_strategy = st.builds(
    lambda c, more, d: dmlmc.Rates(b=c + more, c=c, d=d), st.floats(0.5, 1.5), st.floats(0.1, 2.0), st.floats(0.25, 2.0)
)
problems = st.builds(
    Problem, st.floats(0.1, 10), st.floats(0.1, 10), rates_strategy, st.integers(0, 4), st.floats(0.01, 100)
)
signs = st.lists(st.floats(-1, 1), min_size=5, max_size=5)
periods_strategy = st.lists(st.integers(1, 12), min_size=5, max_size=5)
levels_strategy = st.lists(st.tuples(st.floats(0.01, 100), st.integers(1, 70)), min_size=1, max_size=6)


def paper_problem(max_level=6):
    return Problem(1.0, 1.0, dmlmc.Rates(1.8, 1.0, 1.0), max_level, 1.0)


@given(problems)
def test_the_paper_s_periods_have_a_staleness_below_two_over_pi_times_l_max(problem):
    plan = problem.plan(100)
    assert staleness(problem, plan) <= 2 / math.pi * problem.L * problem.max_level
    assert staleness(problem, plan.without_delay()) == 0.0


def lone_level(period):
    """A plan whose only stale level has smoothness 1 / 2, with its problem."""
    problem = paper_problem(max_level=1)
    return problem, dmlmc.plan(problem.rates, 1, samples=[1, 1], periods=[1, period])


@pytest.mark.parametrize("period", [2, 3, 8, 64])
def test_the_norm_of_a_triangle_is_exact(period):
    triangle = np.tril(np.ones((period, period)), -1)
    assert staleness(*lone_level(period)) == pytest.approx(np.linalg.norm(triangle, 2) / 2, rel=1e-9)


@given(st.integers(2, 10**9))
def test_the_factor_of_a_period_lies_where_the_proofs_put_it(period):
    factor = 2 * staleness(*lone_level(period))
    rounding = 1 + 1e-12
    assert (2 * period - 1) / math.pi <= factor * rounding
    assert factor <= min(period - 1, 2 * period / math.pi) * rounding
    assert (period - 1) / 2 < factor  # step 5 of the proof in held_noise


@settings(max_examples=100, deadline=None)
@given(st.floats(0.25, 2.0), periods_strategy, st.integers(1, 60), st.integers(0, 99))
def test_the_third_step_of_the_proof_for_any_gradients_and_incomplete_periods(d, periods, steps, seed):
    problem = Problem(1.0, 1.0, dmlmc.Rates(1.8, 1.0, d), len(periods) - 1, 1.0)
    plan = dmlmc.plan(problem.rates, problem.max_level, samples=1, periods=periods)
    # All gradients lie in the first quadrant, where they add up most.
    gradients = np.abs(np.random.default_rng(seed).normal(size=(steps, 2)))
    moved, t = np.concatenate([np.zeros((1, 2)), np.cumsum(gradients, axis=0)])[:steps], np.arange(steps)
    stale = sum(2 ** (-d * l) * np.linalg.norm(moved - moved[t - t % p], axis=1) for l, p in enumerate(periods))
    assert np.sum(stale**2) <= staleness(problem, plan) ** 2 * np.sum(gradients**2) * (1 + 1e-12)


@given(problems)
def test_the_safe_step_size_is_the_root_of_its_condition(problem):
    plan = problem.plan(100)
    a, S = safe_step_size(problem, plan), staleness(problem, plan)
    assert 2 * a**2 * S**2 + problem.L_prime * a == pytest.approx(1, rel=1e-9)
    assert safe_step_size(problem, plan.without_delay()) == pytest.approx(1 / problem.L_prime, rel=1e-12)
    assert a > theorem_step_size(problem, "delayed MLMC", 1)  # the paper's largest over all T


@given(levels_strategy)
def test_the_largest_safe_step_is_the_root_for_any_smoothness_constants(levels):
    smoothness, periods = zip(*levels, strict=True)
    norms = [np.linalg.norm(np.tril(np.ones((p, p)), -1), 2) for p in periods]
    a, S = largest_safe_step(smoothness, periods), np.dot(smoothness, norms)
    assert 2 * a**2 * S**2 + sum(smoothness) * a == pytest.approx(1, rel=1e-9)
    assert largest_safe_step(smoothness, [1] * len(periods)) == pytest.approx(1 / sum(smoothness), rel=1e-12)


@given(levels_strategy, st.data())
def test_the_largest_safe_step_falls_with_every_smoothness_constant_and_period(levels, data):
    level = data.draw(st.integers(0, len(levels) - 1))
    smoothness, periods = ([pair[part] for pair in levels] for part in (0, 1))
    before = largest_safe_step(smoothness, periods)
    assert largest_safe_step([v * (1.5 if l == level else 1) for l, v in enumerate(smoothness)], periods) < before
    assert largest_safe_step(smoothness, [p + (l == level) for l, p in enumerate(periods)]) < before


def test_the_two_safe_steps_differ_only_in_the_levels_that_a_problem_counts():
    problem = Problem(1.0, 1.0, dmlmc.Rates(1.8, 1.0, 1.0), 40, 1.0)  # sum 2^(-l) over l <= 40 is nearly the whole
    plan = problem.plan(10)
    smoothness, few = [2.0**-l for l in range(41)], paper_problem(2)
    assert largest_safe_step(smoothness, plan.periods) == pytest.approx(safe_step_size(problem, plan), rel=1e-10)
    assert largest_safe_step(smoothness[:3], plan.periods[:3]) > safe_step_size(few, few.plan(10))


@settings(max_examples=120, deadline=None)
@given(problems, signs, periods_strategy, st.integers(1, 300), st.floats(0.05, 1.0) | st.just(1.0))
def test_the_sharper_bound_holds_for_signed_quadratics_and_any_periods(problem, signs, periods, steps, share):
    levels = problem.max_level + 1
    plan = dmlmc.plan(problem.rates, problem.max_level, samples=20, periods=periods[:levels])
    # Assumption 3 allows any sign of a level's curvature, but F must be bounded from below.
    curvatures = [s * problem.L * 2 ** (-problem.rates.d * l) for l, s in enumerate(signs[:levels])]
    assume(sum(curvatures) > 1e-3 * problem.L)
    variances = [problem.M * 2 ** (-problem.rates.b * l) / n for l, n in enumerate(plan.samples)]
    model, a = LinearModel(tuple(curvatures), tuple(variances), plan.periods), share * safe_step_size(problem, plan)
    squares, _ = exact_moments(model, problem.gap, a, steps)
    assert squares.mean() <= sharper_bound(problem, plan, steps, a).total
    assert growth_factor(model, a) < 1  # a growing run would leave any bound behind


@given(problems, st.integers(1, 10**6), st.floats(0.01, 1.0))
def test_the_bound_is_twice_the_start_s_share_and_twice_the_variance(problem, steps, share):
    plan = problem.plan(30)
    a = share * safe_step_size(problem, plan)
    found = sharper_bound(problem, plan, steps, a)
    assert found.start == pytest.approx(2 * problem.gap / (a * steps))
    assert found.noise == pytest.approx(2 * problem.M * plan.variance())


def test_a_step_size_far_above_the_safe_one_violates_the_bound():
    # Shows that the tests above can fail: all curvature is at the finest level, the step size is 6 times the safe one.
    problem = paper_problem(max_level=3)
    plan = dmlmc.plan(problem.rates, 3, samples=10**9, periods=(1, 8, 64, 512))
    model = LinearModel((0.0, 0.0, 0.0, 1 / 8), (1e-9,) * 4, plan.periods)
    safe = safe_step_size(problem, plan)
    assert growth_factor(model, safe) < 1 < growth_factor(model, 6 * safe)
    squares, _ = exact_moments(model, problem.gap, 6 * safe, 5000)
    assert squares.mean() > sharper_bound(problem, plan, 5000, safe).total


def test_the_proof_step_by_step_on_an_exact_run():
    problem = paper_problem(max_level=3)
    plan = problem.plan(50)
    curvatures = [2.0**-l for l in range(4)]
    variances = [2 ** (-1.8 * l) / n for l, n in enumerate(plan.samples)]
    a, S, V = safe_step_size(problem, plan), staleness(problem, plan), plan.variance()
    model = LinearModel(tuple(curvatures), tuple(variances), plan.periods)
    squares, errors = exact_moments(model, problem.gap, a, 400)
    assert np.all(errors <= 2 * V + 2 * (2 * a**2 * S**2) * np.max(squares + errors))
    used = 2 * (squares + errors)  # at least E|g|^2
    assert errors.sum() <= 2 * len(errors) * V + 2 * a**2 * S**2 * used.sum()
    assert errors[0] == pytest.approx(V)


def test_bad_arguments_are_named():
    problem = paper_problem()
    with pytest.raises(TypeError, match=r"staleness: plan must be a dmlmc.Plan"):
        staleness(problem, (1, 2))
    with pytest.raises(ValueError, match="plan must be for max_level 6"):
        safe_step_size(problem, paper_problem(5).plan(10))
    with pytest.raises(ValueError, match="step_size must be at most"):
        sharper_bound(problem, problem.plan(10), 10, 1.0)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        sharper_bound(problem, problem.plan(10), 0)
    with pytest.raises(ValueError, match="largest_safe_step: smoothness must be finite and positive"):
        largest_safe_step([1.0, 0.0], [1, 2])
    with pytest.raises(ValueError, match="largest_safe_step: periods needs 2 entries, one per level"):
        largest_safe_step([1.0, 0.5], [1, 2, 4])
    with pytest.raises(TypeError, match=r"largest_safe_step: periods\[1\] must be an integer"):
        largest_safe_step([1.0, 0.5], [1, 2.5])
    assert math.isfinite(sharper_bound(problem, problem.plan(10), 10).total)
