"""The noise of a step: that of every pair's chunk on its way forward, of its chunk on its way back, and of level 0."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from dmlmc.sde import SDELoss
from dmlmc.streaming.chunks import Stretch
from dmlmc.streaming.rows import Rows

CONTEXTS = 2**31  # numbers from here on are those of contexts, below it of chunks


def stretches(
    loss: SDELoss,
    rows: Rows,
    index: Int[Array, " pairs"],
    chunk: Int[Array, " pairs"],
    samples: tuple[int, ...],
    index0: Int[Array, " samples0"],
    step: Int[Array, ""],
    key: Key[Array, ""],
    iterations: int,
) -> tuple[Stretch, Stretch, Stretch]:
    """What the pairs go through forward and back at a step, and level 0, all drawn in a few calls.

    ``index`` and ``index0`` number the pairs in their level and the samples of level 0, over all devices. The noise of
    a chunk depends on the step at which its cohort began, the level, the pair and the chunk, so the way back draws what
    the way forward drew. The noise of level 0 is that of MLMC.
    """
    pairs, twice = len(rows.level), np.tile(np.arange(len(rows.level)), 2)
    chunks = jnp.concatenate([chunk, rows.period - 1 - chunk])
    began = jnp.concatenate([step - chunk, step - chunk - rows.period])
    number = rows.number(index)[twice]
    keys = _folded(key, jnp.append(began, step), jnp.append(len(samples) + number + chunks, 0))
    keys0 = jr.split(keys[-1], samples[0])[jnp.minimum(index0, samples[0] - 1)]
    context = None
    if loss.context is not None:
        keys0, of_level0 = jnp.moveaxis(jax.vmap(jr.split)(keys0), 1, 0)  # as SDELoss.sample does
        of_pairs = _folded(key, began, number.astype(jnp.uint32) + np.uint32(CONTEXTS))
        context = jax.vmap(loss.context)(jnp.concatenate([of_pairs, of_level0]))
    shape = iterations, 2, loss.copies, loss.noise_dim
    normal = jax.vmap(lambda key: jr.normal(key, shape, loss.dtype))(jnp.concatenate([keys[:-1], keys0]))
    dt = loss.t1 / (loss.coarsest_steps * 2.0 ** np.append(rows.level[twice], np.zeros(len(index0))))
    increments = jnp.asarray(np.sqrt(dt), loss.dtype).reshape(-1, 1, 1, 1, 1) * normal
    t0 = jnp.append(chunks * jnp.asarray(loss.t1 / rows.period[twice], loss.dtype), jnp.zeros(len(index0), loss.dtype))
    every = Stretch(t0, jnp.asarray(dt, loss.dtype), increments, context)
    parts = slice(pairs), slice(pairs, 2 * pairs), slice(2 * pairs, None)
    onward, homeward, singles = (jax.tree.map(lambda leaf, part=part: leaf[part], every) for part in parts)
    return onward, homeward, singles


def _folded(key: Key[Array, ""], first: Array, second: Array) -> Key[Array, " many"]:
    return jax.vmap(lambda first, second: jr.fold_in(jr.fold_in(key, first), second))(first, second)


def passing(
    rows: Rows, chunk: Int[Array, " pairs"], iterations: int, observed: Int[np.ndarray, " times"], dtype: type
) -> Float[Array, "pairs iterations times"]:
    """1 where an iteration of a pair's chunk ends at an observation time, else 0."""
    ends = chunk[:, None] * iterations + np.arange(1, iterations + 1)
    wanted = observed * 2 ** (rows.level[:, None] - 1)
    return jnp.asarray(ends[:, :, None] == wanted[:, None, :], dtype)
