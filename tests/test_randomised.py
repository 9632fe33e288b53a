import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmlmc
from dmlmc.randomised import expected_span
from tests.helpers.spy import Spy, assert_close, small_plan
from tests.test_estimators import Counting, level_gradient

PLAN = small_plan((1, 2, 5), (5, 3, 2))


class Still(Spy):
    """Without noise, the gradient shows the weights of the levels that a step computes."""

    def sample(self, key, level):
        return jnp.zeros(level + 1)


def drawn_levels(plan, steps, seed=0):
    """For each step the levels that it computes."""
    estimator = dmlmc.randomised_mlmc(Still(), plan, seed=seed)
    grads = all_gradients(estimator, jnp.ones(3), steps, jax.random.key(0))
    return [tuple(np.flatnonzero(row).tolist()) for row in grads]


def all_gradients(estimator, params, steps, key):
    estimates = jax.jit(jax.vmap(lambda step: estimator.estimate(params, (), step, jax.random.fold_in(key, step))[0]))
    return np.asarray(estimates(jnp.arange(steps)))


@pytest.fixture(scope="module")
def drawn():
    """The levels of many steps. They are other ones in single precision, so the tests that need them use double."""
    with jax.enable_x64(True):
        return drawn_levels(PLAN, 10_000)


def test_levels_that_are_drawn_are_weighted_and_the_others_left_out(x64, drawn):
    params, key = jnp.array([1.0, 0.5, -0.5]), jax.random.key(3)
    estimator = dmlmc.randomised_mlmc(Spy(), PLAN)
    for step, levels in enumerate(drawn[:12]):
        gradients = [np.asarray(level_gradient(Spy(), PLAN, params, key, step, level)) for level in levels]
        weighted = [PLAN.periods[level] * gradient for level, gradient in zip(levels, gradients, strict=True)]
        grads, state = estimator.estimate(params, estimator.init(params), step, key)
        assert_close(grads, sum(weighted))
        assert state == () and 0 in levels
    assert len(set(drawn[:12])) >= 3


def test_it_is_unbiased_and_has_the_variance_that_was_derived(x64):
    """On Spy grad D_l is e_l (params[l] + noise): |grad D_l F|^2 = params[l]^2, V_l = 1, and levels do not mix."""
    params, steps = jnp.array([1.0, 0.5, -0.5]), 40_000
    grads = all_gradients(dmlmc.randomised_mlmc(Spy(), PLAN), params, steps, jax.random.key(1))
    periods, samples = np.array(PLAN.periods), np.array(PLAN.samples)
    variance = periods / samples + (periods - 1) * np.asarray(params) ** 2
    scores = (grads.mean(axis=0) - np.asarray(params)) / np.sqrt(variance / steps)
    assert np.all(np.abs(scores) < 4)
    squares = (grads - np.asarray(params)) ** 2
    scores = (squares.mean(axis=0) - variance) / (squares.std(axis=0) / steps**0.5)
    assert np.all(np.abs(scores) < 4)
    assert variance.sum() == pytest.approx(
        PLAN.long_run_variance([1.0, 1.0, 1.0]) + float((periods - 1) @ np.asarray(params) ** 2)
    )


def test_expected_work_and_span_are_the_means_of_what_is_drawn():
    estimator, plan = dmlmc.randomised_mlmc(Spy(), PLAN), PLAN
    coins = np.random.default_rng(0).random((200_000, 3)) * np.array(plan.periods) < 1
    spans = np.max(coins * np.array(plan.costs), axis=1)
    work = coins @ (np.array(plan.samples) * [1.0, 3.0, 6.0])
    for expected, found in ((estimator.span, spans), (estimator.work, work)):
        assert abs(expected(7) - found.mean()) < 4 * found.std() / len(found) ** 0.5
        assert expected(np.arange(3)).shape == (3,)
    assert estimator.work(0) == plan.mean_work() and estimator.span(0) == expected_span(plan)
    assert expected_span(plan.without_delay()) == plan.without_delay().mean_span()


def test_the_steps_at_which_a_level_is_drawn_are_as_likely_as_they_should_be(x64, drawn):
    chances = 1 / np.array(PLAN.periods)
    shares = np.array([sum(level in one for one in drawn) for level in range(3)]) / len(drawn)
    assert np.all(np.abs(shares - chances) <= 4 * np.sqrt(chances * (1 - chances) / len(drawn)))
    assert drawn_levels(PLAN, 20, seed=1) != drawn[:20] == drawn_levels(PLAN, 20)


def test_a_level_that_is_not_drawn_is_not_computed_also_in_a_batch_of_seeds(x64, drawn):
    loss = Counting([])
    estimator = dmlmc.randomised_mlmc(loss, small_plan((1, 2, 5), (1, 1, 1)))
    params, keys = jnp.zeros((2, 3)), jax.random.split(jax.random.key(0), 2)
    batch = jax.vmap(lambda params, step, key: estimator.estimate(params, (), step, key)[0], (0, None, 0))
    compiled = jax.jit(batch).lower(params, 0, keys).compile()
    for step in range(20):
        compiled(params, step, keys)
    jax.effects_barrier()
    expected = [sum(level in one for one in drawn[:20]) for level in range(3)]
    assert [loss.seen.count(level) for level in range(3)] == expected
    assert compiled.as_text().count(" conditional(") == 2


def test_without_delay_it_is_mlmc():
    params, key, plan = jnp.ones(3), jax.random.key(5), PLAN.without_delay()
    randomised, mlmc = dmlmc.randomised_mlmc(Spy(), plan), dmlmc.mlmc(Spy(), plan)
    for step in range(3):
        one, _ = randomised.estimate(params, (), step, key)
        other, _ = mlmc.estimate(params, (), step, key)
        assert bool(eqx.tree_equal(one, other))


def test_it_has_a_name_the_mesh_it_was_given_and_the_work_of_its_pairs():
    class Antithetic(Spy):
        @property
        def fine_paths(self):
            return 2

    mesh = dmlmc.mesh(samples=1)
    estimator = dmlmc.randomised_mlmc(Antithetic(), PLAN, mesh=mesh)
    assert estimator.method == "randomised MLMC" and estimator.mesh is mesh
    assert estimator.work(0) == replace(PLAN, fine_paths=2).mean_work() > PLAN.mean_work()
    assert dmlmc.randomised_mlmc(Spy(), PLAN).mesh is None


def test_a_period_beyond_all_steps_is_practically_never_drawn():
    plan = small_plan((1, 2, 2**60), (1, 1, 1))
    assert all(2 not in levels for levels in drawn_levels(plan, 10))
    assert math.isfinite(dmlmc.randomised_mlmc(Spy(), plan).work(0))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dmlmc.randomised_mlmc(abs, PLAN), TypeError, "^randomised_mlmc: loss must be a dmlmc.MultilevelLoss"),
        (lambda: dmlmc.randomised_mlmc(Spy(), None), TypeError, "^randomised_mlmc: plan must be a dmlmc.Plan"),
        (lambda: dmlmc.randomised_mlmc(Spy(), PLAN, seed=-1), ValueError, "^randomised_mlmc: seed must be at least 0"),
        (lambda: dmlmc.randomised_mlmc(Spy(), PLAN).init(1.0), TypeError, "^randomised_mlmc: params must hold"),
        (
            lambda: dmlmc.randomised_mlmc(Spy(), PLAN).estimate(1.0, (), 0, jax.random.key(0)),
            TypeError,
            "^randomised_mlmc: params must hold",
        ),
        (
            lambda: dmlmc.randomised_mlmc(Spy(), PLAN).estimate(jnp.ones(3), (), 0, 7),
            TypeError,
            "^randomised_mlmc: key must be a key",
        ),
    ],
)
def test_bad_arguments_are_named(own_errors, call, error, message):
    with pytest.raises(error, match=message):
        call()
