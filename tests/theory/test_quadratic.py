import jax.random as jr
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.experiments.bounds import measured_run, quadratic_setup
from dmlmc.schedule import METHODS
from dmlmc.theory.quadratic import (
    LinearModel,
    delayed_model,
    exact_moments,
    growth_factor,
    linear_model,
    naive_model,
    quadratic_curvatures,
    stability_limit,
)
from dmlmc.theory.theorem import Problem


def problem(max_level=2, d=1.0):
    return Problem(2.0, 3.0, dmlmc.Rates(1.8, 1.0, d), max_level, 1.0)


def simulated(model, gap, step_size, steps, paths, seed):
    """Plain SGD in NumPy, many scalar paths at once."""
    random, x = np.random.default_rng(seed), np.full(paths, np.sqrt(2 * gap / model.curvature))
    cache, squares, errors = np.zeros((len(model.periods), paths)), [], []
    for t in range(steps):
        for level, period in enumerate(model.periods):
            if t % period == 0:
                noise = np.sqrt(model.variances[level]) * random.standard_normal(paths)
                cache[level] = model.curvatures[level] * x + noise
        gradient = cache.sum(axis=0)
        squares.append((model.curvature * x) ** 2)
        errors.append((model.curvature * x - gradient) ** 2)
        x = x - step_size * gradient
    return np.array(squares), np.array(errors)


def assert_means(samples, expected):
    """The mean over runs is within 6 standard errors at each step, or within 1e-5 where all runs agree, as at t = 0."""
    standard_error = samples.std(axis=1, ddof=1) / np.sqrt(samples.shape[1])
    assert np.all(np.abs(samples.mean(axis=1) - expected) <= 6 * standard_error + 1e-5 * expected)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-0.5, 1), st.floats(0.1, 1), st.integers(1, 5)), min_size=1, max_size=4),
    st.integers(0, 2**32 - 1),
)
def test_moments_match_simulated_paths(levels, seed):
    curvatures, variances, periods = zip(*levels, strict=True)
    model = LinearModel((1.0, *curvatures), (0.5, *variances), (1, *periods))
    assume(model.curvature > 0.1)
    squares, errors = simulated(model, 1.0, 0.2, 12, 4000, seed)
    exact = exact_moments(model, 1.0, 0.2, 12)
    assert_means(squares, exact[0])
    assert_means(errors, exact[1])


@pytest.mark.parametrize("method", METHODS)
def test_moments_match_the_library_s_estimators(method):
    estimator, gradient, start, model = quadratic_setup(problem(), method, 4, dimension=2)
    keys = jr.split(jr.key(3), 1000)
    squares, errors = measured_run(estimator, gradient, start, [0.05, 0.2], 12, keys)
    expected = exact_moments(model, 1.0, [0.05, 0.2], 12)
    for row in (0, 1):
        assert_means(squares[row].T, expected[0][row])
        assert_means(errors[row].T, expected[1][row])


def test_without_delay_many_levels_equal_one():
    here = problem(4)
    plan = here.plan(50)
    model = delayed_model(here, plan.without_delay())
    one = LinearModel((model.curvature,), (sum(model.variances),), (1,))
    for many, single in zip(exact_moments(model, 1.0, 0.1, 30), exact_moments(one, 1.0, 0.1, 30), strict=True):
        np.testing.assert_allclose(many, single, rtol=1e-10)
    assert sum(model.variances) == pytest.approx(here.M * plan.variance())
    assert naive_model(here, 7).variances[0] == pytest.approx(3 / 7 * sum(2 ** (-1.8 * l) for l in range(5)))


def test_growth_factor_is_the_growth_of_a_long_run():
    model = LinearModel((0.0, 1.0), (1e-30, 1e-30), (1, 4))  # x_4 = (1 - 4 a) x_0
    for a in (0.3, 0.45, 0.6):
        assert growth_factor(model, a) == pytest.approx(abs(1 - 4 * a) ** 0.25)
    mixed = LinearModel((1.0, 0.7, -0.2), (1e-300,) * 3, (1, 3, 2))
    squares, _ = exact_moments(mixed, 1.0, [0.5, 2.4], 601)
    per_step = (squares[:, 600] / squares[:, 300]) ** (1 / 600)
    np.testing.assert_allclose(growth_factor(mixed, [0.5, 2.4]), per_step, rtol=1e-6)


def test_momentum_zero_is_plain_sgd():
    model = LinearModel((1.0, -0.3), (1.0, 1.0), (1, 3))
    cycle = np.eye(3)
    for step in range(3):  # x, fresh gradient, stale gradient, by hand
        fresh, stale = [1.0, 0.0, 0.0], [-0.3, 0.0, 0.0] if step == 0 else [0.0, 0.0, 1.0]
        update = np.array([[1.0, -0.4, -0.4], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        cycle = update @ np.array([[1.0, 0.0, 0.0], fresh, stale]) @ cycle
    exact = np.max(np.abs(np.linalg.eigvals(cycle))) ** (1 / 3)
    assert float(growth_factor(model, 0.4)) == pytest.approx(exact)


@pytest.mark.parametrize(("period", "limit"), [(1, 2.0), (5, 0.4), (64, 2 / 64)])
def test_the_stability_limit_of_a_single_stale_level(period, limit):
    assert stability_limit(LinearModel((0.0, 1.0), (1.0, 1.0), (1, period))) == pytest.approx(limit, rel=1e-6)


@pytest.mark.parametrize("max_level", [1, 3, 5])
def test_the_paper_s_periods_cost_no_stability_on_a_quadratic(max_level):
    """With d = 1 delayed MLMC is stable up to 2 / L, the limit of level 0 alone. That is more than for MLMC."""
    here = problem(max_level)
    delayed = stability_limit(delayed_model(here, here.plan(10)), points=60)
    plain = stability_limit(delayed_model(here, here.plan(10).without_delay()), points=60)
    assert delayed == pytest.approx(2 / here.L, rel=1e-6)
    assert plain == pytest.approx(2 / sum(quadratic_curvatures(here)), rel=1e-6) and plain < delayed


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LinearModel((1.0,), (1.0, 2.0), (1,)), ValueError, "variances needs 1 numbers"),
        (lambda: LinearModel((1.0,), (0.0,), (1,)), ValueError, "variances must be finite and positive"),
        (lambda: LinearModel((float("nan"),), (1.0,), (1,)), ValueError, r"curvatures\[0\] must be finite"),
        (lambda: LinearModel((1.0,), (1.0,), (0,)), ValueError, r"periods\[0\] must be at least 1"),
        (lambda: naive_model(problem(), 0), ValueError, "samples must be at least 1"),
        (lambda: linear_model(problem(), "sgd", 4), ValueError, "linear_model: method must be one of"),
        (
            lambda: exact_moments(LinearModel((-1.0,), (1.0,), (1,)), 1.0, 0.1, 5),
            ValueError,
            "positive total curvature",
        ),
        (lambda: exact_moments(LinearModel((1.0,), (1.0,), (1,)), -1.0, 0.1, 5), ValueError, "gap must be positive"),
        (lambda: growth_factor(LinearModel((1.0,) * 3, (1.0,) * 3, (401, 397, 389)), 0.1), ValueError, "must repeat"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
