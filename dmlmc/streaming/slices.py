"""Steps and slices that stay plain when a program is mapped over seeds, which share the step."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Int


@custom_vmap
def of_any_seed(step: Int[Array, ""]) -> Int[Array, ""]:
    """A step that is the same for all seeds of a batch: not batched, so that places in arrays stay slices."""
    return step


@of_any_seed.def_vmap
def _(axis_size, in_batched, steps):
    del axis_size, in_batched
    return of_any_seed(jnp.max(steps, axis=0)), False


def take(count: int, axis: int) -> Callable[[Array, Array], Array]:
    """``dynamic_slice_in_dim`` that stays one when mapped over seeds, which share the place: JAX makes it a gather."""
    sliced = custom_vmap(lambda leaf, first: jax.lax.dynamic_slice_in_dim(leaf, first, count, axis))
    sliced.def_vmap(lambda size, batched, leaf, first: (take(count, axis + 1)(leaf, first), True))
    return sliced


def put(axis: int) -> Callable[[Array, Array, Array], Array]:
    """``dynamic_update_slice_in_dim``, likewise: JAX makes it a scatter, and XLA copies the whole array for it."""
    updated = custom_vmap(lambda leaf, new, first: jax.lax.dynamic_update_slice_in_dim(leaf, new, first, axis))
    updated.def_vmap(lambda size, batched, leaf, new, first: (put(axis + 1)(leaf, new, first), True))
    return updated
