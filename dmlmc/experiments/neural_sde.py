"""An SDE whose drift and diffusion are networks, and a loss that fits its time marginals to data.

The distance between two laws P and Q is the squared maximum mean discrepancy (MMD) of a Gaussian kernel k,
``E k(Y, Y') - 2 E k(Y, X) + E k(X, X')`` with Y, Y' from P and X, X' from Q, all independent. It is smooth and zero
only if P = Q. With two independent copies of a path in one sample it is an expectation over samples, as multilevel
Monte Carlo needs. (The square of a difference of means is not: its Monte Carlo estimate is biased.)
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from dmlmc._internal.checks import integer, positive
from dmlmc.sde import SDELoss


class NeuralSDE(eqx.Module):
    """``dX = drift(X) dt + diffusion(X) dW`` for a scalar X. The ``-X`` in the drift pulls large values back."""

    drift_network: eqx.nn.MLP
    diffusion_network: eqx.nn.MLP

    def drift(self, x: Float[Array, ""]) -> Float[Array, ""]:
        return self.drift_network(x) - x

    def diffusion(self, x: Float[Array, ""]) -> Float[Array, ""]:
        return jax.nn.softplus(self.diffusion_network(x))


def initial_sde(key: Key[Array, ""], width: int = 16) -> NeuralSDE:
    """Random networks with one smooth hidden layer: b near 2 needs a differentiable diffusion.

    >>> sde = initial_sde(jr.key(0))
    >>> sde.drift(jnp.array(0.5)).shape, bool(sde.diffusion(jnp.array(0.5)) > 0)
    ((), True)
    """
    keys = jr.split(key)
    return NeuralSDE(*(eqx.nn.MLP("scalar", "scalar", width, 1, jnp.tanh, key=key) for key in keys))


class DoubleWell(eqx.Module):
    """The process to learn: a particle in the potential ``3 (x^2 - 1)^2 / 4``, with constant noise."""

    noise: float = 0.8

    def drift(self, x: Float[Array, ""]) -> Float[Array, ""]:
        return 3 * x * (1 - x**2)

    def diffusion(self, x: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.full_like(x, self.noise)


class KernelScore(eqx.Module):
    """A terminal loss whose mean is the squared MMD between the marginals of an SDE and data, summed over times.

    A call takes the states of two independent copies of a scalar path, as ``dmlmc.SDELoss(copies=2)`` passes them.
    It returns ``k(y, y') - mean k(y, x) - mean k(y', x)`` plus a constant, with
    ``k(x, y) = exp(-(x - y)^2 / (2 bandwidth^2))``. A single sample can be negative, the mean cannot.

    >>> score = KernelScore(jnp.array([[0.0, 1.0]]), bandwidth=1.0)
    >>> data = score.data  # the mean over all pairs of data points is the distance of the data from themselves: zero
    >>> pairs = jnp.stack(jnp.meshgrid(data[0], data[0]), axis=-1).reshape(4, 2, 1, 1)
    >>> bool(abs(jnp.mean(jax.vmap(score)(pairs))) < 1e-6), bool(abs(score.distance(data)) < 1e-6)
    (True, True)
    """

    data: Float[Array, "times points"]
    bandwidth: float
    constant: Float[Array, ""]

    def __init__(self, data: Any, bandwidth: float):
        self.data = jnp.asarray(data)
        if self.data.ndim != 2 or self.data.size == 0 or not jnp.issubdtype(self.data.dtype, jnp.floating):
            raise ValueError(
                f"KernelScore: data must be floats of shape (times, points), got {self.data.dtype} {self.data.shape}."
            )
        self.bandwidth = positive("KernelScore: bandwidth", bandwidth)
        self.constant = self._mean_kernel(self.data, self.data)

    def __call__(self, twins: Float[Array, "2 times 1"], params: PyTree = None) -> Float[Array, ""]:
        del params
        if twins.shape != (2, len(self.data), 1):
            raise ValueError(
                f"KernelScore: twins must have shape (2, {len(self.data)}, 1), two copies of a scalar path at each "
                f"time, got {twins.shape}."
            )
        states = twins[:, :, 0].T
        alike = jnp.sum(self._kernel(states[:, 0], states[:, 1]))
        return alike - 2 * self._mean_kernel(states, self.data) + self.constant

    def distance(self, states: Float[Array, "times paths"]) -> Float[Array, ""]:
        """The squared MMD between the data and many states: never negative.

        Its mean over pairs of paths includes each path with itself. It is therefore above that of their law by about
        one over the number of paths.
        """
        return self._mean_kernel(states, states) - 2 * self._mean_kernel(states, self.data) + self.constant

    def _kernel(self, x: Float[Array, "..."], y: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.exp(-((x - y) ** 2) / (2 * self.bandwidth**2))

    def _mean_kernel(self, xs: Float[Array, "times points"], ys: Float[Array, "times others"]) -> Float[Array, ""]:
        """The mean of the kernel over all pairs of points, summed over times."""
        return jnp.sum(jnp.mean(self._kernel(xs[:, :, None], ys[:, None, :]), axis=(1, 2)))


def fitting_loss(
    times: Sequence[float], level: int = 3, paths: int = 10_000, points: int = 64, *, coarsest_steps: int = 8
) -> SDELoss:
    """The problem of notebook 07: fit the marginals of ``DoubleWell`` at some times, by two copies of a path.

    The data are ``points`` quantiles of ``paths`` paths at ``level``, from a fixed key.

    >>> loss = fitting_loss([0.5, 1.0], level=0, paths=100, points=8)
    >>> loss.terminal.data.shape, loss.copies
    ((2, 8), 2)
    """

    def two_copies(terminal):
        return SDELoss(
            drift=lambda t, y, sde: sde.drift(y[0])[None],
            diffusion=lambda t, y, sde: sde.diffusion(y[0])[None, None],
            terminal=terminal,
            y0=jnp.zeros(1),
            noise_dim=1,
            copies=2,
            t1=1.0,
            coarsest_steps=coarsest_steps,
            observation_times=times,
        )

    world = two_copies(lambda y, sde: jnp.zeros(()))
    return two_copies(KernelScore(quantiles(marginals(world, DoubleWell(), level, paths, jr.key(0)), points), 0.5))


def marginals(
    loss: SDELoss, params: PyTree, level: int, paths: int, key: Key[Array, ""]
) -> Float[Array, "times {paths}"]:
    """States at the observation times, for a loss of two copies of a scalar path."""
    shape = getattr(loss.y0, "shape", None)
    if loss.observed_steps is None or loss.copies != 2 or shape != (1,):
        raise ValueError(
            f"marginals: loss must have observation_times, copies=2 and y0 of shape (1,), got copies={loss.copies} "
            f"and y0 of shape {shape}{' and no observation_times' * (loss.observed_steps is None)}."
        )
    paths, level = integer("marginals: paths", paths, minimum=1), integer("marginals: level", level, minimum=0)
    return _marginals(loss, params, level, paths, key)


@eqx.filter_jit
def _marginals(
    loss: SDELoss, params: PyTree, level: int, paths: int, key: Key[Array, ""]
) -> Float[Array, "times {paths}"]:
    noises = loss.batch(jr.split(key, -(-paths // 2)), level)
    states = jax.vmap(lambda noise: loss.states(params, noise))(noises)[..., 0]  # (samples, copies, times)
    return jnp.moveaxis(states, 2, 0).reshape(states.shape[2], -1)[:, :paths]


def quantiles(states: Float[Array, "times paths"], points: int) -> Float[Array, "times {points}"]:
    """Equally likely points for each time: far closer to the law than the same number of random points.

    >>> quantiles(jnp.linspace(0.0, 1.0, 101)[None], 2).round(2).tolist()
    [[0.25, 0.75]]
    """
    middles = (jnp.arange(integer("quantiles: points", points, minimum=1)) + 0.5) / points
    return jnp.quantile(states, middles, axis=1).T
