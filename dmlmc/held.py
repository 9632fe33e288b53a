"""The state of delayed MLMC: gradients that are held, and what a new plan can use of them."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree, Shaped

from dmlmc._internal.array_checks import layout


class Held(NamedTuple):
    """The state of delayed MLMC: the last gradient of every level that can be stale, and whether it was ever computed.

    A level that was never computed is computed at the first call, at whatever step. So a state from ``init`` is valid
    at any step.
    """

    gradients: dict[int, PyTree]
    computed: dict[int, Bool[Array, "..."]]  # a scalar, with an axis in front of it in a batch of seeds


def never_computed(levels: list[int], params: PyTree) -> Held:
    """The state before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, eqx.filter(params, eqx.is_inexact_array))
    return Held(dict.fromkeys(levels, zeros), dict.fromkeys(levels, jnp.array(False)))


def carried_over(state: Any, fresh: Any) -> Any:
    """``fresh``, the state of ``init``, with what ``state`` has of it: levels of delayed MLMC, or all of it."""
    if not (isinstance(fresh, Held) and isinstance(state, Held)):
        return state if layout(state) == layout(fresh) else fresh
    levels = {
        level: (state if level in state.gradients and _level(state, level) == _level(fresh, level) else fresh)
        for level in fresh.gradients
    }
    return Held(
        {level: source.gradients[level] for level, source in levels.items()},
        {level: source.computed[level] for level, source in levels.items()},
    )


def _level(state: Held, level: int) -> Any:
    return layout((state.gradients[level], state.computed[level]))


def all_computed(state: Any) -> bool:
    """Whether a state, perhaps that of a batch of seeds, has every gradient that it holds."""
    return not isinstance(state, Held) or all(bool(jnp.all(flag)) for flag in state.computed.values())


@jax.custom_batching.custom_vmap
def of_all_seeds(value: Shaped[Array, ""]) -> Shaped[Array, ""]:
    """A step that all seeds of a batch share, or whether all have a flag.

    It is not batched, so that what depends on it stays a branch, and places in arrays stay slices.
    """
    return value


@of_all_seeds.def_vmap
def _(axis_size, in_batched, values):
    del axis_size, in_batched
    return of_all_seeds(jnp.min(values, axis=0)), False
