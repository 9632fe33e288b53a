"""Slices and products that stay plain when a program is mapped over seeds, which share the step."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Int


def take(count: int, axis: int = 0) -> Callable[[Array, Int[Array, ""]], Array]:
    """``jax.lax.dynamic_slice_in_dim`` that stays one when mapped over arrays, where JAX makes it a gather.

    >>> pairs = jnp.arange(6).reshape(2, 3)
    >>> jax.vmap(take(2), (0, None))(pairs, 1).tolist()
    [[1, 2], [4, 5]]
    """
    plain = partial(jax.lax.dynamic_slice_in_dim, slice_size=count, axis=axis)
    return _along_the_next_axis(plain, lambda: take(count, axis + 1))


def put(axis: int = 0) -> Callable[[Array, Array, Int[Array, ""]], Array]:
    """``jax.lax.dynamic_update_slice_in_dim``, likewise: JAX makes it a scatter, for which XLA copies the whole array.

    >>> jax.vmap(put(), (0, None, None))(jnp.zeros((2, 3), int), jnp.array([7]), 1).tolist()
    [[0, 7, 0], [0, 7, 0]]
    """
    plain = partial(jax.lax.dynamic_update_slice_in_dim, axis=axis)
    return _along_the_next_axis(plain, lambda: put(axis + 1))


def _along_the_next_axis(plain: Callable[..., Array], next_axis: Callable[[], Any]) -> Any:
    """A function of arrays and a place. Mapped over arrays, it is ``next_axis()`` of the batch."""
    function = custom_vmap(lambda *arguments: plain(*arguments))

    @function.def_vmap
    def _(size: int, batched: Sequence[bool], *arguments: Array):
        if batched[-1]:  # every run has a place of its own: JAX knows how
            return jax.vmap(plain, [0 if one else None for one in batched])(*arguments), True
        *arrays, place = arguments
        whole = [
            array if one else jnp.broadcast_to(array, (size, *array.shape))
            for array, one in zip(arrays, batched, strict=False)
        ]
        return next_axis()(*whole, place), True

    return function


def without_axis_of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of arrays; mapped over a batch of one, it is computed without the axis of the batch.

    For one seed, XLA would transpose the weights of a network in every time step of a loop.

    >>> jax.vmap(without_axis_of_one(lambda matrix: matrix @ matrix))(jnp.ones((1, 2, 2))).shape
    (1, 2, 2)
    """
    mapped = custom_vmap(function)

    @mapped.def_vmap
    def _(size: int, batched: Any, *arguments: Any):
        if size > 1:
            found = jax.vmap(function, jax.tree.map(lambda one: 0 if one else None, batched))(*arguments)
        else:
            alone = jax.tree.map(lambda leaf, one: leaf[0] if one else leaf, arguments, tuple(batched))
            found = jax.tree.map(lambda leaf: leaf[None], mapped(*alone))
        return found, jax.tree.map(lambda _: True, found)

    return mapped
