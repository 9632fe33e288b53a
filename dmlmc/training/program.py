"""The compiled heart of a training run: one SGD step for many seeds at once, on one device or several."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dmlmc._internal.array_checks import returned
from dmlmc.devices import SEEDS, WHOLE, check_mesh, gather, gather_values, leads, place
from dmlmc.estimators import GradientEstimator
from dmlmc.training.checkpoint import fingerprint


class Run(NamedTuple):
    """What a run carries from step to step; every leaf has a leading seed axis."""

    params: Any
    optimiser_state: Any
    estimator_state: Any
    diverged_at: Array  # first step with a non-finite gradient, or -1


class Program:
    """``start``, ``advance`` and ``evaluate`` for a batch of seeds, each traced once and compiled ahead of its use."""

    def __init__(
        self,
        estimator: GradientEstimator,
        optimiser: optax.GradientTransformation,
        params: Any,
        keys: Array,
        *,
        params_per_seed: bool,
        validation: Callable[[Any], Array] | None,
        mesh: Mesh | None,
    ):
        estimator.init(params)  # raises for params that cannot be trained
        self.validates = validation is not None
        trainable, self.static = eqx.partition(params, eqx.is_inexact_array)
        trainable = _seed_axis(trainable, len(keys), params_per_seed)
        self.mesh = mesh = _mesh(mesh, estimator.mesh, len(keys))
        self.leads = leads(mesh)
        by_seed = PartitionSpec(SEEDS) if SEEDS in mesh.axis_names else WHOLE
        self.keys, trainable = place((keys, trainable), NamedSharding(mesh, by_seed))

        def start(trainable):
            state = estimator.init(eqx.combine(trainable, self.static))
            return Run(trainable, optimiser.init(trainable), state, jnp.array(-1))

        def sgd_step(run, key, step):
            params = eqx.combine(run.params, self.static)
            grads, estimator_state = estimator.checked(params, run.estimator_state, step, key)
            updates, optimiser_state = optimiser.update(grads, run.optimiser_state, run.params)
            finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(grads)]))
            diverged_at = jnp.where((run.diverged_at < 0) & ~finite, step, run.diverged_at)
            return Run(eqx.apply_updates(run.params, updates), optimiser_state, estimator_state, diverged_at)

        def advance(run, keys, first, last):
            # The step is not batched over seeds, so a level that is not due is skipped by a real branch.
            # The bounds are traced: a chunk of any length runs the same compiled program.
            step_all = jax.vmap(sgd_step, in_axes=(0, 0, None))
            return jax.lax.fori_loop(first, last, lambda step, run: step_all(run, keys, step), run)

        def evaluate(trainable):
            assert validation is not None

            def of_one(leaves):
                return returned("train: validation", validation(eqx.combine(leaves, self.static)), (), float)

            return jax.vmap(of_one)(trainable)

        def sharded(function, *in_specs):
            # Seeds never talk to each other: shard_map keeps every device to its own. Devices that share samples
            # carry the same run; the estimator adds up their shares.
            return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=by_seed, check_vma=False)

        self.initial = jax.jit(sharded(jax.vmap(start), by_seed))(trainable)
        self._advance = jax.jit(sharded(advance, by_seed, by_seed, WHOLE, WHOLE), donate_argnums=0).trace(
            self.initial, self.keys, jnp.array(0), jnp.array(0)
        )
        self._evaluate = None if validation is None else jax.jit(sharded(evaluate, by_seed)).trace(self.initial.params)

    def fingerprints(self) -> dict[str, str]:
        """What decides the numbers of this run, for telling its checkpoint from another's."""
        return {
            "mesh": str(dict(self.mesh.shape)),
            "loss, plan, optimiser or learning rate": fingerprint(self._advance, ()),
            "validation": "none" if self._evaluate is None else fingerprint(self._evaluate, ()),
            "key or start": fingerprint(self._advance, gather((self.initial, self.keys))),
        }

    def compile(self) -> None:
        """Compile now, so that the first step is as fast as any other."""
        self._advance = self._advance.lower().compile()
        self._evaluate = None if self._evaluate is None else self._evaluate.lower().compile()

    def advance(self, run: Run, first: int, last: int) -> Run:
        """Steps ``first``, ..., ``last - 1`` for every seed. The given run is used up."""
        return jax.block_until_ready(self._advance(run, self.keys, jnp.array(first), jnp.array(last)))

    def evaluate(self, run: Run) -> np.ndarray:
        """The validation loss of every seed, NaN if there is none."""
        if self._evaluate is None:
            return np.full(len(self.keys), np.nan)
        return np.asarray(gather(self._evaluate(run.params)), dtype=float)

    def params(self, run: Run) -> Any:
        """The parameters of every seed, with a leading seed axis."""
        return eqx.combine(gather(run.params), self.static)

    def values(self, value: float) -> np.ndarray:
        """The value that every process has, the leading one's first. Processes wait for each other here."""
        return gather_values(self.mesh, value) if self.mesh.is_multi_process else np.array([value])


def _seed_axis(trainable: Any, seeds: int, params_per_seed: bool) -> Any:
    if not params_per_seed:
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], seeds, axis=0), trainable)
    for leaf in jax.tree.leaves(trainable):
        if leaf.ndim == 0 or leaf.shape[0] != seeds:
            raise ValueError(
                f"train: with params_per_seed=True every array of params needs a leading axis of length {seeds}, "
                f"one entry per key, got shape {leaf.shape}."
            )
    return trainable


def _mesh(given: Mesh | None, of_estimator: Mesh | None, seeds: int) -> Mesh:
    mesh = of_estimator if given is None else check_mesh("train", given)
    if mesh is None:
        return Mesh(np.array(jax.local_devices()[:1]), (SEEDS,))
    if of_estimator not in (None, mesh):
        raise ValueError(f"train: mesh must be that of the estimator if both are given, got {mesh} and {of_estimator}.")
    if seeds % mesh.shape.get(SEEDS, 1):
        raise ValueError(
            f"train: mesh must share the seeds equally, got {mesh.shape[SEEDS]} along {SEEDS!r} for {seeds} seeds "
            "(one key per seed)."
        )
    return mesh
