import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.theory.quadratic import LinearModel, exact_moments, growth_factor
from dmlmc.theory.staleness import safe_step_size, sharper_bound, staleness
from dmlmc.theory.theorem import Problem, theorem_step_size

rates_strategy = st.builds(
    lambda c, more, d: dmlmc.Rates(b=c + more, c=c, d=d), st.floats(0.5, 1.5), st.floats(0.1, 2.0), st.floats(0.25, 2.0)
)
problems = st.builds(
    Problem, st.floats(0.1, 10), st.floats(0.1, 10), rates_strategy, st.integers(0, 4), st.floats(0.01, 100)
)
signs = st.lists(st.floats(-1, 1), min_size=5, max_size=5)


def paper_problem(max_level=6):
    return Problem(1.0, 1.0, dmlmc.Rates(1.8, 1.0, 1.0), max_level, 1.0)


@given(problems)
def test_the_paper_s_periods_have_a_staleness_below_l_max_times_l(problem):
    plan = problem.plan(100)
    assert staleness(problem, plan) <= problem.L * problem.max_level
    assert staleness(problem, plan.without_delay()) == 0.0


@given(problems)
def test_the_safe_step_size_is_the_root_of_its_condition(problem):
    plan = problem.plan(100)
    a, S = safe_step_size(problem, plan), staleness(problem, plan)
    assert 2 * a**2 * S**2 + problem.L_prime * a == pytest.approx(1, rel=1e-9)
    assert safe_step_size(problem, plan.without_delay()) == pytest.approx(1 / problem.L_prime, rel=1e-12)
    assert a > theorem_step_size(problem, "delayed MLMC", 1)  # the paper's largest over all T


@settings(max_examples=60, deadline=None)
@given(problems, signs, st.lists(st.integers(1, 9), min_size=5, max_size=5), st.integers(1, 60), st.floats(0.05, 1.0))
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
    assert math.isfinite(sharper_bound(problem, problem.plan(10), 10).total)
