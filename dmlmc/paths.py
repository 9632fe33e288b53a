"""Paths of an SDE on a fixed grid: the steps of a diffrax solver in a scan, for one path, one coupled pair or many."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

State = Float[Array, " dim"]


class Simulator(NamedTuple):
    """The SDE of one sample: ``terms(increment)`` for the solver, where paths start, and whether to keep all states.

    A path is a pair of the state and what the solver carries from step to step.
    """

    solver: diffrax.AbstractSolver
    terms: Callable[[Float[Array, " noise_dim"]], diffrax.MultiTerm]
    y0: State
    args: PyTree
    keep: bool

    def start(self, times: Float[Array, " points"], increments: Float[Array, "steps noise_dim"]) -> tuple[State, Any]:
        """A path before its first step."""
        terms = self.terms(jnp.zeros_like(increments[0]))
        return self.y0, self.solver.init(terms, times[0], times[1], self.y0, self.args)

    def step(self, path: tuple[State, Any], t0: Any, t1: Any, increment: Float[Array, " noise_dim"]):
        """The path after one step."""
        y, solver_state = path
        y, _, _, solver_state, _ = self.solver.step(
            self.terms(increment), t0, t1, y, self.args, solver_state, made_jump=False
        )
        return y, solver_state

    def seen(self, path: tuple[State, Any]) -> State | None:
        """What a scan collects of a path."""
        return path[0] if self.keep else None


def one_path(
    simulator: Simulator, times: Float[Array, " points"], increments: Float[Array, "steps noise_dim"]
) -> tuple[State, Float[Array, "steps dim"] | None]:
    """The last state of a path, and the states after every step if the simulator keeps them."""

    def body(path, inputs):
        t0, t1, increment = inputs
        path = simulator.step(path, t0, t1, increment)
        return path, simulator.seen(path)

    # Rematerialising the body stores only the states for the backward pass. On a CPU it is also faster.
    start, inputs = simulator.start(times, increments), (times[:-1], times[1:], increments)
    (last, _), states = jax.lax.scan(jax.checkpoint(body, prevent_cse=False), start, inputs)
    return last, states


def coupled_paths(
    simulator: Simulator,
    times: Float[Array, " points"],
    increments: Float[Array, "steps noise_dim"],
    *,
    antithetic: bool = False,
) -> list[tuple[State, Float[Array, "coarse_steps dim"] | None]]:
    """The coarse path and the fine one on the same noise, and with ``antithetic`` a third: the fine one with the two
    increments of every coarse step swapped. States are kept on the coarse grid.

    One scan over the coarse steps advances all of them, so the chain of steps is as long as the fine path's alone: the
    coarse step and the first of two fine steps are one batch.
    """
    count = 3 if antithetic else 2

    def body(paths, inputs):
        (t0, middle, t1), (first, second) = inputs
        ends, increments = (t1, middle, middle), (first + second, first, second)
        after = _batched(simulator, paths, t0, ends[:count], increments[:count])
        fine = _batched(simulator, after[1:], middle, (t1, t1)[: count - 1], (second, first)[: count - 1])
        paths = (after[0], *fine)
        return paths, tuple(simulator.seen(path) for path in paths)

    start = (simulator.start(times[::2], increments), *[simulator.start(times, increments)] * (count - 1))
    inputs = (times[0:-1:2], times[1::2], times[2::2]), (increments[0::2], increments[1::2])
    last, states = jax.lax.scan(jax.checkpoint(body, prevent_cse=False), start, inputs)
    return [(path[0], seen) for path, seen in zip(last, states, strict=True)]


def _batched(simulator: Simulator, paths: Sequence[Any], t0: Any, ends: Sequence[Any], increments: Sequence[Any]):
    """One step of each path, as one batch."""
    if len(paths) == 1:
        return (simulator.step(paths[0], t0, ends[0], increments[0]),)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *paths)
    after = jax.vmap(simulator.step, in_axes=(0, None, 0, 0))(stacked, t0, jnp.stack(ends), jnp.stack(increments))
    return tuple(jax.tree.map(lambda leaf, which=which: leaf[which], after) for which in range(len(paths)))


def coupled_batch(
    simulator_of: Callable[[Any], Simulator],
    contexts: PyTree,
    times: Float[Array, " points"],
    increments: Float[Array, "steps pairs noise_dim"],
    *,
    antithetic: bool = False,
) -> list[tuple[Float[Array, "pairs dim"], Float[Array, "coarse_steps pairs dim"] | None]]:
    """``coupled_paths`` of many pairs, each with a context of its own.

    One scan over the fine steps. In each of them all fine paths take a step, and half of the coarse paths take theirs:
    the first half in the first of two fine steps, the other half in the second. So the loop has a single step of the
    solver, which compiles faster than two, and its batch always has the same size.
    """
    count, fine_paths = increments.shape[1], 2 if antithetic else 1
    half, fine = -(-count // 2), fine_paths * count
    halves = slice(half), slice(count - half, None)  # of an odd number they share one pair
    first, second = increments[0::2], increments[1::2]
    noise = [_alternating(first, second), _alternating(second, first)][:fine_paths]
    noise.append(_alternating(*((first + second)[:, part] for part in halves)))
    turns = [_joined(*[contexts] * fine_paths, _rows(contexts, part)) for part in halves]
    contexts_of_turn = jax.tree.map(lambda *leaves: jnp.stack(leaves), *turns)
    is_coarse = np.arange(fine + half) >= fine

    def start(times):
        return jax.vmap(lambda context: simulator_of(context).start(times, increments[:, 0]), axis_size=count)(contexts)

    def step(context, path, is_coarse, increment, fine_times, coarse_times):
        t0, t1 = jnp.where(is_coarse, coarse_times, fine_times)
        simulator = simulator_of(context)
        path = simulator.step(path, t0, t1, increment)
        return path, simulator.seen(path)

    def body(carry, inputs):
        paths, waiting = carry
        turn, increments, *times = inputs
        context = _rows(contexts_of_turn, turn)
        after, seen = jax.vmap(step, (0, 0, 0, 0, None, None))(context, paths, is_coarse, increments, *times)
        return (_joined(_rows(after, slice(fine)), waiting), _rows(after, slice(fine, None))), seen

    coarse, grid = start(times[::2]), np.arange(len(times) - 1)
    begin = _joined(*[start(times)] * fine_paths, _rows(coarse, halves[0])), _rows(coarse, halves[1])
    ends = times[np.stack([grid, grid + 1], axis=1)], times[np.stack([grid // 2 * 2, grid // 2 * 2 + 2], axis=1)]
    inputs = grid % 2, jnp.concatenate(noise, axis=1), *ends
    ((last, _), (other, _)), seen = jax.lax.scan(jax.checkpoint(body, prevent_cse=False), begin, inputs)
    shared = 2 * half - count
    found = [jnp.concatenate([last[fine:], other[shared:]]), *jnp.split(last[:fine], fine_paths)]
    states: list[Any] = [None] * len(found)
    if seen is not None:
        coarse_states = jnp.concatenate([seen[0::2, fine:], seen[1::2, fine + shared :]], axis=1)
        states = [coarse_states, *jnp.split(seen[1::2, :fine], fine_paths, axis=1)]
    return list(zip(found, states, strict=True))


def _rows(tree: PyTree, which: Any) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[which], tree)


def _alternating(even: Array, odd: Array) -> Array:
    return jnp.stack([even, odd], axis=1).reshape(2 * len(even), *even.shape[1:])


def _joined(*paths: PyTree) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *paths)
