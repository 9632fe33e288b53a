"""One step of SGD, by hand: what goes where, and when a gradient counts as diverged."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmlmc
from dmlmc.training.step import Run, sgd_step, sgd_steps, start_run

STATIC = {"w": None, "b": None, "label": 3}


def of_own(params, state, step, key):
    """Gradients that show every argument; the state counts the steps."""
    assert params["label"] == 3
    return {"w": params["w"] * state, "b": step + jax.random.uniform(key) + 0 * params["b"], "label": None}, state + 1


OWN = dmlmc.GradientEstimator(lambda params: params["label"] * params["w"][0], of_own)
MOMENTUM = optax.sgd(0.5, momentum=0.5)


def started():
    return start_run(OWN, MOMENTUM, {"w": jnp.array([1.0, -2.0]), "b": jnp.array(4.0), "label": None}, STATIC)


def test_a_run_starts_with_fresh_states_and_no_divergence():
    run = started()
    assert float(run.estimator_state) == 3.0 and int(run.diverged_at) == -1
    np.testing.assert_array_equal(run.params["w"], [1.0, -2.0])
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(run.optimiser_state))


def test_a_step_applies_the_optimiser_to_the_gradient_it_returns():
    key, run = jax.random.key(1), started()
    noise = float(jax.random.uniform(key))
    first, grads = sgd_step(OWN, MOMENTUM, STATIC, run, jnp.array(6), key)
    np.testing.assert_allclose(grads["w"], [3.0, -6.0])
    np.testing.assert_allclose(grads["b"], 6 + noise)
    np.testing.assert_allclose(first.params["w"], [-0.5, 1.0])
    np.testing.assert_allclose(first.params["b"], 4 - (6 + noise) / 2, rtol=1e-6)
    second, grads = sgd_step(OWN, MOMENTUM, STATIC, first, jnp.array(7), key)
    np.testing.assert_allclose(grads["w"], [-2.0, 4.0])  # the state has counted one step
    np.testing.assert_allclose(second.params["w"], [-0.5 - (-2 + 3 / 2) / 2, 1 - (4 - 6 / 2) / 2])
    assert int(second.diverged_at) == -1 and float(second.estimator_state) == 5.0


def test_the_optimiser_sees_the_parameters():
    decayed = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(1.0))
    run = start_run(OWN, decayed, started().params, STATIC)
    after, _ = sgd_step(OWN, decayed, STATIC, run, jnp.array(0), jax.random.key(1))
    np.testing.assert_allclose(after.params["w"], [1 - 3 - 0.1, -2 + 6 + 0.2], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("before", [-1, 0, 2])
def test_one_number_that_is_not_finite_is_noted_at_the_first_step(bad, before):
    run = started()._replace(diverged_at=jnp.array(before))
    run = run._replace(params={**run.params, "w": jnp.array([1.0, bad])})
    after, _ = sgd_step(OWN, MOMENTUM, STATIC, run, jnp.array(5), jax.random.key(1))
    assert int(after.diverged_at) == (5 if before < 0 else before)


def test_several_steps_are_single_steps():
    key, run = jax.random.key(2), started()
    found = sgd_steps(OWN, MOMENTUM, STATIC, run, 4, 7, key)
    for step in (4, 5, 6):
        run, _ = sgd_step(OWN, MOMENTUM, STATIC, run, jnp.array(step), key)
    assert isinstance(found, Run)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(run), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert int(found.estimator_state) == 6
