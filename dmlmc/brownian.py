"""Brownian motion on nested time grids.

The increments of a path are drawn once, on its finest grid. A coarser grid gets the sums of neighbouring pairs, so the
two paths of a coupled pair are discretisations of the same Brownian motion.
"""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key


def increments(
    key: Key[Array, ""], steps: int, t1: float, noise_dim: int, dtype=float
) -> Float[Array, "{steps} {noise_dim}"]:
    """Independent N(0, t1 / steps) increments on ``steps`` equal steps of [0, t1].

    >>> increments(jr.key(0), steps=4, t1=1.0, noise_dim=2).shape
    (4, 2)
    """
    return jnp.asarray((t1 / steps) ** 0.5, dtype) * jr.normal(key, (steps, noise_dim), dtype)


def coarsen(fine: Float[Array, "steps *of_step"]) -> Float[Array, "steps//2 *of_step"]:
    """The increments of the same path on the grid with half as many steps: sums of neighbouring pairs.

    >>> coarsen(jnp.array([[1.0], [2.0], [3.0], [4.0]])).ravel().tolist()
    [3.0, 7.0]
    """
    if fine.shape[0] % 2:
        raise ValueError(f"coarsen: an even number of steps is needed to sum them in pairs, got {fine.shape[0]}.")
    return fine[0::2] + fine[1::2]
