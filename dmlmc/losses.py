"""The interface of a multilevel loss, and a quadratic loss whose constants are all known.

A ``dmlmc.MultilevelLoss`` draws the noise of one sample at a level, coarsens that noise by one level, and computes the
loss for given parameters and noise. ``dmlmc.SDELoss`` is the one for SDEs.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from dmlmc._internal.array_checks import random_key, returned
from dmlmc._internal.checks import instance, integer, positive
from dmlmc.rates import Rates


class MultilevelLoss(eqx.Module):
    """The interface of a loss that is simulated at levels 0, 1, 2, ...

    Subclasses implement ``sample``, ``coarsen`` and ``loss`` for *one* sample. ``noise`` is any PyTree from which its
    level can be read, for instance by its shape. A subclass that can simulate the two paths of a coupled pair together
    also overrides ``pair``. Estimators ask for batches: a subclass that is faster than ``jax.vmap`` of these methods
    overrides ``losses`` and ``pairs``.

    A hierarchy that is no SDE, the square of a mean estimated from ``2^level`` inner samples:

    >>> class SquaredMean(MultilevelLoss):
    ...     def sample(self, key, level):
    ...         return jr.normal(key, (2**level, 2))
    ...     def coarsen(self, noise):
    ...         return noise[0::2]
    ...     def loss(self, params, noise):
    ...         return (params - noise.mean()) ** 2
    >>> loss, params = SquaredMean(), jnp.array(1.0)
    >>> noise = loss.sample(jr.key(0), level=3)
    >>> fine, coarse = loss.pair(params, noise)
    >>> bool(loss.difference(params, noise, level=3) == fine - coarse)
    True
    """

    @abc.abstractmethod
    def sample(self, key: Key[Array, ""], level: int) -> PyTree:
        """Draw the noise of one sample at a level."""

    @abc.abstractmethod
    def coarsen(self, noise: PyTree) -> PyTree:
        """The same noise as seen one level coarser."""

    @abc.abstractmethod
    def loss(self, params: PyTree, noise: PyTree) -> Float[Array, ""]:
        """The scalar loss of one sample, at the level the noise was drawn for: the paper's hat F_l(x, xi)."""

    def pair(self, params: PyTree, noise: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Fine and coarse loss of one coupled pair, both on the same noise."""
        return self.loss(params, noise), self.loss(params, self.coarsen(noise))

    @property
    def fine_paths(self) -> int:
        """How many fine paths a coupled pair simulates, for the accounts of work."""
        return 1

    def samples_at_once(self, level: int) -> int | None:
        """How many samples of a batch to differentiate together, ``None`` for all. It affects speed and memory only.

        A loss with a long chain of steps is fastest with the whole batch in each step. A loss that is wide by itself
        is faster in chunks that fit the processor's cache.
        """
        del level
        return None

    def difference(self, params: PyTree, noise: PyTree, level: int) -> Float[Array, ""]:
        """The coupled difference of one sample."""
        if level == 0:
            return self._scalar(self.loss(params, noise))
        fine, coarse = self.pair(params, noise)
        return self._scalar(fine) - self._scalar(coarse)

    def batch(self, keys: Key[Array, " samples"], level: int) -> PyTree:
        """The noise of a batch, one sample for each key, with a leading sample axis on every array."""
        noises = jax.vmap(lambda key: self.sample(key, level))(keys)
        if not jax.tree.leaves(noises):
            raise TypeError(f"{type(self).__name__}: sample must return an array or a PyTree of them, got {noises!r}.")
        return noises

    def losses(self, params: PyTree, noises: PyTree) -> Float[Array, " samples"]:
        """The losses of a batch."""
        return jax.vmap(lambda noise: self._scalar(self.loss(params, noise)))(noises)

    def pairs(self, params: PyTree, noises: PyTree) -> tuple[Float[Array, " samples"], Float[Array, " samples"]]:
        """The fine and the coarse losses of a batch of coupled pairs."""

        def of_one(noise):
            fine, coarse = self.pair(params, noise)
            return self._scalar(fine), self._scalar(coarse)

        return jax.vmap(of_one)(noises)

    def differences(self, params: PyTree, noises: PyTree, level: int) -> Float[Array, " samples"]:
        """The coupled differences ``D_l = F_l - F_(l-1)`` of a batch, with ``F_(-1) = 0``."""
        if level == 0:
            return self.losses(params, noises)
        fine, coarse = self.pairs(params, noises)
        return fine - coarse

    def _scalar(self, value: Any) -> Float[Array, ""]:
        return returned(f"{type(self).__name__}: loss", value, ())


class QuadraticLoss(MultilevelLoss):
    """A loss for which Assumptions 2 and 3 hold with equality, to check the theory against.

    ``D_l(x, xi) = 2^(-d l) (L / 2) |x|^2 + sqrt(M 2^(-b l) / dimension) <xi_l, x>`` with standard normal xi_l:
    the gradient of D_l is exactly ``2^(-d l) L``-Lipschitz and its noise has variance exactly ``M 2^(-b l)``.
    The infimum of the mean at any level is 0, at x = 0. Parameters are a vector of length ``dimension``; ``rates``
    gives b and d.

    >>> quadratic = QuadraticLoss(dimension=3, L=2.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0))
    >>> float(quadratic.mean(jnp.ones(3), level=1))  # (1 + 1/2) * |x|^2
    4.5
    """

    dimension: int
    L: float
    M: float
    rates: Rates

    def __init__(self, dimension: int, L: float, M: float, rates: Rates):
        self.dimension = integer("QuadraticLoss: dimension", dimension, minimum=1)
        self.L = positive("QuadraticLoss: L", L)
        self.M = positive("QuadraticLoss: M", M)
        instance("QuadraticLoss: rates", rates, Rates)
        self.rates = rates

    def sample(self, key: Key[Array, ""], level: int) -> Float[Array, "{level}+1 dimension"]:
        level = integer("QuadraticLoss: level", level, minimum=0)
        return jr.normal(random_key("QuadraticLoss: key", key), (level + 1, self.dimension))

    def coarsen(self, noise: Float[Array, "levels dimension"]) -> Float[Array, "levels-1 dimension"]:
        return noise[:-1]

    def loss(self, params: Float[Array, " dimension"], noise: Float[Array, "levels dimension"]) -> Float[Array, ""]:
        if getattr(noise, "shape", ())[1:] != (self.dimension,):
            wanted = f"(level + 1, {self.dimension}), as loss.sample(key, level) draws it"
            raise ValueError(f"QuadraticLoss: noise must have shape {wanted}, got {_shape_of(noise)}.")
        scale = jnp.sqrt(self.M * 2.0 ** (-self.rates.b * jnp.arange(noise.shape[0])) / self.dimension)
        return self.mean(params, noise.shape[0] - 1) + jnp.dot(scale.astype(noise.dtype), noise @ params)

    def mean(self, params: Float[Array, " dimension"], level: int) -> Float[Array, ""]:
        """The exact mean loss at a level, the paper's F_l(x)."""
        if getattr(params, "shape", None) != (self.dimension,):
            raise ValueError(f"QuadraticLoss: params must have shape ({self.dimension},), got {_shape_of(params)}.")
        return self.curvature(integer("QuadraticLoss: level", level, minimum=0)) / 2 * jnp.sum(params**2)

    def curvature(self, level: int) -> float:
        """The exact smoothness constant of the mean loss at a level: ``L sum over k <= level of 2^(-d k)``."""
        return self.L * sum(2.0 ** (-self.rates.d * k) for k in range(level + 1))


def _shape_of(value: Any) -> str:
    return f"shape {value.shape}" if hasattr(value, "shape") else repr(value)


def mean_loss(
    loss: MultilevelLoss, params: PyTree, level: int, samples: int, key: Key[Array, ""], *, chunk: int | None = None
) -> Float[Array, ""]:
    """Monte Carlo mean of the loss at a level: the same key gives the same noise, whatever the parameters.

    ``params`` may be any that ``loss`` takes, ``samples`` is the number of paths at ``level``.
    This is the validation loss: ``validation=lambda params: dmlmc.mean_loss(loss, params, 6, 4096, key)``.
    Noise is drawn and used ``chunk`` samples at a time, so memory does not grow with ``samples``; by default as
    many as the loss asks for by ``samples_at_once``, or else 256.

    >>> quadratic = QuadraticLoss(dimension=1, L=2.0, M=1e-12, rates=Rates(b=1.8, c=1.0, d=1.0))
    >>> round(float(mean_loss(quadratic, jnp.ones(1), 1, 1000, jr.key(0))), 4)
    1.5
    """
    instance("mean_loss: loss", loss, MultilevelLoss, ", such as dmlmc.SDELoss(...)")
    random_key("mean_loss: key", key)
    samples = integer("mean_loss: samples", samples, minimum=1)
    level = integer("mean_loss: level", level, minimum=0)
    chunk = loss.samples_at_once(level) or 256 if chunk is None else integer("mean_loss: chunk", chunk, minimum=1)
    return _mean_loss(loss, params, level, samples, key, chunk)


@eqx.filter_jit
def _mean_loss(
    loss: MultilevelLoss, params: PyTree, level: int, samples: int, key: Key[Array, ""], chunk: int
) -> Float[Array, ""]:
    def total(keys):
        return jnp.sum(loss.losses(params, loss.batch(keys, level)))

    keys, whole = jr.split(key, samples), samples - samples % chunk
    totals = jax.lax.map(total, keys[:whole].reshape(-1, chunk))
    rest = total(keys[whole:]) if whole < samples else 0.0
    return (jnp.sum(totals) + rest) / samples
