import itertools

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.experiments import stability
from dmlmc.theory.quadratic import LinearModel, growth_factor
from dmlmc.theory.staleness import safe_step_size
from dmlmc.theory.theorem import Problem


def problem(max_level=2, d=1.0):
    return Problem(2.0, 3.0, dmlmc.Rates(1.8, 1.0, d), max_level, 1.0)


def test_a_signed_quadratic_has_the_given_curvature():
    loss = stability.SignedQuadraticLoss(2, 2.0, 1e-12, dmlmc.Rates(1.8, 1.0, 1.0), signs=(1.0, -1.0, 1.0))
    assert loss.curvature(2) == pytest.approx(2 * (1 - 0.5 + 0.25))
    assert loss.curvature(1) == pytest.approx(1.0)
    value = loss.loss(jnp.ones(2), loss.sample(jr.key(0), 2))
    assert float(value) == pytest.approx(1.5, rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.3, 2.0), st.integers(0, 3), st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=4, max_size=4))
def test_the_safe_step_size_is_stable_for_every_sign_pattern(d, max_level, periods):
    here = problem(max_level, d)
    plan = dmlmc.plan(here.rates, max_level, samples=10, periods=periods[: max_level + 1])
    for model in stability.sign_patterns(here, plan.periods):
        assert growth_factor(model, safe_step_size(here, plan)) < 1


def test_sign_patterns_are_all_with_a_positive_sum():
    here = problem(2)
    sums = [sum(s * 2.0**-l for l, s in enumerate(signs)) for signs in itertools.product((-1, 0, 1), repeat=3)]
    assert len(stability.sign_patterns(here, (1, 2, 4))) == sum(value > 0 for value in sums)


def test_the_growth_map_finds_the_limit_of_the_finest_level_and_safe_lines_are_below_it():
    here, sizes = problem(2), np.geomspace(1e-3, 2.0, 30)
    plain, worst = (stability.growth_map(here, [1.0, 2.0], sizes, worst=worst) for worst in (False, True))
    assert np.all(plain.growth <= worst.growth + 1e-12)
    limit = 2 / (here.L / 4 * 16)  # for the finest level alone, at d' = 2
    unstable = worst[(worst.exponent == 2.0) & (worst.growth >= 1)].step_size.min()
    assert limit <= unstable * (1 + 1e-9) <= 1.35 * limit
    lines = stability.safe_lines(here, [1.0, 2.0], 100)
    assert lines["safe, sharper bound"].iloc[1] < limit and np.isnan(lines.iloc[1, 2]) and lines.iloc[0, 2] > 0
    assert stability.power_plan(here, 2.0).periods == (1, 4, 16)


def test_runs_are_unstable_where_the_growth_factor_exceeds_one():
    here, signs, sizes = problem(1), (0.0, 1.0), [0.025, 0.2, 0.3, 1.0]
    plans = {3.0: stability.power_plan(here, 3.0)}
    runs = stability.measured_stability(here, plans, sizes, signs, steps=200)
    model = LinearModel((0.0, 1.0), (1.0, 1.0), plans[3.0].periods)
    assert runs.unstable.tolist() == (growth_factor(model, sizes) > 1).tolist() == [False, False, True, True]


def test_without_delay_momentum_raises_the_limit_by_one_plus_momentum():
    limits = stability.momentum_limits_table(0.0, [1], [0.0, 0.5, 0.9])
    np.testing.assert_allclose(limits.limit, 2 * (1 + limits.momentum), rtol=1e-4)


@pytest.mark.parametrize("m", [0.0, 0.5, 0.9])
def test_with_a_long_period_momentum_lowers_the_limit_by_one_minus_momentum(m):
    # Over a period p >> 1 / (1 - m), step size a moves x by a p / (1 - m) times its gradient; from 2 on, that diverges.
    limits = stability.momentum_limits_table(0.0, [1024], [m])
    assert limits.limit[0] == pytest.approx(2 * (1 - m) / 1024, rel=0.05)


def test_optax_runs_diverge_where_the_exact_growth_exceeds_one():
    limits = stability.momentum_limits_table(2.0, [4], [0.0, 0.5, 0.9])
    runs = stability.runs_near_limits(2.0, limits)
    assert runs.unstable.tolist() == (runs.growth > 1).tolist()
    assert runs.unstable.any() and not runs.unstable.all()
    # The stale level does not lower the limit of plain SGD, but it does with momentum.
    assert limits.limit[0] == pytest.approx(2 / 2.0, rel=1e-3) and stability.worst_drop(limits) > 5
