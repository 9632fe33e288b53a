"""Many paths of an SDE advanced by a chunk of their time, all in one batch, forward and back.

A chunk is a number of iterations. In one of them a coupled pair takes two fine steps and one coarse step, and a single
path takes two steps. Pairs of different levels, which have different step sizes and are at different times, share every
operation: the parameters are the same for all of them.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from dmlmc.sde import SDELoss
from dmlmc.streaming.slices import without_axis_of_one


class Stretch(NamedTuple):
    """Which part of their time some pairs or single paths go through, and with which noise. A row is one sample."""

    t0: Float[Array, " rows"]
    dt: Float[Array, " rows"]  # of a fine step
    increments: Float[Array, "rows iterations 2 copies noise"]
    context: PyTree


Stretches = tuple[Stretch, Stretch | None]  # of the pairs and of the single paths


class Paths(NamedTuple):
    """States, with what the solver carries, of pairs and of single paths. Their first axes are (rows, paths, copies).

    The paths of a pair are the coarse one, the fine one and the antithetic one. ``singles`` is None if there are none.
    """

    pairs: PyTree
    singles: PyTree


def forward(
    loss: SDELoss, params: PyTree, start: Paths, stretches: Stretches
) -> tuple[Paths, Paths, Float[Array, "iterations rows paths copies dim"] | None]:
    """The paths at the end of a chunk, those before every iteration, and the single paths' states in its middle."""

    def body(paths, inputs):
        number, noise = inputs
        after, middle = _iteration(loss, params, paths, number, noise, stretches)
        return after, (paths, middle)

    end, (kept, middle) = jax.lax.scan(body, start, _inputs(stretches))
    return end, kept, middle


def backward(
    loss: SDELoss, params: PyTree, kept: Paths, stretches: Stretches, adjoint: Paths, entering: Paths
) -> tuple[PyTree, Paths]:
    """The gradient in the parameters, and the adjoint at the start of the chunk, from that at its end.

    ``kept`` is what ``forward`` returned. ``entering`` are derivatives in the states after every iteration, and for
    single paths also in its middle, that join the adjoint there: axis (iterations,) or (iterations, 2) in front.
    """
    arrays, static = eqx.partition(params, eqx.is_inexact_array)

    @without_axis_of_one
    def back(arrays, kept, stretches, adjoint, entering):
        def body(carry, inputs):
            gradient, adjoint = carry
            paths, entering, (number, noise) = inputs

            def iteration(arrays, paths):
                return _iteration(loss, eqx.combine(arrays, static), paths, number, noise, stretches)

            _, pull = jax.vjp(iteration, arrays, paths)
            more, adjoint = pull(_joined(adjoint, entering))
            return (jax.tree.map(jnp.add, gradient, more), adjoint), None

        start = jax.tree.map(jnp.zeros_like, arrays), adjoint
        return jax.lax.scan(body, start, (kept, entering, _inputs(stretches)), reverse=True)[0]

    return back(arrays, kept, stretches, adjoint, entering)


def _joined(adjoint: Paths, entering: Paths) -> tuple[Paths, Array | None]:
    """The adjoint after an iteration with what joins it there, and what joins it in its middle."""
    after = Paths(_added(adjoint.pairs, entering.pairs), adjoint.singles)
    if entering.singles is None:
        return after, None
    middle, last = entering.singles
    return after._replace(singles=_added(adjoint.singles, last)), middle


def _added(adjoint: PyTree, entering: Array) -> PyTree:
    state, *rest = adjoint
    return state + entering, *rest


def _inputs(stretches: Stretches) -> tuple[Array, Any]:
    pairs, singles = stretches
    increments = jnp.moveaxis(pairs.increments, 0, 2)
    of_singles = None if singles is None else jnp.moveaxis(singles.increments, 0, 2)
    return jnp.arange(increments.shape[0], dtype=increments.dtype), (increments, of_singles)


def _iteration(
    loss: SDELoss, params: PyTree, paths: Paths, number: Array, noise: Any, stretches: Stretches
) -> tuple[Paths, Array | None]:
    """Two fine steps and one coarse step of every pair, two steps of every single path; their states in the middle."""
    first, second = [], []
    for group, increments, stretch in zip(paths, noise, stretches, strict=True):
        if stretch is None:
            continue
        t0 = stretch.t0 + 2 * number * stretch.dt
        middle, t1 = t0 + stretch.dt, t0 + 2 * stretch.dt
        one, two = increments
        count = jax.tree.leaves(group)[0].shape[1]  # 1 for single paths, which have no coarse step
        moves = [(t1, one + two), (middle, one), (middle, two)][count == 1 : max(2, count)]
        first.append(_Batch(group, t0, *_stacked(moves), stretch.context))
        moves = [(t1, two), (t1, one)][: max(1, count - 1)]
        second.append((middle, *_stacked(moves), stretch.context))
    pairs, *singles = _step(loss, params, first)
    fine = jax.tree.map(lambda leaf: leaf[:, 1:], pairs)
    batches = [_Batch(group, *rest) for group, rest in zip([fine, *singles], second, strict=True)]
    fine, *ends = _step(loss, params, batches)
    pairs = jax.tree.map(lambda first, fine: jnp.concatenate([first[:, :1], fine], axis=1), pairs, fine)
    return (Paths(pairs, ends[0]), singles[0][0]) if ends else (Paths(pairs, None), None)


class _Batch(NamedTuple):
    """One solver step of many paths, from t0 to t1: axes (rows, paths, copies), fewer where all are the same."""

    paths: PyTree
    t0: Float[Array, " rows"]
    t1: Float[Array, "rows paths"]
    increments: Float[Array, "rows paths copies noise"]
    context: PyTree


def _stacked(moves: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    ends, increments = zip(*moves, strict=True)
    return jnp.stack(ends, axis=1), jnp.stack(increments, axis=1)


def _step(loss: SDELoss, params: PyTree, batches: list[_Batch]) -> list[PyTree]:
    """The paths of all batches after their step. One flat axis of paths: one product with every matrix of weights."""
    shapes = [batch.increments.shape[:3] for batch in batches]
    flat = [
        _Batch(
            jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[3:]), batch.paths),
            _per_path(batch.t0, shape),
            _per_path(batch.t1, shape, known=2),
            batch.increments.reshape(-1, batch.increments.shape[3]),
            jax.tree.map(lambda leaf, shape=shape: _per_path(leaf, shape), batch.context),
        )
        for batch, shape in zip(batches, shapes, strict=True)
    ]
    together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *flat)

    def step(paths, t0, t1, increment, context):
        return loss.simulator(params, context, loss.dtype).step(paths, t0, t1, increment)

    after = jax.vmap(step)(*together)
    sizes = [int(np.prod(shape)) for shape in shapes]
    parts = zip(np.cumsum(sizes), sizes, shapes, strict=True)
    return [_part(after, slice(end - size, end), shape) for end, size, shape in parts]


def _part(paths: PyTree, which: slice, shape: tuple[int, ...]) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[which].reshape(*shape, *leaf.shape[1:]), paths)


def _per_path(leaf: Array, shape: tuple[int, ...], known: int = 1) -> Array:
    """One entry for each path of a batch of this shape, from an array with the first ``known`` of its axes."""
    rest = leaf.shape[known:]
    wide = leaf.reshape(*leaf.shape[:known], *(1,) * (len(shape) - known), *rest)
    return jnp.broadcast_to(wide, (*shape, *rest)).reshape(-1, *rest)
