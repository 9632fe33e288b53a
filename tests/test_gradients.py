from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmlmc
from tests.helpers.spy import MAKERS, Spy, assert_close, small_plan


def test_the_samples_of_a_level_are_independent():
    """The mean of n draws has variance 1/n: it would be 1 if all samples shared their noise."""
    estimator = dmlmc.mlmc(Spy(), small_plan(samples=(16, 8, 4)))
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: estimator.estimate(jnp.zeros(3), (), 0, key)[0]))(keys))
    scaled = drawn.var(0) * np.array([16, 8, 4])
    assert np.all(np.abs(scaled - 1) < 4 * (2 / 4000) ** 0.5)


def test_a_loss_gets_the_whole_batch_or_chunks_of_at_most_its_size(x64):
    sizes = []

    class Whole(Spy):
        def batch(self, keys, level):
            sizes.append((level, len(keys)))
            return super().batch(keys, level)

    class Chunks(Whole):
        def samples_at_once(self, level):
            return level + 2

    plan, params, key = small_plan(samples=(7, 5, 3)), jnp.array([1.0, 0.5, -0.5]), jax.random.key(4)
    whole, _ = dmlmc.mlmc(Whole(), plan).estimate(params, (), 0, key)
    assert set(sizes) == {(0, 7), (1, 5), (2, 3)}
    sizes.clear()
    chunks, _ = dmlmc.mlmc(Chunks(), plan).estimate(params, (), 0, key)
    assert set(sizes) == {(0, 2), (1, 3), (2, 3)}  # 2 + 2 + 2 + 1, 3 + 2 and 3: the last chunk is filled up
    assert_close(chunks, whole)


@pytest.mark.parametrize("method", MAKERS)
def test_every_device_that_shares_the_samples_gets_the_whole_gradient(method):
    """Of 5, 3 and 2 samples two devices get unequal shares, and of seven some get none."""
    params, mesh = jnp.array([0.1, 0.2, 0.3]), dmlmc.mesh(samples=1)

    def gradient(_=None, **options):
        estimator = MAKERS[method](**options)
        return estimator.estimate(params, estimator.init(params), 0, jax.random.key(0))[0]

    expected = gradient()
    np.testing.assert_allclose(gradient(mesh=mesh), expected, rtol=1e-5)
    # An estimator is on a mesh of its own, unless it is in one already.
    for devices, options in ((2, {}), (7, {}), (2, {"mesh": mesh})):
        share = jax.jit(jax.vmap(partial(gradient, **options), axis_name="samples", axis_size=devices))
        np.testing.assert_allclose(share(np.zeros(devices)), np.tile(expected, (devices, 1)), rtol=1e-5)


@pytest.mark.parametrize(("devices", "share"), [(1, 7), (2, 4), (3, 3)])
def test_a_device_computes_its_share_of_the_samples_only(devices, share):
    sizes = []

    class Watched(Spy):
        def batch(self, keys, level):
            sizes.append(len(keys))
            return super().batch(keys, level)

    estimate = dmlmc.naive(Watched(), 0, 7).estimate
    jax.eval_shape(
        jax.vmap(lambda _: estimate(jnp.ones(3), (), 0, jax.random.key(0))[0], axis_name="samples", axis_size=devices),
        jnp.zeros(devices),
    )
    assert set(sizes) == {share}


class Unsummed(Spy):
    """A loss that gives one number per component instead of one per sample."""

    def losses(self, params, noises):
        return params * noises.sum()


def test_a_loss_of_the_wrong_shape_is_named():
    estimator = dmlmc.naive(Unsummed(), 0, 5)
    with pytest.raises(ValueError, match=r"^Unsummed: losses must return .* \(5,\).* got shape \(3,\)"):
        estimator.estimate(jnp.ones(3), (), 0, jax.random.key(0))
