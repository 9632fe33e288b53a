from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmlmc
from tests.helpers.problems import neural_loss, neural_params


def quadratic(b=1.8, d=1.0, dimension=3):
    return dmlmc.QuadraticLoss(dimension=dimension, L=2.0, M=5.0, rates=dmlmc.Rates(b=b, c=1.0, d=d))


class InnerMean(dmlmc.MultilevelLoss):
    """A nested expectation, with 2^level inner samples: a hierarchy that is no SDE."""

    def sample(self, key, level):
        return jax.random.normal(key, (2**level,))

    def coarsen(self, noise):
        return (noise[0::2] + noise[1::2]) / 2

    def loss(self, params, noise):
        return jnp.exp(params * jnp.mean(jnp.sin(noise)))


@pytest.mark.parametrize(
    ("loss", "params"),
    [
        (lambda: quadratic(), lambda: jnp.array([1.0, -2.0, 0.5])),
        (lambda: InnerMean(), lambda: jnp.array(0.7)),
        (lambda: neural_loss(jnp.float64), lambda: neural_params(jnp.float64)),
        (lambda: neural_loss(jnp.float64, observation_times=[0.5, 1.0]), lambda: neural_params(jnp.float64)),
    ],
    ids=["quadratic", "nested", "sde", "observed sde"],
)
def test_differences_over_the_same_noise_telescope_to_the_finest_loss(x64, loss, params):
    loss, finest = loss(), 3

    def target(params, noise):
        return loss.loss(params, noise)

    def total(params, noise):
        differences = []
        for level in range(finest, -1, -1):
            differences.append(loss.difference(params, noise, level))
            noise = loss.coarsen(noise) if level else noise
        return sum(differences)

    @eqx.filter_jit
    def values_and_gradients(params, key):
        noise = loss.sample(key, finest)
        return [eqx.filter_value_and_grad(function)(params, noise) for function in (total, target)]

    for found, expected in zip(*map(jax.tree.leaves, values_and_gradients(params(), jax.random.key(0))), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_level_0_is_not_coupled():
    loss = InnerMean()
    noise = loss.sample(jax.random.key(0), 0)
    assert loss.difference(jnp.array(0.7), noise, 0) == loss.loss(jnp.array(0.7), noise)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_batch_is_its_samples_one_by_one(level):
    loss, params, keys = InnerMean(), jnp.array(0.7), jax.random.split(jax.random.key(level), 3)
    noises, each = loss.batch(keys, level), [loss.sample(key, level) for key in keys]
    np.testing.assert_array_equal(noises, each)
    np.testing.assert_allclose(loss.losses(params, noises), [loss.loss(params, one) for one in each], rtol=1e-6)
    differences = [loss.difference(params, one, level) for one in each]
    np.testing.assert_allclose(loss.differences(params, noises, level), differences, rtol=1e-5, atol=1e-6)
    if level:
        pairs = [loss.pair(params, one) for one in each]
        np.testing.assert_allclose(loss.pairs(params, noises), np.transpose(pairs), rtol=1e-6)


def test_a_pair_is_one_fine_path_unless_a_loss_says_otherwise():
    assert InnerMean().fine_paths == 1


@pytest.mark.parametrize(("b", "d"), [(1.8, 1.0), (2.0, 0.5)])
def test_quadratic_meets_assumptions_2_and_3_with_equality(x64, b, d):
    loss, samples = quadratic(b, d), 40_000
    x, y = np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.1, -0.4])

    @eqx.filter_jit
    def gradients(params, keys, level):
        gradient = jax.grad(lambda params, key: loss.difference(params, loss.sample(key, level), level))
        return jax.vmap(gradient, (None, 0))(params, keys)

    for level in range(4):
        keys = jax.random.split(jax.random.key(level), samples)
        noisy, elsewhere = (np.asarray(gradients(point, keys, level)) for point in (x, y))
        mean = 2.0 ** (-d * level) * loss.L * x
        np.testing.assert_allclose(noisy.mean(0), mean, atol=5 * (loss.M * 2 ** (-b * level) / 3 / samples) ** 0.5)
        # |noise|^2 is M 2^(-b l) / 3 times a chi-squared variable with 3 degrees of freedom, whose variance is 6.
        squares = np.sum((noisy - mean) ** 2, axis=1)
        scale = loss.M * 2 ** (-b * level)
        assert abs(squares.mean() - scale) < 4 * scale / 3 * (6 / samples) ** 0.5
        shifts = np.linalg.norm(noisy - elsewhere, axis=1)
        np.testing.assert_allclose(shifts, 2.0 ** (-d * level) * loss.L * np.linalg.norm(x - y), rtol=1e-10)


def test_quadratic_mean_and_curvature_are_exact(x64):
    loss, x = quadratic(), jnp.array([1.0, -2.0, 0.5])
    assert loss.curvature(2) == 2.0 * 1.75
    np.testing.assert_allclose(jax.jit(jax.hessian(lambda p: loss.mean(p, 2)))(x), 3.5 * np.eye(3))
    assert loss.mean(jnp.zeros(3), 6) == 0.0
    noise = loss.sample(jax.random.key(0), 2)
    gradient = jax.jit(jax.grad(lambda p: loss.difference(p, noise, 2)))(x)
    np.testing.assert_allclose(gradient, 0.25 * loss.L * x + (loss.M * 2 ** (-2 * 1.8) / 3) ** 0.5 * noise[2])


def test_a_32_bit_quadratic_stays_so_in_64_bit_mode(x64):
    assert quadratic().loss(jnp.ones(3, jnp.float32), jnp.ones((2, 3), jnp.float32)).dtype == jnp.float32


def test_mean_loss_uses_the_same_noise_for_the_same_key_in_chunks_of_any_size():
    loss, x = quadratic(), jnp.array([1.0, -2.0, 0.5])
    values = [dmlmc.mean_loss(loss, x, 2, 37, jax.random.key(1), chunk=chunk) for chunk in (1, 5, 37, 64)]
    np.testing.assert_allclose(values, values[0], rtol=1e-5)
    assert dmlmc.mean_loss(loss, x, 2, 37, jax.random.key(2)) != values[0]
    of_sample = eqx.filter_jit(lambda key, level: loss.loss(x, loss.sample(key, level)))
    by_hand = [of_sample(key, 2) for key in jax.random.split(jax.random.key(1), 37)]
    np.testing.assert_allclose(values[0], np.mean(by_hand), rtol=1e-5)
    (alone,) = jax.random.split(jax.random.key(1), 1)
    np.testing.assert_allclose(dmlmc.mean_loss(loss, x, 0, 1, jax.random.key(1)), of_sample(alone, 0), rtol=1e-6)


def test_mean_loss_takes_256_samples_at_once_or_as_many_as_the_loss_asks_for():
    sizes = []

    class Whole(InnerMean):
        def batch(self, keys, level):
            sizes.append(len(keys))
            return super().batch(keys, level)

    class Pieces(Whole):
        def samples_at_once(self, level):
            return level + 2

    dmlmc.mean_loss(Whole(), jnp.array(0.7), 1, 300, jax.random.key(0))
    dmlmc.mean_loss(Pieces(), jnp.array(0.7), 1, 7, jax.random.key(0))
    assert sizes == [256, 44, 3, 1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dimension": 0}, ValueError, "dimension must be at least 1"),
        ({"dimension": 1.5}, TypeError, "dimension must be an integer"),
        ({"L": 0.0}, ValueError, "L must be positive"),
        ({"M": -1.0}, ValueError, "M must be positive"),
        ({"M": "5"}, TypeError, "M must be a real number"),
        ({"rates": None}, TypeError, "rates must be a dmlmc.Rates"),
    ],
)
def test_bad_arguments_of_quadratic_are_named(paper_rates, arguments, error, message):
    with pytest.raises(error, match=f"QuadraticLoss: {message}"):
        dmlmc.QuadraticLoss(**{"dimension": 2, "L": 1.0, "M": 1.0, "rates": paper_rates, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": 0}, "samples must be at least 1"),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"level": -1}, "level must be at least 0"),
    ],
)
def test_bad_arguments_of_mean_loss_are_named(arguments, message):
    settings = {"level": 1, "samples": 4, "key": jax.random.key(0), **arguments}
    with pytest.raises(ValueError, match=f"mean_loss: {message}, got"):
        dmlmc.mean_loss(quadratic(), jnp.ones(3), **settings)


def test_mean_loss_of_no_loss_or_with_no_key_is_refused(own_errors):
    with pytest.raises(TypeError, match=r"^mean_loss: loss must be a dmlmc.MultilevelLoss, such as dmlmc.SDELoss\("):
        dmlmc.mean_loss(abs, jnp.ones(3), 1, 4, jax.random.key(0))
    with pytest.raises(TypeError, match=r"^mean_loss: key must be a key such as jax.random.key"):
        dmlmc.mean_loss(quadratic(), jnp.ones(3), 1, 4, 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: quadratic().loss(jnp.ones(2), jnp.ones((2, 3))), ValueError, r"params .* \(3,\), got shape \(2,\)\."),
        (lambda: quadratic().mean(1.0, 0), ValueError, r"params must have shape \(3,\), got 1.0\."),
        (lambda: quadratic().mean(jnp.ones(3), -1), ValueError, "level must be at least 0"),
        (
            lambda: quadratic().loss(jnp.ones(3), jnp.ones((2, 4))),
            ValueError,
            r"noise must have shape \(level \+ 1, 3\), as loss.sample\(key, level\) draws it, got shape \(2, 4\)\.",
        ),
        (lambda: quadratic().loss(jnp.ones(3), jnp.ones(3)), ValueError, r"noise .* got shape \(3,\)\."),
        (lambda: quadratic().loss(jnp.ones(3), 5), ValueError, r"noise .* got 5\."),
        (lambda: quadratic().sample(jax.random.key(0), -1), ValueError, "level must be at least 0"),
        (lambda: quadratic().sample(0, 1), TypeError, "key must be a key such as jax.random.key"),
    ],
)
def test_quadratic_params_noise_levels_and_keys_that_do_not_fit_are_named(own_errors, call, error, message):
    with pytest.raises(error, match=f"^QuadraticLoss: {message}"):
        call()


def test_the_interface_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        dmlmc.MultilevelLoss()


class Wrong(dmlmc.MultilevelLoss):
    """A loss of a user who got something wrong."""

    drawn: Any
    value: Any

    def sample(self, key, level):
        return self.drawn

    def coarsen(self, noise):
        return noise

    def loss(self, params, noise):
        return self.value


def test_noise_that_is_none_and_losses_that_are_no_numbers_are_named():
    keys = jax.random.split(jax.random.key(0), 2)
    with pytest.raises(TypeError, match=r"^Wrong: sample must return an array or a PyTree of them, got None\."):
        Wrong(None, jnp.zeros(())).batch(keys, 0)
    with pytest.raises(ValueError, match=r"^Wrong: loss must return .* got shape \(2,\)"):
        Wrong(jnp.zeros(1), jnp.zeros(2)).losses(jnp.ones(1), jnp.zeros((2, 1)))
