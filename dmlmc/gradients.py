"""The mean gradient of one level: chunk after chunk, each device its share of the samples."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key, PyTree

from dmlmc._internal.array_checks import returned
from dmlmc.devices import SAMPLES, devices_sharing, share_samples
from dmlmc.losses import MultilevelLoss


def mean_gradient(
    function: Callable[[Any, Any], Array], loss: MultilevelLoss, level: int, samples: int
) -> Callable[[PyTree, Key[Array, ""]], PyTree]:
    """``gradient(params, key)``: that of the mean of ``function(params, noises)`` over fresh noise.

    ``function`` is ``loss.losses`` or the coupled differences of a level. Inside of a ``jax.shard_map`` over samples
    each device computes its share, and the result is the gradient of all.
    """

    @eqx.filter_grad
    def gradient_of_chunk(params, keys, weights):
        losses = returned(f"{type(loss).__name__}: losses", function(params, loss.batch(keys, level)), keys.shape)
        return jnp.dot(weights.astype(losses.dtype), losses)

    def gradient(params, key):
        devices = devices_sharing()
        device = 0 if devices is None else jax.lax.axis_index(SAMPLES)
        slots = share_samples(samples, devices or 1, loss.samples_at_once(level))
        source, weights = (jnp.asarray(of_all)[device] for of_all in slots)
        # Forward and backward pass of a chunk follow each other, so its intermediates are still in the cache.
        inputs = (jr.split(key, samples)[source], weights)
        zeros = jax.tree.map(jnp.zeros_like, eqx.filter(params, eqx.is_inexact_array))
        total, _ = jax.lax.scan(
            lambda total, chunk: (jax.tree.map(jnp.add, total, gradient_of_chunk(params, *chunk)), None), zeros, inputs
        )
        return total if devices is None else jax.lax.psum(total, SAMPLES)

    return gradient
