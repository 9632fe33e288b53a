"""The loss of a simulated SDE: the steps of a diffrax solver inside a fixed-step scan."""

from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from dmlmc import brownian
from dmlmc._internal.array_checks import random_key, returned
from dmlmc._internal.checks import function, integer, numbers, positive
from dmlmc.losses import MultilevelLoss
from dmlmc.milstein import Milstein


class SDELoss(MultilevelLoss):
    """The expected terminal loss of ``dY = drift dt + diffusion dW`` on [0, t1], on ``coarsest_steps 2^level`` steps.

    - ``drift(t, y, params)`` returns shape ``(dim,)`` and ``diffusion(t, y, params)`` shape ``(dim, noise_dim)``,
      for a state ``y`` of shape ``(dim,)``. ``params`` is any PyTree, an equinox module for instance.
    - ``terminal(y, params)`` returns the scalar loss of one path, from its state at t1. With
      ``observation_times``, ``y`` holds the states at those times instead, shape ``(times, dim)``. These times lie on
      the coarsest grid, so that every level has them.
    - ``solver`` is any diffrax solver for Ito or Stratonovich SDEs that needs no Levy area: ``ItoMilstein``,
      ``Euler``, ``StratonovichMilstein``, ``EulerHeun``, ``Heun``, ``Midpoint``, ``ReversibleHeun``, ... It decides
      whether the SDE is of Ito or of Stratonovich. Milstein's strong order 1, hence b near 2, needs commutative noise.

    The floating point type is that of ``y0``.

    >>> loss = SDELoss(
    ...     drift=lambda t, y, params: -params["theta"] * y,
    ...     diffusion=lambda t, y, params: 0.3 * jnp.ones((1, 1)),
    ...     terminal=lambda y, params: jnp.sum((y - 1.0) ** 2),
    ...     y0=jnp.zeros(1), noise_dim=1, t1=1.0, coarsest_steps=10,
    ... )
    >>> noise = loss.sample(jax.random.key(0), level=2)
    >>> noise.shape, loss.loss({"theta": jnp.array(2.0)}, noise).shape, loss.states({"theta": 2.0}, noise).shape
    ((40, 1), (), (1,))
    """

    drift: Callable[[Any, Array, Any], Array]
    diffusion: Callable[[Any, Array, Any], Array]
    terminal: Callable[[Array, Any], Array]
    y0: Float[Array, " dim"]
    t1: float
    coarsest_steps: int
    noise_dim: int
    solver: diffrax.AbstractSolver
    observed_steps: tuple[int, ...] | None

    def __init__(
        self,
        drift: Callable[[Any, Array, Any], Array],
        diffusion: Callable[[Any, Array, Any], Array],
        terminal: Callable[[Array, Any], Array],
        y0: Any,
        t1: float,
        coarsest_steps: int,
        noise_dim: int,
        solver: diffrax.AbstractSolver | None = None,
        observation_times: Sequence[float] | None = None,
    ):
        function("SDELoss: drift", drift, "t", "y", "params")
        function("SDELoss: diffusion", diffusion, "t", "y", "params")
        function("SDELoss: terminal", terminal, "y", "params")
        self.drift, self.diffusion, self.terminal = drift, diffusion, terminal
        self.y0 = _vector_of_floats(y0)
        self.t1 = positive("SDELoss: t1", t1)
        self.coarsest_steps = integer("SDELoss: coarsest_steps", coarsest_steps, minimum=1)
        self.noise_dim = integer("SDELoss: noise_dim", noise_dim, minimum=1)
        self.solver = _fixed_step_solver(solver)
        self.observed_steps = _grid_steps(observation_times, self.t1, self.coarsest_steps)

    def sample(self, key: Key[Array, ""], level: int) -> Float[Array, "steps noise_dim"]:
        steps = self.coarsest_steps * 2 ** integer("SDELoss: level", level, minimum=0)
        return brownian.increments(random_key("SDELoss: key", key), steps, self.t1, self.noise_dim, self.y0.dtype)

    def coarsen(self, noise: Float[Array, "steps noise_dim"]) -> Float[Array, "steps//2 noise_dim"]:
        return brownian.coarsen(noise)

    def states(
        self, params: PyTree, noise: Float[Array, "steps noise_dim"]
    ) -> Float[Array, " dim"] | Float[Array, "times dim"]:
        """What ``terminal`` sees of one path: its state at t1, or those at the observation times."""
        times, _ = self._grid(noise)
        step = self._stepper(params)

        def body(path, inputs):
            t0, t1, increment = inputs
            path = step(path, t0, t1, increment)
            return path, self._seen(path)

        # Rematerialising the body stores only the states for the backward pass. On a CPU it is also faster.
        inputs = (times[:-1], times[1:], noise)
        return self._observed(
            *jax.lax.scan(jax.checkpoint(body, prevent_cse=False), self._start(params, times), inputs)
        )

    def loss(self, params: PyTree, noise: Float[Array, "steps noise_dim"]) -> Float[Array, ""]:
        return self._checked_terminal(self.states(params, noise), params)

    def pair(self, params: PyTree, noise: Float[Array, "steps noise_dim"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        # One scan over the coarse steps advances both paths, so the pair's chain of steps is as long as the fine
        # path's alone: the coarse step and the first of the two fine ones are a batch of two.
        times, coarse_steps = self._grid(noise, from_level=1)
        step = self._stepper(params)

        def body(paths, inputs):
            (t0, middle, t1), increments = inputs
            ends = jnp.stack([middle, t1])
            increments_of_both = jnp.stack([increments[0], increments[0] + increments[1]])
            both = jax.vmap(step, in_axes=(0, None, 0, 0))(_stack(*paths), t0, ends, increments_of_both)
            halfway, coarse = (jax.tree.map(lambda x, i=i: x[i], both) for i in (0, 1))
            fine = step(halfway, middle, t1, increments[1])
            return (fine, coarse), (self._seen(fine), self._seen(coarse))

        inputs = (
            (times[0:-1:2], times[1::2], times[2::2]),
            noise.reshape(coarse_steps, 2, self.noise_dim),
        )
        start = (self._start(params, times), self._start(params, times[::2]))
        (fine, coarse), seen = jax.lax.scan(jax.checkpoint(body, prevent_cse=False), start, inputs)
        observed = self._observed(fine, seen[0]), self._observed(coarse, seen[1])
        return self._checked_terminal(observed[0], params), self._checked_terminal(observed[1], params)

    def _grid(self, noise: Any, *, from_level: int = 0) -> tuple[Float[Array, " points"], int]:
        shape = getattr(noise, "shape", None)
        steps = shape[0] if shape else 0
        grids = [self.coarsest_steps << level for level in range(from_level, steps.bit_length())]
        if steps not in grids or shape != (steps, self.noise_dim):
            raise ValueError(
                f"SDELoss: noise must have shape (coarsest_steps * 2**level, noise_dim) = ({self.coarsest_steps} * "
                f"2**level, {self.noise_dim}) with level >= {from_level}, got {noise if shape is None else shape}; "
                "loss.sample(key, level) draws it."
            )
        return jnp.asarray(np.linspace(0.0, self.t1, steps + 1), self.y0.dtype), steps // 2

    def _terms(self, increment: Float[Array, " noise_dim"]) -> diffrax.MultiTerm:
        # A solver asks its control only for the increment over the whole step.
        control = diffrax.ControlTerm(self._checked_diffusion, lambda t0, t1: increment)
        return diffrax.MultiTerm(diffrax.ODETerm(self._checked_drift), control)

    def _checked_drift(self, t, y, params):
        return returned("SDELoss: drift", self.drift(t, y, params), self.y0.shape, self.y0.dtype)

    def _checked_diffusion(self, t, y, params):
        shape = (*self.y0.shape, self.noise_dim)
        return returned("SDELoss: diffusion", self.diffusion(t, y, params), shape, self.y0.dtype)

    def _start(self, params: PyTree, times: Float[Array, " points"]):
        terms = self._terms(jnp.zeros((self.noise_dim,), self.y0.dtype))
        return self.y0, self.solver.init(terms, times[0], times[1], self.y0, params)

    def _stepper(self, params: PyTree):
        def step(path, t0, t1, increment):
            y, solver_state = path
            terms = self._terms(increment)
            y, _, _, solver_state, _ = self.solver.step(terms, t0, t1, y, params, solver_state, made_jump=False)
            return y, solver_state

        return step

    def _seen(self, path):
        return None if self.observed_steps is None else path[0]

    def _observed(self, last, seen) -> Float[Array, " dim"] | Float[Array, "times dim"]:
        if self.observed_steps is None:
            return last[0]
        stride = seen.shape[0] // self.coarsest_steps
        return seen[np.array(self.observed_steps) * stride - 1]

    def _checked_terminal(self, states: Array, params: PyTree) -> Float[Array, ""]:
        return returned("SDELoss: terminal", self.terminal(states, params), ())


def _vector_of_floats(y0: Any) -> Float[Array, " dim"]:
    wanted = "SDELoss: y0 must be a vector of floats of shape (dim,)"
    try:
        array = jnp.asarray(y0)
    except (TypeError, ValueError):
        raise TypeError(f"{wanted}, got {y0!r}.") from None
    if array.ndim != 1 or array.size == 0 or not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{wanted}, got shape {array.shape} and dtype {array.dtype}.")
    if not isinstance(array, jax.core.Tracer) and not jnp.all(jnp.isfinite(array)):
        raise ValueError(f"SDELoss: y0 must be finite, got {y0!r}.")
    return array


def _stack(*trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _fixed_step_solver(solver: diffrax.AbstractSolver | None) -> diffrax.AbstractSolver:
    if solver is None or type(solver) is diffrax.ItoMilstein:
        return Milstein()
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
    return solver


def _grid_steps(times: Sequence[float] | None, t1: float, coarsest_steps: int) -> tuple[int, ...] | None:
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
            f"{t1 / coarsest_steps:g} in (0, {t1:g}], got {times!r}."
        )
    return tuple(int(step) for step in whole)
