"""An SDE whose drift and diffusion are networks, and a loss that fits its time marginals to data.

The distance of two laws P and Q used here is the squared maximum mean discrepancy (MMD) of a Gaussian kernel k,
``E k(Y, Y') - 2 E k(Y, X) + E k(X, X')`` with Y, Y' from P and X, X' from Q, all independent. It is smooth, zero only
if P = Q, and once two independent copies of a path are walked together it is an expectation over samples, as multilevel
Monte Carlo needs. (The square of a difference of means is not: its Monte Carlo estimate is biased.)
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import Array

from dmlmc._internal.checks import integer, positive
from dmlmc.sde import SDELoss


class NeuralSDE(eqx.Module):
    """``dX = drift(X) dt + diffusion(X) dW`` for a scalar X. Far out the drift pulls back, whatever was learned."""

    drift_network: eqx.nn.MLP
    diffusion_network: eqx.nn.MLP

    def drift(self, x: Array) -> Array:
        return self.drift_network(x) - x

    def diffusion(self, x: Array) -> Array:
        return jax.nn.softplus(self.diffusion_network(x))


def initial_sde(key: Array, width: int = 16) -> NeuralSDE:
    """Fresh networks with one smooth layer: b near 2 needs derivatives of the diffusion.

    >>> sde = initial_sde(jr.key(0))
    >>> sde.drift(jnp.array(0.5)).shape, bool(sde.diffusion(jnp.array(0.5)) > 0)
    ((), True)
    """
    keys = jr.split(key)
    return NeuralSDE(*(eqx.nn.MLP("scalar", "scalar", width, 1, jnp.tanh, key=key) for key in keys))


class DoubleWell(eqx.Module):
    """The process to be learned: a particle in the potential ``3 (x^2 - 1)^2 / 4``, pushed about by noise."""

    noise: float = 0.8

    def drift(self, x: Array) -> Array:
        return 3 * x * (1 - x**2)

    def diffusion(self, x: Array) -> Array:
        return jnp.full_like(x, self.noise)


class KernelScore(eqx.Module):
    """A terminal loss whose mean is the squared MMD between the marginals of an SDE and data, summed over times.

    ``data`` has shape (times, points). Called with the states of two independent copies of a path, shape (times, 2),
    as ``dmlmc.SDELoss`` hands them to its ``terminal``, it returns ``k(y, y') - mean k(y, x) - mean k(y', x)`` plus
    a constant, with ``k(x, y) = exp(-(x - y)^2 / (2 bandwidth^2))``. One sample can be negative, the mean cannot.

    >>> score = KernelScore(jnp.array([[0.0, 1.0]]), bandwidth=1.0)
    >>> data = score.data  # the mean over all pairs of data points is the distance of the data to themselves: none
    >>> pairs = jnp.stack(jnp.meshgrid(data[0], data[0]), axis=-1).reshape(4, 1, 2)
    >>> bool(abs(jnp.mean(jax.vmap(score)(pairs))) < 1e-6), bool(abs(score.distance(data)) < 1e-6)
    (True, True)
    """

    data: Array
    bandwidth: float
    constant: Array

    def __init__(self, data: Any, bandwidth: float):
        self.data = jnp.asarray(data)
        if self.data.ndim != 2 or self.data.size == 0 or not jnp.issubdtype(self.data.dtype, jnp.floating):
            raise ValueError(
                f"KernelScore: data must be floats of shape (times, points), got {self.data.dtype} {self.data.shape}."
            )
        self.bandwidth = positive("KernelScore: bandwidth", bandwidth)
        self.constant = self._mean_kernel(self.data, self.data)

    def __call__(self, twins: Array, params: Any = None) -> Array:
        del params
        if twins.shape != (len(self.data), 2):
            raise ValueError(
                f"KernelScore: needs two copies at each of {len(self.data)} times, shape ({len(self.data)}, 2), "
                f"got {twins.shape}."
            )
        alike = jnp.sum(self._kernel(twins[:, 0], twins[:, 1]))
        return alike - 2 * self._mean_kernel(twins, self.data) + self.constant

    def distance(self, states: Array) -> Array:
        """The squared MMD between the data and many states, shape (times, paths): never negative.

        It counts every pair of paths, a path with itself included, and so lies above that of their law by about one
        over the number of paths.
        """
        return self._mean_kernel(states, states) - 2 * self._mean_kernel(states, self.data) + self.constant

    def _kernel(self, x: Array, y: Array) -> Array:
        return jnp.exp(-((x - y) ** 2) / (2 * self.bandwidth**2))

    def _mean_kernel(self, xs: Array, ys: Array) -> Array:
        """The kernel's mean over all pairs of entries, summed over times."""
        return jnp.sum(jnp.mean(self._kernel(xs[:, :, None], ys[:, None, :]), axis=(1, 2)))


def marginals(loss: SDELoss, params: Any, level: int, paths: int, key: Array) -> Array:
    """States at the observation times, shape (times, paths), of a loss whose sample is two copies of a scalar path."""
    if loss.observed_steps is None or loss.y0.shape != (2,):
        raise ValueError("marginals: loss needs observation_times and a state of two copies, y0 of shape (2,).")
    paths, level = integer("marginals: paths", paths, minimum=1), integer("marginals: level", level, minimum=0)
    return _marginals(loss, params, level, paths, key)


@eqx.filter_jit
def _marginals(loss: SDELoss, params: Any, level: int, paths: int, key: Array) -> Array:
    noises = loss.batch(jr.split(key, -(-paths // 2)), level)
    states = jax.vmap(lambda noise: loss.states(params, noise))(noises)
    return jnp.moveaxis(states, 1, 0).reshape(states.shape[1], -1)[:, :paths]


def quantiles(states: Array, points: int) -> Array:
    """Each row condensed to equally likely points: far closer to its law than as many random ones.

    >>> quantiles(jnp.linspace(0.0, 1.0, 101)[None], 2).round(2).tolist()
    [[0.25, 0.75]]
    """
    middles = (jnp.arange(integer("quantiles: points", points, minimum=1)) + 0.5) / points
    return jnp.quantile(states, middles, axis=1).T
