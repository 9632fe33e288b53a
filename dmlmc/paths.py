"""Paths of an SDE on a fixed grid: the steps of a diffrax solver in a scan, for one path or for a coupled pair."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
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
