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

one_seed_at_a_time = jax.custom_batching.sequential_vmap  # tests/benchmarks/seeds.py compares with all side by side


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

    def sum_of_chunks(params, inputs):
        # Forward and backward pass of a chunk follow each other, so its intermediates are still in the cache.
        def add_chunk(total, chunk):
            return jax.tree.map(jnp.add, total, gradient_of_chunk(params, *chunk)), None

        zeros = jax.tree.map(jnp.zeros_like, eqx.filter(params, eqx.is_inexact_array))
        return jax.lax.scan(add_chunk, zeros, inputs)[0]

    def gradient(params, key):
        devices = devices_sharing()
        device = 0 if devices is None else jax.lax.axis_index(SAMPLES)
        at_once = loss.samples_at_once(level)
        source, weights = (jnp.asarray(of_all)[device] for of_all in share_samples(samples, devices or 1, at_once))
        arrays, static = eqx.partition(params, eqx.is_array)

        def of_arrays(arrays, inputs):
            return sum_of_chunks(eqx.combine(arrays, static), inputs)

        # A full chunk fits the cache of a core, and those of several seeds side by side would not. Batches that do not
        # fill one are faster side by side.
        is_full = at_once is not None and weights.size >= at_once
        of_seeds = one_seed_at_a_time(of_arrays) if is_full else of_arrays
        total = of_seeds(arrays, (jr.split(key, samples)[source], weights))
        return total if devices is None else jax.lax.psum(total, SAMPLES)

    return gradient
