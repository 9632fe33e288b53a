"""Checks of the arguments of ``dmlmc.SDELoss``."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dmlmc._internal.checks import numbers


def vector_of_floats(y0: Any) -> Float[Array, " dim"]:
    """The initial state, if it is an array."""
    wanted = "SDELoss: y0 must be a vector of floats of shape (dim,), or a function of params that returns one"
    try:
        array = jnp.asarray(y0)
    except (TypeError, ValueError):
        raise TypeError(f"{wanted}, got {y0!r}.") from None
    if array.ndim != 1 or array.size == 0 or not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{wanted}, got shape {array.shape} and dtype {array.dtype}.")
    if not isinstance(array, jax.core.Tracer) and not jnp.all(jnp.isfinite(array)):
        raise ValueError(f"SDELoss: y0 must be finite, got {y0!r}.")
    return array


def returned_start(y0: Any, dtype: Any) -> Float[Array, " dim"]:
    """The initial state, if a function returned it."""
    array = jnp.asarray(y0)
    if array.ndim != 1 or array.size == 0 or not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"SDELoss: y0 must return a vector of floats, got shape {array.shape} and dtype {array.dtype}."
        )
    return array.astype(dtype)


def increments_and_context(noise: Any) -> tuple[Any, Any]:
    """The two parts of a sample's noise, where there is a context."""
    if not isinstance(noise, tuple) or len(noise) != 2:
        raise TypeError(
            "SDELoss: noise must be a pair of increments and context, as loss.sample(key, level) draws it, got "
            f"{noise!r}."
        )
    return noise


def fixed_step_solver(solver: diffrax.AbstractSolver, antithetic: bool) -> diffrax.AbstractSolver:
    """A solver that takes one step at a time and needs no Levy area."""
    if isinstance(solver, type) or not isinstance(
        solver, diffrax.AbstractItoSolver | diffrax.AbstractStratonovichSolver
    ):
        raise TypeError(
            "SDELoss: solver must be an instance of a diffrax solver for SDEs, such as diffrax.ItoMilstein() or "
            f"diffrax.Heun(), got {solver!r}."
        )
    if isinstance(solver, diffrax.AbstractWrappedSolver):
        raise ValueError(f"SDELoss: solver must take one step at a time, without substeps, got {solver!r}.")
    if hasattr(solver, "minimal_levy_area"):
        raise ValueError(
            f"SDELoss: solver {type(solver).__name__} needs Levy areas, which are not simulated here; "
            "diffrax.ItoMilstein(), Euler(), EulerHeun(), Heun() and StratonovichMilstein() do without."
        )
    if antithetic and not isinstance(solver, diffrax.AbstractItoSolver):
        raise ValueError(
            "SDELoss: antithetic needs a solver for Ito SDEs, such as diffrax.ItoMilstein(), got "
            f"{type(solver).__name__}."
        )
    return solver


def grid_steps(times: Sequence[float] | None, t1: float, coarsest_steps: int) -> tuple[int, ...] | None:
    """The observation times as steps of the coarsest grid."""
    if times is None:
        return None
    steps = numbers("SDELoss: observation_times", times) * coarsest_steps / t1
    whole = np.round(steps)
    if (
        not np.all(np.diff(steps) > 0)
        or np.any(whole < 1)
        or np.any(whole > coarsest_steps)
        or not np.allclose(steps, whole, atol=1e-6)
    ):
        raise ValueError(
            "SDELoss: observation_times must increase and be multiples of t1 / coarsest_steps = "
            f"{t1 / coarsest_steps:g} in (0, {t1:g}], got {times!r}{_advice(steps / coarsest_steps, coarsest_steps)}."
        )
    return tuple(int(step) for step in whole)


def steps_of_noise(increments: Any, coarsest_steps: int, of_step: tuple[int, ...], from_level: int) -> int:
    """The number of steps of a sample's increments, which must be of some level from ``from_level`` on."""
    shape = getattr(increments, "shape", None)
    steps = shape[0] if shape else 0
    grids = [coarsest_steps << level for level in range(from_level, steps.bit_length())]
    if steps not in grids or shape != (steps, *of_step):
        raise ValueError(
            f"SDELoss: noise must have shape (coarsest_steps * 2**level, {'copies, ' * (len(of_step) > 1)}noise_dim)"
            f" = ({coarsest_steps} * 2**level, {', '.join(map(str, of_step))}) with level >= {from_level}, got "
            f"{increments if shape is None else shape}; loss.sample(key, level) draws it."
        )
    return steps


def _advice(shares: np.ndarray, coarsest_steps: int) -> str:
    """The least number of steps, not below the given one, whose grid has all the times."""
    if not np.all((shares > 0) & (shares <= 1)):
        return ""
    fractions = [Fraction(float(share)).limit_denominator(10_000) for share in shares]
    common = math.lcm(*(one.denominator for one in fractions))
    if common > 100_000 or not np.allclose([float(one) for one in fractions], shares, atol=1e-9):
        return ""
    return f"; coarsest_steps={common * math.ceil(coarsest_steps / common)} would do"
