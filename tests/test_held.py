"""Gradients that a new plan takes over from an old one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmlmc
from dmlmc.held import Held, all_computed, of_all_seeds
from tests.helpers.runs import QUADRATIC, RATES

POINT = jnp.array([1.0, 2.0, 3.0])


def delayed(periods, samples=(8, 4, 2, 2)):
    plan = dmlmc.plan(RATES, len(periods) - 1, samples=samples[: len(periods)], periods=periods, allocation="paper")
    return dmlmc.delayed_mlmc(QUADRATIC, plan)


FIRST, SECOND = delayed([1, 2, 4, 1]), delayed([1, 1, 8, 4])


def after_steps(estimator, steps, params=POINT, key=None):
    state = estimator.init(params)
    for step in range(steps):
        _, state = estimator.estimate(params, state, step, jax.random.key(0) if key is None else key)
    return state


def test_levels_held_by_both_plans_keep_their_gradients_bit_for_bit(x64):
    state = after_steps(FIRST, 3)
    adopted = SECOND.adopt(state, POINT)
    assert list(adopted.gradients) == list(adopted.computed) == [2, 3]
    np.testing.assert_array_equal(adopted.gradients[2], state.gradients[2])
    assert bool(adopted.computed[2]) and not bool(adopted.computed[3])
    same = FIRST.adopt(state, POINT)
    for one, other in zip(jax.tree.leaves(same), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_level_that_was_never_computed_stays_so():
    adopted = delayed([1, 4, 2]).adopt(delayed([1, 2, 4]).init(POINT), POINT)
    assert not any(adopted.computed.values())


def test_after_a_change_of_plan_every_level_is_held_or_new(x64):
    """At step 5 nothing is due: level 2 is held from step 4, level 3 is computed now, 0 and 1 always are."""
    key = jax.random.key(3)
    state = after_steps(FIRST, 5, key=key)
    grads, after = SECOND.estimate(POINT, SECOND.adopt(state, POINT), 5, key)
    fresh, everything = SECOND.estimate(POINT, SECOND.init(POINT), 5, key)
    swapped = np.asarray(fresh) - np.asarray(everything.gradients[2]) + np.asarray(state.gradients[2])
    np.testing.assert_allclose(grads, swapped, rtol=1e-12)
    np.testing.assert_array_equal(after.gradients[3], everything.gradients[3])
    np.testing.assert_array_equal(after.gradients[2], state.gradients[2])


def test_the_mean_after_a_change_of_plan_is_the_gradient(x64):
    """Over many seeds, the change in a batch: the mean is that of MLMC, within four standard errors."""

    def changed(step, key):
        _, state = FIRST.estimate(POINT, FIRST.init(POINT), step, key)
        return SECOND.estimate(POINT, SECOND.adopt(state, POINT), step + 1, key)[0]

    found = np.asarray(jax.jit(jax.vmap(changed, (None, 0)))(4, jax.random.split(jax.random.key(1), 4000)))
    exact = QUADRATIC.curvature(3) * np.asarray(POINT)
    errors = np.abs(found.mean(axis=0) - exact) / (found.std(axis=0) / np.sqrt(len(found)))
    assert np.all(errors < 4) and np.all(found.std(axis=0) < 3)
    without_level_2 = exact - (QUADRATIC.curvature(2) - QUADRATIC.curvature(1)) * np.asarray(POINT)
    misses = np.abs(found.mean(axis=0) - without_level_2) / (found.std(axis=0) / np.sqrt(len(found)))
    assert np.max(misses) > 8  # the test can tell: a level left out shows


def test_a_batch_of_seeds_adopts_seed_by_seed():
    params = np.outer([1.0, 2.0, -1.0], POINT).astype(np.float32)
    computed = {1: np.array([True, True, False]), 2: np.array([False, True, True])}
    states = Held({1: 3 * params, 2: 4 * params}, computed)  # of FIRST
    batch = jax.vmap(SECOND.adopt)(states, params)
    assert list(batch.gradients) == [2, 3] and np.all(batch.gradients[2] == 4 * params)
    np.testing.assert_array_equal(batch.computed[2], computed[2])
    for seed in range(3):
        state = jax.tree.map(lambda leaf, seed=seed: jnp.asarray(leaf[seed]), states)
        alone = SECOND.adopt(state, jnp.asarray(params[seed]))
        for one, other in zip(jax.tree.leaves(batch), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(np.asarray(one)[seed], other)


@pytest.mark.parametrize(
    "state",
    [(), None, jnp.ones(3), Held({1: jnp.ones(2)}, {1: jnp.array(True)}), Held({1: POINT}, {1: jnp.ones(2, bool)})],
    ids=["of MLMC", "none", "an array", "of other params", "of a batch"],
)
def test_a_state_that_does_not_fit_is_replaced(state):
    estimator = delayed([1, 2])
    adopted = estimator.adopt(state, POINT)
    for one, other in zip(jax.tree.leaves(adopted), jax.tree.leaves(estimator.init(POINT)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert dmlmc.mlmc(QUADRATIC, dmlmc.plan(RATES, 1, samples=[2, 2])).adopt(adopted, POINT) == ()


def test_a_state_of_one_s_own_is_kept_if_it_fits():
    own = dmlmc.GradientEstimator(lambda params: jnp.zeros(2), lambda params, state, step, key: (params, state))
    np.testing.assert_array_equal(own.adopt(jnp.ones(2), POINT), jnp.ones(2))
    np.testing.assert_array_equal(own.adopt(jnp.ones(3), POINT), jnp.zeros(2))


def test_a_step_of_all_seeds_is_not_batched():
    def of_one(step, array):
        return jax.lax.dynamic_index_in_dim(array, of_all_seeds(step), keepdims=False)

    both = jax.vmap(of_one, (0, None))
    assert both(jnp.array([2, 2]), jnp.arange(5)).tolist() == [2, 2]
    assert "gather" not in str(jax.make_jaxpr(both)(jnp.array([2, 2]), jnp.arange(5)))


def test_a_flag_of_all_seeds_is_a_branch_also_in_a_batch_of_batches():
    def of_one(flag, number):
        return jax.lax.cond(of_all_seeds(flag), lambda: number, lambda: -number)

    batches = jax.vmap(jax.vmap(of_one))
    numbers, all_have_it = jnp.arange(1.0, 7.0).reshape(2, 3), jnp.ones((2, 3), bool)
    assert "cond[" in str(jax.make_jaxpr(batches)(all_have_it, numbers))
    np.testing.assert_array_equal(batches(all_have_it, numbers), numbers)
    np.testing.assert_array_equal(batches(all_have_it.at[1, 2].set(False), numbers), -numbers)


def test_all_is_computed_when_every_level_of_every_seed_is(x64):
    first = FIRST.init(POINT)
    assert all_computed(after_steps(FIRST, 1)) and not all_computed(first)
    assert all_computed(()) and all_computed(jnp.array(False))  # other states hold no gradients
    one_seed_left = Held(first.gradients, {1: jnp.array([True, True]), 2: jnp.array([False, True])})
    assert not all_computed(one_seed_left)
