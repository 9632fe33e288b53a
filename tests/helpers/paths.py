"""Brownian paths at grid points, to compare with solves by diffrax."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from dmlmc.brownian import coarsen


def path(increments: Float[Array, "steps noise_dim"]) -> Float[Array, "steps+1 noise_dim"]:
    """W at all grid points. At a point shared by two grids it is bit for bit the same number.

    A running sum would round differently on each grid. Here the even points are those of the coarser grid, by
    recursion, and an odd point adds its increment to the even point before it.

    >>> path(jnp.array([[1.0], [2.0], [3.0], [4.0]])).ravel().tolist()
    [0.0, 1.0, 3.0, 6.0, 10.0]
    """
    if increments.shape[0] % 2:
        return jnp.concatenate([jnp.zeros_like(increments[:1]), jnp.cumsum(increments, axis=0)])
    even = path(coarsen(increments))
    odd = even[:-1] + increments[0::2]
    interleaved = jnp.stack([even[:-1], odd], axis=1).reshape(increments.shape)
    return jnp.concatenate([interleaved, even[-1:]])
