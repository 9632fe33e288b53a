"""Gradients level by level: statistics against closed forms and against gradients by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

import dmlmc
from dmlmc.calibration.levels import Measurement, _squared_mean
from tests.helpers.measurements import POINT, TRUE, measure
from tests.helpers.problems import neural_loss, neural_params


@pytest.fixture(scope="module")
def neural():
    """A loss and two points nearby. Measurements of the same loss share compiled programs."""
    with jax.enable_x64(True):
        params = neural_params(jnp.float64)
        return neural_loss(jnp.float64), params, eqx.tree_at(lambda params: params.scale, params, params.scale + 0.01)


def test_statistics_of_the_quadratic_loss_are_the_exact_ones(x64):
    found = measure(max_level=3, samples=4096).table().set_index("level")
    for level, row in found.iterrows():
        variance, squared = 0.5 * 2 ** (-1.6 * level), 12 * 2 ** (-1.8 * level)  # |2 x 2^(-d l)|^2 at x = (1, 1, 1)
        assert abs(row.variance - variance) < 4 * row.variance_error < 0.3 * variance
        assert abs(row.second_moment - variance - squared) < 4 * row.second_moment_error
        assert abs(row.squared_mean - squared) < 4 * row.squared_mean_error
        assert row.smoothness == pytest.approx(2 * 2 ** (-0.9 * level), rel=1e-9)
        assert row.mean_smoothness == pytest.approx(row.smoothness, rel=1e-9) and row.noise_floor < 1e-6
        assert row.consistency < 4
    assert found.samples.unique().tolist() == [4096] and found.steps.tolist() == [3, 6, 9, 12]


def test_kurtosis_is_that_of_the_norm_of_a_normal_vector(x64):
    """With no mean and n components it is (n + 2) / n."""
    found = measure(params=1e-9 * POINT, other=2e-9 * POINT, max_level=3, samples=8192).table()
    np.testing.assert_allclose(found["kurtosis"], 5 / 3, atol=4 * (8.9 / 8192) ** 0.5)  # the variance of |g|^4 is 8.9


def test_the_number_of_samples_changes_neither_program_nor_memory(x64):
    traced = []

    class Counting(dmlmc.QuadraticLoss):
        def loss(self, params, noise):
            traced.append(noise.shape)
            return super().loss(params, noise)

    loss = Counting(3, 2.0, 0.5, TRUE)
    measure(loss, max_level=1, samples=64)
    before = len(traced)
    measure(loss, max_level=1, samples=4096)
    assert before == len(traced) > 0


def test_streamed_equals_unstreamed(x64, neural):
    whole, pieces = (measure(*neural, max_level=1, samples=64, blocks=4, chunk=chunk) for chunk in (16, 3))
    pd.testing.assert_frame_equal(whole.blocks, pieces.blocks, rtol=1e-9)
    pd.testing.assert_frame_equal(whole.levels, pieces.levels, rtol=1e-6)


def test_statistics_are_those_of_gradients_by_hand(x64, neural):
    """All samples at once, one gradient each, from the same keys."""
    loss, params, other = neural
    found = measure(loss, params, other, max_level=1, samples=12, blocks=4, chunk=3)
    pair_key = jr.split(jr.key(0))[0]

    @eqx.filter_jit
    def gradient(params, key):
        noise = loss.sample(key, 1)
        return jax.flatten_util.ravel_pytree(
            eqx.filter_grad(lambda params: loss.loss(params, noise) - loss.loss(params, loss.coarsen(noise)))(params)
        )[0]

    keys = jax.vmap(lambda sample: jr.fold_in(pair_key, sample))(jnp.arange(1, 12, 4))  # of block 1
    here, there = (np.stack([gradient(point, key) for key in keys]) for point in (params, other))
    row = found.blocks[(found.blocks.level == 1) & (found.blocks.block == 1)].iloc[0]
    distance = 0.01 * 2**0.5
    assert row.second_moment == pytest.approx(np.mean(np.sum(here**2, axis=1)))
    assert row.fourth_moment == pytest.approx(np.mean(np.sum(here**2, axis=1) ** 2))
    assert row.variance == pytest.approx(np.sum(np.var(here, axis=0, ddof=1)))
    assert row.smoothness == pytest.approx(np.mean(np.linalg.norm(there - here, axis=1)) / distance)
    assert found.levels.samples.tolist() == [12, 12]


def test_the_squared_mean_averages_all_ways_to_halve_the_blocks():
    means = np.random.default_rng(0).normal(size=(4, 5))
    halves = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    expected = np.mean([means[list(one)].mean(axis=0) @ means[list(two)].mean(axis=0) for one, two in halves])
    estimate, _, noise = _squared_mean(means)
    assert estimate == pytest.approx(expected)
    assert noise == pytest.approx(np.sum(np.var(means, axis=0, ddof=1)) / 4)


def test_a_level_made_by_one_sample_is_named(x64):
    found = measure(max_level=3)
    wild = found.blocks.assign(fourth_moment=found.blocks.second_moment.mean() ** 2 * 256 * (found.blocks.level == 1))
    assert found.dominated_levels() == []
    assert Measurement(wild, found.levels).dominated_levels() == [1]


BAD_MEASUREMENTS = [
    ({"max_level": -1}, "measure_levels: max_level must be at least 0"),
    ({"blocks": 3}, "measure_levels: blocks must be at least 4"),
    ({"samples": 0}, "measure_levels: samples must be at least 1"),
    ({"steps": [1.0, 0.0, 1.0]}, "measure_levels: steps must be finite and positive"),
    ({"chunk": 0}, "measure_levels: chunk must be at least 1"),
    ({"other": POINT}, "measure_levels: other must differ from params, finitely, got a distance of 0.0"),
    ({"other": jnp.ones(2)}, "measure_levels: other must be shaped like params"),
    (
        {"other": jnp.array([1.0, jnp.nan, 1.0])},
        "measure_levels: other must differ from params, finitely, got a distance of nan",
    ),
]


@pytest.mark.parametrize(("options", "message"), BAD_MEASUREMENTS)
def test_bad_arguments_of_measure_levels_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        measure(**options)


def test_what_is_not_a_loss_or_not_finite_is_named():
    with pytest.raises(TypeError, match="measure_levels: loss must be a"):
        measure(loss=abs)

    class Infinite(dmlmc.QuadraticLoss):
        def loss(self, params, noise):
            return super().loss(params, noise) / (2.0 - noise.shape[0])

    with pytest.raises(FloatingPointError, match="at level 1 is not finite"):
        measure(Infinite(3, 2.0, 0.5, TRUE))
