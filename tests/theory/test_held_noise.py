"""Held noise: the exact stationary error against recursions and closed forms, the bound against exact moments."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.experiments.bounds import measured_run
from dmlmc.theory.held_noise import (
    held_bound,
    held_factor,
    held_step_size,
    randomised_error,
    stationary_error,
    stationary_formula,
)
from dmlmc.theory.quadratic import LinearModel, delayed_model, exact_moments, quadratic_curvatures
from dmlmc.theory.theorem import Problem

PAPER = Problem(L=1.0, M=1.0, rates=dmlmc.Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)


@pytest.mark.parametrize("step_size", [0.01, 0.5, 1.9])
def test_without_delay_the_stationary_error_has_a_closed_form(step_size):
    model = LinearModel((1.0,), (0.7,), (1,))
    assert stationary_error(model, step_size) == pytest.approx(step_size * 0.7 / (2 - step_size), rel=1e-9)


def test_the_stationary_error_is_where_the_recursion_ends():
    model = LinearModel((1.0, -0.3, 0.2), (0.5, 0.1, 0.3), (1, 4, 6))
    squares, _ = exact_moments(model, 1.0, 0.1, 2400)
    assert stationary_error(model, 0.1) == pytest.approx(squares[-12:].mean(), rel=1e-9)


def test_an_unstable_run_has_an_infinite_stationary_error():
    assert stationary_error(LinearModel((1.0,), (1.0,), (1,)), 2.1) == math.inf
    assert stationary_error(LinearModel((0.0, 1.0), (1.0, 1.0), (1, 8)), 0.3) == math.inf  # the limit is 2 / 8


@pytest.mark.parametrize("period", [1, 16, 256])
@pytest.mark.parametrize("z", [0.1, 1.0, 10.0])
def test_the_formula_is_the_limit_of_small_steps(period, z):
    """At the same z = a h p the error of the formula halves with a, here with 1 / p."""
    gaps = []
    for p in (4 * period, 8 * period):
        model = LinearModel((1.0, 0.0), (1e-12, 1.0), (1, p))
        gaps.append(stationary_formula(model, z / p) / stationary_error(model, z / p) - 1)
    assert abs(gaps[0]) < 2 * z / (4 * period) and abs(gaps[1]) < 0.6 * abs(gaps[0]) + 1e-6


def test_the_factor_is_half_of_z_when_small_and_one_when_large():
    z = np.geomspace(1e-12, 1e-2, 20)
    np.testing.assert_allclose([held_factor(value) for value in z], z / 2 - z**2 / 6, rtol=1e-4)
    assert held_factor(1e9) == pytest.approx(1.0)


def test_the_published_counts_give_delay_several_times_the_noise_of_mlmc():
    plan = dmlmc.plan(PAPER.rates, 6, level0_samples=512, allocation="paper")
    delayed, plain = (delayed_model(PAPER, one) for one in (plan, plan.without_delay()))
    ratios = [stationary_error(delayed, a) / stationary_error(plain, a) for a in (1e-5, 0.003, 0.03, 0.3)]
    assert ratios[0] == pytest.approx(plan.long_run_variance() / plan.variance(), rel=5e-3)
    assert ratios[1:] == pytest.approx([8.34, 5.91, 2.17], abs=0.005)


def test_held_counts_give_delay_the_noise_of_mlmc_at_small_steps():
    plan = dmlmc.plan(PAPER.rates, 6, level0_samples=512)
    delayed, plain = (delayed_model(PAPER, one) for one in (plan, plan.without_delay()))
    ratios = [stationary_error(delayed, a) / stationary_error(plain, a) for a in (1e-6, 0.003)]
    assert ratios == pytest.approx([1.0, 0.991], abs=1e-3)


@pytest.mark.parametrize("name", ["held", "paper", "MLMC", "randomised"])
def test_runs_of_the_estimators_have_the_stationary_error_of_the_recursion(x64, name):
    """Sixteen long runs from the optimum, in stretches of 160 steps; a run forgets its start in ten steps or so."""
    problem = Problem(L=1.0, M=1.0, rates=dmlmc.Rates(b=1.8, c=1.0, d=1.0), max_level=3, gap=1.0)
    loss = dmlmc.QuadraticLoss(2, problem.L, problem.M, problem.rates)
    plan = dmlmc.plan(problem.rates, 3, level0_samples=3, allocation="paper" if name == "paper" else "held")
    plan = plan.without_delay() if name == "MLMC" else plan
    make, theory = (dmlmc.randomised_mlmc, randomised_error) if name == "randomised" else (
        dmlmc.delayed_mlmc, stationary_error)  # fmt: skip
    keys = jax.random.split(jax.random.key(0), 16)
    squares, _ = measured_run(
        make(loss, plan), lambda params: loss.curvature(3) * params, jnp.zeros(2), [0.2], 160 * 26, keys
    )
    stretches = squares[0].reshape(16, 26, 160)[:, 1:].mean(axis=2)
    stretches = stretches.mean(axis=0) if name == "randomised" else stretches.ravel()  # runs leave out the same levels
    exact = theory(delayed_model(problem, plan), 0.2)
    error = np.std(stretches, ddof=1) / len(stretches) ** 0.5
    assert abs(stretches.mean() - exact) < 4 * error and error < 0.03 * exact


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 5), st.integers(1, 50)), min_size=1, max_size=5),
    st.floats(0.3, 2.0),
    st.floats(0.05, 1.0),
    st.floats(1e-3, 1e3),
)
def test_the_bound_is_above_the_exact_average_on_signed_quadratics(levels, d, share, gap):
    problem = Problem(L=1.0, M=1.0, rates=dmlmc.Rates(b=1.8, c=1.0, d=d), max_level=len(levels) - 1, gap=gap)
    signs, powers, samples = zip(*levels, strict=True)
    plan = dmlmc.plan(problem.rates, problem.max_level, samples=samples, periods=[2**power for power in powers])
    curvatures = tuple(sign * size for sign, size in zip(signs, quadratic_curvatures(problem), strict=True))
    assume(sum(curvatures) > 1e-3)
    model = LinearModel(curvatures, delayed_model(problem, plan).variances, plan.periods)
    step_size, cycle = share * held_step_size(problem, plan), max(plan.periods)
    for steps in (cycle, 4 * cycle, 20 * cycle):
        exact = exact_moments(model, gap, step_size, steps)[0].mean()
        assert exact <= held_bound(problem, plan, steps, step_size).total


def test_the_bound_is_thirty_times_the_noise_of_small_steps():
    """There the truth is (a / 2) h sum p_l v_l, and the bound has 15 a L' in the place of (a / 2) h."""
    plan, step_size = PAPER.plan(1000), 1e-5
    model = delayed_model(PAPER, plan)
    factor = held_bound(PAPER, plan, 6400, step_size).noise / stationary_error(model, step_size)
    assert factor == pytest.approx(30 * PAPER.L_prime / model.curvature, rel=2e-3)


def test_the_bound_falls_with_the_step_size_where_the_sharper_one_cannot():
    plan = PAPER.plan(1000)
    noise = [held_bound(PAPER, plan, 6400, a).noise for a in (1e-4, 1e-3)]
    assert noise[1] == pytest.approx(10 * noise[0])  # every level has a L' p_l <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 100}, r"steps must be a multiple of every period, \(1, 2, .*\), got 100"),
        ({"step_size": 1.0}, "step_size must be at most 0.1.* for this plan, got 1.0"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"plan": dmlmc.plan(PAPER.rates, 2, samples=10)}, "plan must be for max_level 6"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=f"held_bound: {message}"):
        held_bound(**{"problem": PAPER, "plan": PAPER.plan(1000), "steps": 640, **arguments})
