"""The pieces of gradients that one step uses: every pair one chunk forward, one chunk back, and its loss in between."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from dmlmc.sde import SDELoss
from dmlmc.streaming.chunks import Paths, Stretch, backward, forward


class Streams(NamedTuple):
    """What is in flight: one cohort of coupled pairs per level on its way forward, one on its way back.

    All arrays but ``begun`` have a leading axis of pairs, the levels one after the other. The next axes are the paths
    of a pair (coarse, fine, and the antithetic one) and the copies. Without observation times, t1 is the only one.
    """

    begun: Any  # the step of the first estimate, -1 before it
    forward: PyTree  # the paths on their way forward: states, with what the solver carries
    observed: Float[Array, "pairs paths copies times dim"]  # their states at the observation times passed so far
    ended: Float[Array, "pairs paths copies times dim"]  # what ``terminal`` sees of the pairs on their way back
    pulls: Float[Array, "pairs paths copies times dim"]  # the derivative of the loss in these states
    adjoint: PyTree  # its derivative in the states that the way back has reached
    coming: PyTree  # the paths before every coarse step of the chunk that the way back takes at the next step
    kept: PyTree  # the same of all chunks, from the way forward: axis 0 has places for every pair and chunk


class Flight(NamedTuple):
    """Some pairs at one step: where they are and what they do."""

    turn: Bool[Array, " pairs"]  # whether a cohort has arrived at its end, so that it turns back and a new one starts
    finish: Bool[Array, " pairs"]  # whether a cohort is in its last chunk on the way back
    period: Float[Array, " pairs"]
    weights: Float[Array, "pairs paths"]  # of the losses on the way back
    onward: Stretch
    homeward: Stretch
    passing: Float[Array, "pairs iterations times"]  # 1 where an iteration ends at an observation time
    passing_back: Float[Array, "pairs iterations times"]
    state: Streams


class Level0(NamedTuple):
    """The paths of level 0, which is as long as a chunk."""

    stretch: Stretch
    weights: Float[Array, " samples"]


def pieces(loss: SDELoss, params: PyTree, flight: Flight, level0: Level0 | None) -> tuple[PyTree, Streams]:
    """The part of the gradient that these pairs give at this step, with level 0 if it is given, and their new state.

    A piece is the gradient through one chunk of the way back, weighted by the period. What the loss at the end gives by
    itself, because ``terminal`` depends on the parameters, is spread evenly over the period.
    """
    arrays, static = eqx.partition(params, eqx.is_inexact_array)
    state, stretches = flight.state, (flight.onward, None if level0 is None else level0.stretch)
    where = partial(_where, flight.turn)

    def starts(arrays):
        params = eqx.combine(arrays, static)
        paths = flight.weights.shape[1]
        return Paths(_starts(loss, params, flight.homeward, paths), _starts(loss, params, stretches[1], 1))

    begin = Paths(
        where(_starts(loss, params, flight.onward, flight.weights.shape[1]), state.forward),
        _starts(loss, params, stretches[1], 1),
    )
    end, kept, middle = forward(loss, params, begin, stretches)
    passed = jnp.concatenate([kept.pairs[0][1:], end.pairs[0][None]])
    observed = where(0.0, state.observed) + jnp.einsum("rit,irpcd->rpctd", flight.passing, passed)

    ended = where(state.observed, state.ended)
    ended0 = None if level0 is None else _observed(loss, kept.singles[0], middle, end.singles[0])
    own, pull, pull0 = _of_terminal(loss, params, flight, level0, ended, ended0)

    pulls = where(pull * _column(flight.period, pull), state.pulls)
    entering = Paths(
        jnp.einsum("rit,rpctd->irpcd", flight.passing_back, pulls), None if pull0 is None else _entering(loss, pull0)
    )
    nothing = jax.tree.map(jnp.zeros_like, end)
    stored = Paths(jax.tree.map(_swapped, state.coming), kept.singles)
    adjoint = Paths(where(nothing.pairs, state.adjoint), nothing.singles)
    through, adjoint = backward(loss, params, stored, (flight.homeward, stretches[1]), adjoint, entering)
    finished = Paths(_where(flight.finish, adjoint.pairs, nothing.pairs), adjoint.singles)
    _, pull_starts = jax.vjp(starts, arrays)
    gradient = jax.tree.map(lambda *parts: sum(parts), through, own, *pull_starts(finished))
    kept_pairs = jax.tree.map(_swapped, kept.pairs)
    return gradient, Streams(None, end.pairs, observed, ended, pulls, adjoint.pairs, None, kept_pairs)


def start(loss: SDELoss, params: PyTree, context: Any) -> PyTree:
    """A path before its first step."""
    times = jnp.array([0.0, loss.t1 / loss.coarsest_steps], loss.dtype)
    return loss.simulator(params, context, loss.dtype).start(times, jnp.zeros((1, loss.noise_dim), loss.dtype))


def observed_steps(loss: SDELoss) -> Int[np.ndarray, " times"]:
    """The steps of the coarsest grid at which ``terminal`` sees a path."""
    return np.array([loss.coarsest_steps] if loss.observed_steps is None else loss.observed_steps)


def _starts(loss: SDELoss, params: PyTree, stretch: Stretch | None, paths: int) -> PyTree:
    """All paths of a stretch before their first step."""
    if stretch is None:
        return None
    rows = len(stretch.dt)
    one = jax.vmap(lambda context: start(loss, params, context), axis_size=rows)(stretch.context)
    return jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf[:, None, None], (rows, paths, loss.copies, *leaf.shape[1:])), one
    )


def _of_terminal(
    loss: SDELoss, params: PyTree, flight: Flight, level0: Level0 | None, ended: Array, ended0: Array | None
) -> tuple[PyTree, Array, Array | None]:
    """Derivatives of the weighted losses: in the parameters, in what is seen of the pairs, and of level 0."""
    arrays, static = eqx.partition(params, eqx.is_inexact_array)

    def total(arrays, ended, ended0):
        params = eqx.combine(arrays, static)

        def of_one(states, context):
            states = states if loss.observed_steps is not None else states[:, 0]
            return loss.terminal_loss(states if loss.copies > 1 else states[0], params, context)

        losses = jax.vmap(jax.vmap(of_one, (0, None)))(ended, flight.homeward.context)
        if level0 is None:
            return jnp.sum(flight.weights * losses)
        losses0 = jax.vmap(of_one)(ended0[:, 0], level0.stretch.context)
        return jnp.sum(flight.weights * losses) + jnp.dot(level0.weights, losses0)

    return jax.grad(total, (0, 1, 2))(arrays, ended, ended0)


def _observed(loss: SDELoss, kept: Array, middle: Any, end: Array) -> Float[Array, "rows paths copies times dim"]:
    """The states of level 0 at the observation times, from those before, within and after all iterations."""
    after = jnp.stack([middle, jnp.concatenate([kept[1:], end[None]])], axis=1).reshape(-1, *end.shape)
    return jnp.moveaxis(after[observed_steps(loss) - 1], 0, -2)


def _entering(loss: SDELoss, pulls: Array) -> Float[Array, "iterations 2 rows paths copies dim"]:
    """Derivatives in the observed states of level 0, at the steps where the way back meets them."""
    by_time = jnp.moveaxis(pulls, -2, 0)
    steps = jnp.zeros((loss.coarsest_steps, *by_time.shape[1:]), by_time.dtype)
    return steps.at[observed_steps(loss) - 1].set(by_time).reshape(-1, 2, *by_time.shape[1:])


def _where(rows: Bool[Array, " pairs"], new: Any, old: PyTree) -> PyTree:
    """A new value in some rows."""
    if isinstance(new, float):
        new = jax.tree.map(lambda leaf: jnp.full((), new, leaf.dtype), old)
    return jax.tree.map(lambda new, old: jnp.where(_column(rows, old), new, old), new, old)


def _column(rows: Array, like: Array) -> Array:
    return rows.reshape(-1, *(1,) * (like.ndim - 1))


def _swapped(leaf: Array) -> Array:
    return jnp.swapaxes(leaf, 0, 1)
