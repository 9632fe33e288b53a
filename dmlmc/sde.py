"""The loss of a simulated SDE."""

from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from dmlmc import brownian
from dmlmc._internal import sde_arguments
from dmlmc._internal.array_checks import random_key, returned
from dmlmc._internal.checks import function, integer, positive, truth
from dmlmc.losses import MultilevelLoss
from dmlmc.milstein import Milstein
from dmlmc.paths import Simulator, coupled_batch, coupled_paths, one_path


class SDELoss(MultilevelLoss):
    """The expected terminal loss of ``dY = drift dt + diffusion dW`` on [0, t1], on ``coarsest_steps 2^level`` steps.

    - ``drift(t, y, params)`` returns shape ``(dim,)`` and ``diffusion(t, y, params)`` shape ``(dim, noise_dim)``,
      for a state ``y`` of shape ``(dim,)``. ``params`` is any PyTree, an equinox module for instance. If the state is a
      PyTree, take ``y0, unravel = jax.flatten_util.ravel_pytree(state)``; then ``unravel(y)`` is the state at y.
    - ``terminal(y, params)`` returns the scalar loss of one path, from its state at t1. With
      ``observation_times``, ``y`` holds the states at those times instead, shape ``(times, dim)``. These times lie on
      the coarsest grid, so that every level has them.
    - ``y0``: an array, or a function ``y0(params)``, so that an initial state can be trained.
    - ``solver`` is any diffrax solver for Ito or Stratonovich SDEs that needs no Levy area: ``ItoMilstein``,
      ``Euler``, ``StratonovichMilstein``, ``EulerHeun``, ``Heun``, ``Midpoint``, ``ReversibleHeun``, ... It decides
      whether the SDE is of Ito or of Stratonovich. Milstein's strong order 1, hence b near 2, needs commutative noise.
    - ``antithetic=True``, for noise that does not commute: the loss of the fine path is averaged with that of a second
      one, in which the two increments of every coarse step are swapped (Giles and Szpruch, 2014). A smooth loss has b
      near 2 again. The work of a pair is 2.5 fine paths in place of 1.5, its span is the same. Needs an Ito solver.
    - ``copies``: independent copies of the path in one sample. ``drift`` and ``diffusion`` are written for one copy,
      ``terminal`` sees a leading axis of copies. With two, ``(y[0] - a) * (y[1] - a)`` is an unbiased ``(E Y - a)^2``.
    - ``context(key)``: what else is random about a sample, such as an index into data, a start or a strike. It is drawn
      once per sample and shared by all its paths. Where it is given, it is the last argument of
      ``y0(params, context)``, ``drift(t, y, params, context)``, ``diffusion`` and ``terminal(y, params, context)``.
    - ``samples_at_once``: how many samples of a batch to simulate together, by default all. It bounds memory.

    The floating point type is that of ``y0``, or jax's default if that is a function.

    >>> loss = SDELoss(
    ...     drift=lambda t, y, params: -params["theta"] * y,
    ...     diffusion=lambda t, y, params: 0.3 * jnp.ones((1, 1)),
    ...     terminal=lambda y, params: jnp.sum((y - 1.0) ** 2),
    ...     y0=jnp.zeros(1), noise_dim=1, t1=1.0, coarsest_steps=10,
    ... )
    >>> noise = loss.sample(jax.random.key(0), level=2)
    >>> noise.shape, loss.loss({"theta": jnp.array(2.0)}, noise).shape, loss.states({"theta": 2.0}, noise).shape
    ((40, 1), (), (1,))

    Minibatches of observed series, one start and one end per row:

    >>> series = jnp.array([[1.0, 0.4], [2.0, 0.9], [3.0, 1.1]])
    >>> fit = SDELoss(
    ...     drift=lambda t, y, params, row: -params["theta"] * y,
    ...     diffusion=lambda t, y, params, row: 0.1 * jnp.ones((1, 1)),
    ...     terminal=lambda y, params, row: (y[0] - series[row, 1]) ** 2,
    ...     y0=lambda params, row: series[row, :1],
    ...     context=lambda key: jax.random.randint(key, (), 0, len(series)),
    ...     noise_dim=1, t1=1.0, coarsest_steps=4,
    ... )
    >>> increments, row = fit.sample(jax.random.key(0), level=1)
    >>> increments.shape, int(row) in (0, 1, 2), fit.loss({"theta": jnp.array(1.0)}, (increments, row)).shape
    ((8, 1), True, ())
    """

    drift: Callable[..., Array]
    diffusion: Callable[..., Array]
    terminal: Callable[..., Array]
    y0: Float[Array, " dim"] | Callable[..., Array]
    t1: float
    coarsest_steps: int
    noise_dim: int
    solver: diffrax.AbstractSolver
    observed_steps: tuple[int, ...] | None
    antithetic: bool
    copies: int
    context: Callable[[Key[Array, ""]], PyTree] | None
    at_once: int | None

    def __init__(
        self,
        drift: Callable[..., Array],
        diffusion: Callable[..., Array],
        terminal: Callable[..., Array],
        y0: Any,
        t1: float,
        coarsest_steps: int,
        noise_dim: int,
        solver: diffrax.AbstractSolver | None = None,
        observation_times: Sequence[float] | None = None,
        *,
        antithetic: bool = False,
        copies: int = 1,
        context: Callable[[Key[Array, ""]], PyTree] | None = None,
        samples_at_once: int | None = None,
    ):
        last = () if context is None else ("context",)
        function("SDELoss: drift", drift, "t", "y", "params", *last)
        function("SDELoss: diffusion", diffusion, "t", "y", "params", *last)
        function("SDELoss: terminal", terminal, "y", "params", *last)
        if context is not None:
            function("SDELoss: context", context, "key")
        self.drift, self.diffusion, self.terminal, self.context = drift, diffusion, terminal, context
        if callable(y0):
            function("SDELoss: y0", y0, "params", *last)
        self.y0 = y0 if callable(y0) else sde_arguments.vector_of_floats(y0)
        self.t1 = positive("SDELoss: t1", t1)
        self.coarsest_steps = integer("SDELoss: coarsest_steps", coarsest_steps, minimum=1)
        self.noise_dim = integer("SDELoss: noise_dim", noise_dim, minimum=1)
        self.copies = integer("SDELoss: copies", copies, minimum=1)
        self.antithetic = truth("SDELoss: antithetic", antithetic)
        solver = Milstein() if solver is None or type(solver) is diffrax.ItoMilstein else solver
        self.solver = sde_arguments.fixed_step_solver(solver, antithetic)
        self.observed_steps = sde_arguments.grid_steps(observation_times, self.t1, self.coarsest_steps)
        at_once = None if samples_at_once is None else integer("SDELoss: samples_at_once", samples_at_once, minimum=1)
        self.at_once = at_once

    @property
    def fine_paths(self) -> int:
        """How many fine paths a coupled pair has."""
        return 2 if self.antithetic else 1

    @property
    def dtype(self) -> Any:
        """The floating point type of states and noise."""
        return jnp.zeros(()).dtype if callable(self.y0) else self.y0.dtype

    def samples_at_once(self, level: int) -> int | None:
        return self.at_once

    def sample(self, key: Key[Array, ""], level: int) -> Any:
        """The increments of one sample, with a second axis of copies if there are several; with its context, if any."""
        steps = self.coarsest_steps * 2 ** integer("SDELoss: level", level, minimum=0)
        key = random_key("SDELoss: key", key)

        def draw(key):
            noise = brownian.increments(key, steps, self.t1, self.copies * self.noise_dim, self.dtype)
            return noise if self.copies == 1 else noise.reshape(steps, self.copies, self.noise_dim)

        if self.context is None:
            return draw(key)
        noise_key, context_key = jr.split(key)
        return draw(noise_key), self.context(context_key)

    def coarsen(self, noise: Any) -> Any:
        if self.context is None:
            return brownian.coarsen(noise)
        increments, context = noise
        return brownian.coarsen(increments), context

    def states(self, params: PyTree, noise: Any) -> Float[Array, "*copies_times dim"]:
        """What ``terminal`` sees of one sample: the state at t1, or those at the observation times; of every copy."""
        increments, context = self._split(noise)
        times = self._grid(increments)
        simulator = self.simulator(params, context, increments.dtype)
        return self._every_copy(lambda one: self._observed(*one_path(simulator, times, one)), increments)

    def loss(self, params: PyTree, noise: Any) -> Float[Array, ""]:
        return self.terminal_loss(self.states(params, noise), params, self._split(noise)[1])

    def pair(self, params: PyTree, noise: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
        fine, coarse = self._batch_of_pairs(params, jax.tree.map(lambda leaf: leaf[None], noise))
        return fine[0], coarse[0]

    def pairs(self, params: PyTree, noises: Any) -> tuple[Float[Array, " samples"], Float[Array, " samples"]]:
        if len(self._split(noises)[0]) > 1:
            return self._batch_of_pairs(params, noises)
        # A single path is faster as a vector than as a batch of one.
        return jax.vmap(lambda noise: self._pair_of_vectors(params, noise))(noises)

    def _batch_of_pairs(self, params: PyTree, noises: Any) -> tuple[Float[Array, " samples"], Float[Array, " samples"]]:
        increments, contexts = self._split(noises)
        samples, shape = len(increments), increments.shape[1:]
        times = self._grid(jax.ShapeDtypeStruct(shape, increments.dtype), from_level=1)
        # One axis of paths, the copies of a sample one after the other.
        steps = jnp.moveaxis(increments, 1, 0).reshape(len(times) - 1, samples * self.copies, self.noise_dim)
        per_path = jax.tree.map(lambda leaf: jnp.repeat(leaf, self.copies, axis=0), contexts)
        found = coupled_batch(
            lambda context: self.simulator(params, context, increments.dtype), per_path, times, steps,
            antithetic=self.antithetic,
        )  # fmt: skip

        def losses(last, states):
            seen = self._observed(last, states)  # (paths, dim), or (times, paths, dim)
            seen = seen if self.observed_steps is None else jnp.moveaxis(seen, 0, 1)
            seen = seen if self.copies == 1 else seen.reshape(samples, self.copies, *seen.shape[1:])
            return jax.vmap(lambda seen, context: self.terminal_loss(seen, params, context))(seen, contexts)

        return self._fine_and_coarse([losses(*path) for path in found])

    def _pair_of_vectors(self, params: PyTree, noise: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
        increments, context = self._split(noise)
        times = self._grid(increments, from_level=1)
        simulator = self.simulator(params, context, increments.dtype)

        def simulate(one):
            return [self._observed(*path) for path in coupled_paths(simulator, times, one, antithetic=self.antithetic)]

        seen = self._every_copy(simulate, increments)
        return self._fine_and_coarse([self.terminal_loss(states, params, context) for states in seen])

    def _fine_and_coarse(self, losses: list[Array]) -> tuple[Array, Array]:
        coarse, *fine = losses
        return (fine[0] + fine[1]) / 2 if self.antithetic else fine[0], coarse

    def _split(self, noise: Any) -> tuple[Any, Any]:
        return (noise, None) if self.context is None else sde_arguments.increments_and_context(noise)

    def _every_copy(self, simulate: Callable[[Array], Any], increments: Array) -> Any:
        return simulate(increments) if self.copies == 1 else jax.vmap(simulate, in_axes=1)(increments)

    def _grid(self, increments: Any, *, from_level: int = 0) -> Float[Array, " points"]:
        wanted = (self.noise_dim,) if self.copies == 1 else (self.copies, self.noise_dim)
        steps = sde_arguments.steps_of_noise(increments, self.coarsest_steps, wanted, from_level)
        return jnp.asarray(np.linspace(0.0, self.t1, steps + 1), increments.dtype)

    def simulator(self, params: PyTree, context: Any, dtype: Any) -> Simulator:
        """How one path of a sample with this context is simulated."""
        last = () if self.context is None else (context,)
        y0 = sde_arguments.returned_start(self.y0(params, *last), dtype) if callable(self.y0) else self.y0

        def drift(t, y, args):
            return returned("SDELoss: drift", self.drift(t, y, *args), y0.shape, y0.dtype)

        def diffusion(t, y, args):
            return returned("SDELoss: diffusion", self.diffusion(t, y, *args), (*y0.shape, self.noise_dim), y0.dtype)

        def terms(increment):  # a solver asks its control only for the increment over the whole step
            control = diffrax.ControlTerm(diffusion, lambda t0, t1: increment)
            return diffrax.MultiTerm(diffrax.ODETerm(drift), control)

        return Simulator(self.solver, terms, y0, (params, *last), self.observed_steps is not None)

    def _observed(self, last: Array, states: Array | None) -> Float[Array, "*times_paths dim"]:
        if self.observed_steps is None or states is None:
            return last
        stride = states.shape[0] // self.coarsest_steps
        return states[np.array(self.observed_steps) * stride - 1]

    def terminal_loss(self, states: Array, params: PyTree, context: Any) -> Float[Array, ""]:
        """The loss of one sample, from what ``terminal`` sees of it."""
        last = () if self.context is None else (context,)
        return returned("SDELoss: terminal", self.terminal(states, params, *last), ())
