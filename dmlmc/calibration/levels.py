"""Are the assumptions true for this loss? Gradients of single samples, level by level, reduced to means of blocks.

Losses of simulated paths are often heavy tailed: a handful of paths makes most of a second moment. So all levels get
*the same* noise, coarsened from the finest level. A rare path then moves all levels together, and a slope over levels
varies much less than the levels do. Standard errors must account for this correlation: every statistic is kept as one
number per block of samples, and ``dmlmc.fit_rates`` resamples whole blocks, the same ones at all levels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key, PyTree, Shaped

from dmlmc._internal.array_checks import alike, parameters, random_key
from dmlmc._internal.checks import instance, integer, positive_reals
from dmlmc.losses import MultilevelLoss


@dataclass(frozen=True)
class Measurement:
    """What ``dmlmc.measure_levels`` found at one point of the parameter space.

    - ``blocks``: one row per level and block, with block means of the squared norm of grad D_l (``second_moment``), of
      its square (``fourth_moment``), the unbiased ``variance`` within the block, the pathwise ``smoothness``, and for
      the telescoping check the coupled ``difference``, its ``slope`` towards the second point, and the ``loss`` and
      its ``loss_slope`` on other samples.
    - ``levels``: one row per level, for what is no mean of blocks. ``squared_mean`` is the squared norm of the mean of
      grad D_l, unbiased: the dot product of two independent half means, averaged over all ways to halve the blocks.
      ``mean_smoothness`` is that of the mean gradient, Assumption 3 proper, and ``noise_floor`` what it would show
      if the truth were zero.

    >>> from dmlmc import QuadraticLoss, Rates
    >>> quadratic = QuadraticLoss(dimension=2, L=2.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0))
    >>> found = measure_levels(quadratic, jnp.ones(2), 1.1 * jnp.ones(2), jr.key(0), max_level=1, samples=64)
    >>> len(found.blocks), len(found.levels), found.dominated_levels()
    (64, 2, [])
    """

    blocks: pd.DataFrame
    levels: pd.DataFrame

    def dominated_levels(self) -> list[int]:
        """Levels at which one or two samples make most of the second moment, so that it cannot be trusted."""
        table = self.table()
        return table.level[table["kurtosis"] > table.samples / 2].tolist()

    def table(self) -> pd.DataFrame:
        """One row per level: means over blocks with standard errors, kurtosis, and the telescoping check.

        ``kurtosis`` is ``E|g|^4 / (E|g|^2)^2`` for g = grad D_l: N samples give the second moment with a relative
        error of ``sqrt((kurtosis - 1) / N)``. ``consistency`` is ``|mean D_l + mean F_(l-1) - mean F_l|`` in standard
        errors, each mean from samples of its own; of the loss or of its slope towards the second point, whichever is
        worse. Above 3, the coarse path of a pair has another law than the fine path one level below.
        """
        grouped = self.blocks.groupby("level")
        mean, error = grouped.mean(), grouped.sem()
        table = self.levels.set_index("level")
        for name in ("second_moment", "variance", "smoothness"):
            table[name], table[f"{name}_error"] = mean[name], error[name]
        table["kurtosis"] = mean.fourth_moment / mean.second_moment**2
        gaps = []
        for difference, whole in (("difference", "loss"), ("slope", "loss_slope")):
            below, below_error = mean[whole].shift(fill_value=0.0), error[whole].shift(fill_value=0.0)
            gap = (mean[difference] + below - mean[whole]).abs()
            allowed = np.sqrt(error[difference] ** 2 + below_error**2 + error[whole] ** 2)
            rounding = 1e-6 * (mean[whole].abs() + below.abs())
            gaps.append(gap / np.maximum(allowed, rounding + np.finfo(float).tiny))
        table["consistency"] = np.maximum(*gaps)
        return table.reset_index()


def measure_levels(
    loss: MultilevelLoss,
    params: PyTree,
    other: PyTree,
    key: Key[Array, ""],
    *,
    max_level: int,
    samples: int,
    blocks: int = 32,
    chunk: int | None = None,
    steps: Sequence[float] | None = None,
) -> Measurement:
    """Statistics of the gradient of ``D_l = F_l - F_(l-1)`` at ``params``, for the levels 0, ..., ``max_level``.

    - ``loss``, ``params``: any ``dmlmc.MultilevelLoss`` and the point at which to measure it.
    - ``other``: a second point nearby, such as the next iterate of SGD. The pathwise smoothness is the mean of
      ``|grad D_l(other) - grad D_l(params)| / |other - params|`` with the same noise at both.
    - ``samples``: how many at each level, rounded up to whole ``blocks`` of two or more.
    - ``chunk``: samples differentiated together, by default as many as the loss asks for by ``samples_at_once``, or
      else 64. However many samples are asked for, memory holds what the gradients of one chunk need, the gradients
      themselves at two points, and ``2 * blocks`` mean gradients.
    - ``steps``: what one path costs at each level, by default how many random numbers it takes.
    - ``key``: decides the noise, the same for all levels.

    The floating point type is the caller's. Fine levels are differences of near-equal gradients: prefer 64-bit.

    >>> from dmlmc import QuadraticLoss, Rates
    >>> quadratic = QuadraticLoss(dimension=2, L=2.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0))
    >>> found = measure_levels(quadratic, jnp.ones(2), 1.1 * jnp.ones(2), jr.key(0), max_level=2, samples=512)
    >>> found.table().smoothness.round(3).tolist()
    [2.0, 1.0, 0.5]
    """
    instance("measure_levels: loss", loss, MultilevelLoss, ", such as dmlmc.SDELoss(...)")
    parameters("measure_levels: params", params)
    random_key("measure_levels: key", key)
    max_level = integer("measure_levels: max_level", max_level, minimum=0)
    blocks = integer("measure_levels: blocks", blocks, minimum=4)
    size = max(2, -(-integer("measure_levels: samples", samples, minimum=1) // blocks))
    if steps is None:
        steps = [_random_numbers(loss, level) for level in range(max_level + 1)]
    costs = positive_reals("measure_levels: steps", steps, length=max_level + 1)
    if chunk is not None:
        chunk = integer("measure_levels: chunk", chunk, minimum=1)
    here, there = (eqx.filter(point, eqx.is_inexact_array) for point in (params, other))
    alike("measure_levels: other", there, here, "shaped like params")
    distance = float(np.linalg.norm(_numpy(ravel_pytree(there)[0]) - _numpy(ravel_pytree(here)[0])))
    if not 0 < distance < np.inf:
        raise ValueError(f"measure_levels: other must differ from params, finitely, got a distance of {distance}.")
    pair_key, lone_key = jr.split(key)
    tables, rows = [], []
    for level, cost in enumerate(costs):
        at_once = chunk or loss.samples_at_once(level) or 64
        arguments = loss, params, other, level, blocks, jnp.asarray(size), at_once
        sums, gradients, changes = jax.tree.map(_numpy, _pair_blocks(*arguments, pair_key, max_level))
        lone = jax.tree.map(_numpy, _lone_blocks(*arguments, jr.fold_in(lone_key, level)))
        if not all(np.all(np.isfinite(values)) for values in (*sums.values(), *lone.values())):
            raise FloatingPointError(f"measure_levels: a loss or gradient at level {level} is not finite.")
        inner = (sums["second_moment"] - np.sum(gradients**2, axis=1)) * size / (size - 1)
        columns = {**sums, **lone, "variance": inner, "slope": sums["slope"] / distance}
        columns |= {"loss_slope": lone["loss_slope"] / distance, "smoothness": sums["smoothness"] / distance}
        tables.append(pd.DataFrame({"level": level, "block": range(blocks), **columns}))
        squared, error, _ = _squared_mean(gradients)
        change, _, floor = _squared_mean(changes)
        row = {"level": level, "samples": size * blocks, "steps": cost, "squared_mean": squared}
        row |= {"squared_mean_error": error, "noise_floor": floor**0.5 / distance}
        rows.append({**row, "mean_smoothness": max(change, 0.0) ** 0.5 / distance})
    return Measurement(pd.concat(tables, ignore_index=True), pd.DataFrame(rows))


def _random_numbers(loss: MultilevelLoss, level: int) -> float:
    noise = eqx.filter_eval_shape(lambda key: loss.sample(key, level), jr.key(0))
    return float(sum(leaf.size for leaf in jax.tree.leaves(noise)))


def _numpy(array: Shaped[Array, "..."]) -> Float[np.ndarray, "..."]:
    return np.asarray(array, np.promote_types(array.dtype, np.float32))  # pandas knows no floats of 16 bits


def _squared_mean(means: Float[np.ndarray, "blocks parameters"]) -> tuple[float, float, float]:
    """From block means: the squared norm of the mean, its jackknife error, and how much of the plain one is noise."""
    gram, count = means @ means.T, len(means)
    total, own, rows = gram.sum(), np.diag(gram), gram.sum(axis=1)
    estimate = (total - own.sum()) / (count * (count - 1))
    without = (total - 2 * rows + own - (own.sum() - own)) / ((count - 1) * (count - 2))
    error = np.sqrt((count - 1) / count * np.sum((without - without.mean()) ** 2))
    return float(estimate), float(error), max(float(total / count**2 - estimate), 0.0)


def _over_blocks(
    statistics: Callable[[Array], PyTree], key: Key[Array, ""], blocks: int, size: Int[Array, ""], chunk: int
) -> PyTree:
    """Block means of ``statistics``, a function from keys to arrays with a leading sample axis: chunk after chunk.

    Sample i belongs to block ``i mod blocks``. The number of samples per block is traced, so that measurements of any
    size share one compiled program per level.
    """

    def add(piece, total):
        index = piece * chunk + jnp.arange(chunk)
        found = statistics(jax.vmap(lambda sample: jr.fold_in(key, sample))(index))
        within = index < blocks * size
        share = jnp.where(within[:, None] & (index[:, None] % blocks == jnp.arange(blocks)), 1 / size, 0.0)
        return jax.tree.map(lambda old, new: old + jnp.tensordot(share.astype(new.dtype), new, (0, 0)), total, found)

    shapes = jax.eval_shape(lambda: statistics(jr.split(key, chunk)))
    zeros = jax.tree.map(lambda leaf: jnp.zeros((blocks, *leaf.shape[1:]), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, -(-blocks * size // chunk), add, zeros)


@eqx.filter_jit
def _pair_blocks(loss, params, other, level, blocks, size, chunk, key, finest):
    static = eqx.filter(params, eqx.is_inexact_array, inverse=True)
    here, unravel = ravel_pytree(eqx.filter(params, eqx.is_inexact_array))
    there = ravel_pytree(eqx.filter(other, eqx.is_inexact_array))[0]

    def difference(flat, noise):
        return loss.difference(eqx.combine(unravel(flat), static), noise, level)

    def statistics(keys):
        noises = loss.batch(keys, finest)
        for _ in range(finest - level):
            noises = jax.vmap(loss.coarsen)(noises)
        gradient_of_each = jax.vmap(jax.value_and_grad(difference), (None, 0))
        # One after the other: the program is compiled once and holds the intermediates of one point at a time.
        values, gradients = jax.lax.map(lambda flat: gradient_of_each(flat, noises), jnp.stack([here, there]))
        values, gradients, changes = values[0], gradients[0], gradients[1] - gradients[0]
        squares = jnp.sum(gradients**2, axis=1)
        sums = {"second_moment": squares, "fourth_moment": squares**2, "difference": values}
        sums |= {"slope": gradients @ (there - here), "smoothness": jnp.linalg.norm(changes, axis=1)}
        return sums, gradients, changes

    return _over_blocks(statistics, key, blocks, size, chunk)


@eqx.filter_jit
def _lone_blocks(loss, params, other, level, blocks, size, chunk, key):
    trainable, static = eqx.partition(params, eqx.is_inexact_array)
    towards = jax.tree.map(jnp.subtract, eqx.filter(other, eqx.is_inexact_array), trainable)

    def statistics(keys):
        noises = loss.batch(keys, level)
        losses_at = lambda trainable: loss.losses(eqx.combine(trainable, static), noises)  # noqa: E731
        return dict(zip(("loss", "loss_slope"), jax.jvp(losses_at, (trainable,), (towards,)), strict=True))

    return _over_blocks(statistics, key, blocks, size, chunk)
