import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmlmc import brownian
from tests.helpers.paths import path


@pytest.mark.parametrize("noise_dim", [1, 3])
@pytest.mark.parametrize("steps", [2, 12, 640])
def test_paths_agree_bit_for_bit_at_shared_grid_points(steps, noise_dim):
    fine = brownian.increments(jax.random.key(0), steps, 2.0, noise_dim)
    path_of = jax.jit(path)
    finest = np.asarray(path_of(fine))
    assert finest.shape == (steps + 1, noise_dim)
    stride = 1
    while fine.shape[0] % 2 == 0:
        fine, stride = jax.jit(brownian.coarsen)(fine), 2 * stride
        np.testing.assert_array_equal(path_of(fine), finest[::stride])


def test_a_path_is_the_running_sum_of_its_increments():
    fine = brownian.increments(jax.random.key(1), 24, 1.0, 2)
    np.testing.assert_allclose(jax.jit(path)(fine)[1:], np.cumsum(np.asarray(fine, float), axis=0), atol=1e-6)


def test_increments_are_independent_normals_of_the_right_variance(x64):
    steps, t1, paths = 4, 2.0, 200_000
    draw = jax.jit(jax.vmap(lambda key: brownian.increments(key, steps, t1, 1)[:, 0]))
    dw = np.asarray(draw(jax.random.split(jax.random.key(2), paths)))
    # A sample covariance of N(0, v) pairs has standard error v sqrt((1 + [i = j]) / paths).
    expected = (t1 / steps) * np.eye(steps)
    error = (t1 / steps) * np.sqrt((1 + np.eye(steps)) / paths)
    assert np.all(np.abs(np.cov(dw.T) - expected) < 4 * error)
    assert np.all(np.abs(np.mean(dw, axis=0)) < 4 * (t1 / steps / paths) ** 0.5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_is_the_one_asked_for(x64, dtype):
    assert brownian.increments(jax.random.key(0), 4, 1.0, 1, dtype).dtype == dtype


def test_an_odd_grid_cannot_be_coarsened():
    with pytest.raises(ValueError, match=r"even number of steps .* got 5\."):
        brownian.coarsen(jnp.ones((5, 1)))
