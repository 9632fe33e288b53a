"""Streaming MLMC: every level is simulated a chunk at a time, so that a step is as short as the coarsest level's."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int, Key, PyTree

from dmlmc._internal.array_checks import alike, parameters, random_key
from dmlmc._internal.checks import instance, integer
from dmlmc.devices import SAMPLES, WHOLE, devices_sharing
from dmlmc.estimators import GradientEstimator, constant, level_gradients, multilevel, on_mesh, traced_step
from dmlmc.held import of_all_seeds
from dmlmc.schedule import HELD, STREAMING, Plan
from dmlmc.sde import SDELoss
from dmlmc.streaming.noise import passing, stretches
from dmlmc.streaming.pieces import Flight, Level0, Streams, observed_steps, pieces, start
from dmlmc.streaming.rows import Rows
from dmlmc.streaming.slices import put, take


def streaming_mlmc(loss: SDELoss, plan: Plan, *, stride: int = 1, mesh: Mesh | None = None) -> GradientEstimator:
    """Streaming MLMC: a step is as short as level 0, whatever the number of levels.

    A path of level l is ``2^l`` times as long as one of level 0. Here no step waits for it. A cohort of coupled pairs
    of level l starts every ``2^l`` steps. At every step it advances by one chunk, as long as a level-0 path: ``2^l``
    steps forward, then ``2^l`` steps back, through its own derivative. The gradient is used piece by piece as it comes
    back, each piece weighted by ``2^l``. Over a period the pieces of a cohort add up to its gradient. All pairs of all
    levels take their chunk in one batch, with the parameters of the step: the program has no branches and no copies of
    the parameters. Level 0 is computed whole at every step.

    The price is staleness: a piece of level l looks back up to ``2^(l+1)`` steps. It is small where d is near 1 or
    above. Where a learning rate is near its limit, use a larger ``stride``, clip gradients, or use a smaller rate.

    - ``loss``: a ``dmlmc.SDELoss``, with any of its options. Its ``samples_at_once`` is how many pairs take their chunk
      together, by default all. On a CPU with many pairs, some 200 are faster: the activations of a network stay in its
      cache.
    - ``plan``: from ``dmlmc.plan``. Its samples per step are kept: a cohort of level l has ``2^l`` times as many as
      MLMC of the same noise computes at a step, or N_l for the paper's allocation.
    - ``stride``: how many level-0 lengths to advance at every step, a power of two up to ``2^l_max``. The span of a
      step is ``stride``, the staleness is divided by it, and the levels up to ``log2(stride)`` are computed whole at
      every step. With ``2^l_max`` this is MLMC.
    - ``mesh``: devices that share the samples. Each keeps its own pairs.

    The state has all states of the paths in flight on the coarse grid of their pair: ``coarsest_steps / 2`` times
    ``sum 2^l N_l`` pairs of states, and no gradients. It is valid at any step. Level l joins when its first cohort has
    come forward, after ``2^l`` steps; before, the gradient is that of the levels below.
    Runs that are batched over seeds must share the step, as in ``dmlmc.train``.

    >>> import dmlmc
    >>> loss = dmlmc.SDELoss(
    ...     drift=lambda t, y, params: -params * y, diffusion=lambda t, y, params: 0.3 * jnp.ones((1, 1)),
    ...     terminal=lambda y, params: (y[0] - 0.5) ** 2, y0=jnp.ones(1), noise_dim=1, t1=1.0, coarsest_steps=4,
    ... )
    >>> plan = dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=8)
    >>> estimator = streaming_mlmc(loss, plan)
    >>> params = jnp.array(1.0)
    >>> grads, state = estimator.estimate(params, estimator.init(params), 0, jr.key(0))
    >>> grads.shape, estimator.method, estimator.span(0), dmlmc.mlmc(loss, plan).span(0)
    ((), 'streaming MLMC', 1.0, 64.0)
    """
    instance("streaming_mlmc: loss", loss, SDELoss, ", whose paths can be cut into chunks")
    instance("streaming_mlmc: plan", plan, Plan, ", made by dmlmc.plan(...)")
    stride = integer("streaming_mlmc: stride", stride, minimum=1, maximum=2**plan.max_level)
    if stride & (stride - 1):
        raise ValueError(f"streaming_mlmc: stride must be a power of two, got {stride}.")
    streamed = streamed_plan(replace(plan, fine_paths=loss.fine_paths), stride)
    if streamed.periods[-1] == 1:
        return multilevel("streaming_mlmc", STREAMING, loss, streamed, mesh)
    if loss.coarsest_steps * stride % 2:
        raise ValueError(
            "streaming_mlmc: coarsest_steps * stride must be even, since a coarse step is two fine steps, got "
            f"coarsest_steps={loss.coarsest_steps} and stride={stride}."
        )
    stream = Stream(loss, streamed, stride)
    span = max(cost / period for cost, period in zip(streamed.costs, streamed.periods, strict=True))
    costs = constant(streamed.mean_work()), constant(span)
    own: list[Any] = [PartitionSpec(SAMPLES)] * (len(Streams._fields) - 1)  # every device keeps its own pairs
    spec = Streams(WHOLE, *own)
    estimate = traced_step(eqx.filter_jit(stream.estimate))
    return on_mesh(mesh, GradientEstimator(stream.init, estimate, STREAMING, *costs, state_spec=spec))


def streamed_plan(plan: Plan, stride: int) -> Plan:
    """The plan with a new cohort of level l every ``2^l / stride`` steps, or at every step, and the same noise."""
    periods = tuple(max(1, 2**level // stride) for level in range(len(plan.samples)))
    divisors = plan.periods if plan.allocation == HELD else periods
    counts = zip(plan.samples, periods, divisors, strict=True)
    return replace(plan, samples=tuple(-(-n * p // divisor) for n, p, divisor in counts), periods=periods)


class Stream:
    """``init`` and ``estimate`` of streaming MLMC, for a plan of ``streamed_plan``."""

    def __init__(self, loss: SDELoss, plan: Plan, stride: int):
        self.loss, self.plan, self.stride = loss, plan, stride
        self.signs = np.array([-1.0, 0.5, 0.5] if loss.antithetic else [-1.0, 1.0])  # coarse, fine, antithetic
        self.iterations = loss.coarsest_steps * stride // 2
        first = stride.bit_length()  # the coarsest level that is longer than a chunk
        self.levels = [(level, plan.samples[level], plan.periods[level]) for level in range(first, len(plan.samples))]
        # With stride 1, level 0 is as long as a chunk and joins the batch. Else the levels up to the stride are
        # computed as MLMC computes them.
        self.whole = level_gradients("streaming_mlmc", loss, plan)[:first] if stride > 1 else []

    def init(self, params: PyTree) -> Streams:
        """Nothing is in flight. All states are initial ones, so that no derivative of theirs is undefined."""
        parameters("streaming_mlmc: params", params)
        loss, (rows, _) = self.loss, self.rows()
        one = start(loss, params, None if loss.context is None else loss.context(jr.key(0)))
        shape = len(rows.level), len(self.signs), loss.copies
        places = int(np.sum(rows.period)), self.iterations, *shape[1:]

        def filled(axes):
            return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*axes, *leaf.shape)), one)

        forward = filled(shape)
        observed = jnp.repeat(forward[0][..., None, :], len(observed_steps(loss)), axis=-2)
        nothing, zeros = jnp.zeros_like(observed), jax.tree.map(jnp.zeros_like, forward)
        coming = filled((shape[0], self.iterations, *shape[1:]))
        return Streams(jnp.array(-1), forward, observed, observed, nothing, zeros, coming, filled(places))

    def estimate(self, params: PyTree, state: Streams, step: Array, key: Key[Array, ""]) -> tuple[PyTree, Streams]:
        """The gradient of a step, and what is in flight after it."""
        wanted = "that of init(params) or of the step before"
        alike("streaming_mlmc: state", state, eqx.filter_eval_shape(self.init, params), wanted)
        random_key("streaming_mlmc: key", key)
        rows, groups = self.rows()
        begun = of_all_seeds(jnp.where(state.begun < 0, step, state.begun))
        doing = self.flight(rows, groups, state._replace(begun=None, kept=None), step, begun, key)

        def of_group(total, group):
            gradient, after = pieces(self.loss, params, *group)
            return jax.tree.map(jnp.add, total, gradient), after

        zeros = jax.tree.map(jnp.zeros_like, eqx.filter(params, eqx.is_inexact_array))
        gradient, after = jax.lax.scan(of_group, zeros, _in_groups(doing, groups))
        after = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), after)
        # Write first, then read what the next step needs: so XLA updates the array in place.
        kept = state.kept
        for block, first in rows.places(step - begun):
            kept = jax.tree.map(lambda leaf, new, b=block, i=first: put()(leaf, new[b], i), kept, after.kept)
        coming = [
            jax.tree.map(lambda leaf, n=block.stop - block.start, i=first: take(n)(leaf, i), kept)
            for block, first in rows.places(step + 1 - begun)
        ]
        coming = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *coming)
        if devices_sharing() is not None:
            gradient = jax.lax.psum(gradient, SAMPLES)
        for level, of_level in enumerate(self.whole):
            more = of_level(params, jr.fold_in(jr.fold_in(key, step), level))
            gradient = jax.tree.map(jnp.add, gradient, more)
        return gradient, after._replace(begun=begun, kept=kept, coming=coming)

    def rows(self) -> tuple[Rows, int]:
        """The pairs of one device, and the number of groups in which they are computed one after the other."""
        devices, at_once = devices_sharing() or 1, self.loss.at_once
        pairs = sum(-(-samples // devices) for _, samples, _ in self.levels)
        groups = 1 if at_once is None else -(-pairs // at_once)
        return Rows.of(self.levels, devices, groups), groups

    def flight(
        self, rows: Rows, groups: int, state: Streams, step: Array, begun: Array, key: Key[Array, ""]
    ) -> tuple[Flight, Level0 | None]:
        """What every pair does at a step, and the samples of level 0: those of MLMC at this step."""
        chunk, cohort = (step - begun) % jnp.asarray(rows.period), (step - begun) // jnp.asarray(rows.period)
        dtype = self.loss.dtype
        index, back = jnp.asarray(_device() * rows.share + rows.place), jnp.asarray(rows.period) - 1 - chunk
        counts = (cohort >= 1) & (index < rows.samples)  # false before the first cohort has arrived at its end
        weights = jnp.where(counts, 1 / rows.samples, 0.0)[:, None] * self.signs
        samples = self.plan.samples[0]
        share = groups * -(-samples // (groups * (devices_sharing() or 1))) if self.stride == 1 else 0
        index0 = _device() * share + jnp.arange(share)
        onward, homeward, singles = stretches(
            self.loss, rows, index, chunk, self.plan.samples, index0, step, key, self.iterations
        )
        passes, passes_back = (
            passing(rows, one, self.iterations, observed_steps(self.loss), dtype) for one in (chunk, back)
        )
        level0 = Level0(singles, jnp.where(index0 < samples, 1 / samples, 0.0).astype(dtype)) if share else None
        flight = Flight(
            chunk == 0, back == 0, jnp.asarray(rows.period, dtype), weights.astype(dtype), onward, homeward,
            passes, passes_back, state,
        )  # fmt: skip
        return flight, level0


def _device() -> Int[Array, ""] | int:
    return 0 if devices_sharing() is None else jax.lax.axis_index(SAMPLES)


def _in_groups(tree: PyTree, groups: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf.reshape(groups, -1, *leaf.shape[1:]), tree)
