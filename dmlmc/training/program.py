"""The compiled program of a training run: many seeds at once, on one device or several."""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Key, PyTree

from dmlmc.devices import SEEDS, WHOLE, gather, gather_values, leads, place
from dmlmc.estimators import GradientEstimator
from dmlmc.training.step import Run, sgd_steps, start_run


class Program:
    """``advance`` and ``evaluate`` for a batch of seeds, each traced once and compiled ahead of its use.

    Every array of ``params`` and of a ``Run`` has a leading seed axis. ``validation`` returns a scalar float, or is
    None.
    """

    def __init__(
        self,
        estimator: GradientEstimator,
        optimiser: optax.GradientTransformation,
        params: PyTree,
        keys: Key[Array, " seeds"],
        *,
        validation: Callable[[Any], Array] | None,
        mesh: Mesh,
    ):
        trainable, self.static = eqx.partition(params, eqx.is_inexact_array)
        self.mesh, self.leads, self.validates = mesh, leads(mesh), validation is not None
        by_seed = PartitionSpec(SEEDS) if SEEDS in mesh.axis_names else WHOLE
        self.keys, trainable = place((keys, trainable), NamedSharding(mesh, by_seed))

        def compiled(function, *in_specs, **options):
            # Seeds do not communicate: shard_map gives every device its own. Devices that share samples carry the
            # same run, and the estimator adds up their shares.
            over_devices = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=by_seed, check_vma=False)
            return jax.jit(over_devices, **options)

        start = jax.vmap(lambda leaves: start_run(estimator, optimiser, leaves, self.static))
        self.initial = compiled(start, by_seed)(trainable)
        advance = jax.vmap(
            lambda run, key, first, last: sgd_steps(estimator, optimiser, self.static, run, first, last, key),
            in_axes=(0, 0, None, None),
        )
        specs = by_seed, by_seed, WHOLE, WHOLE
        zero = jnp.array(0)
        self._advance = compiled(advance, *specs, donate_argnums=0).trace(self.initial, self.keys, zero, zero)
        self._evaluate = None
        if validation is not None:
            evaluate = jax.vmap(lambda leaves: validation(eqx.combine(leaves, self.static)))
            self._evaluate = compiled(evaluate, by_seed).trace(self.initial.params)

    def fingerprints(self) -> dict[str, str]:
        """Hashes of what decides the numbers of this run, to recognise its checkpoint."""
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
        """Steps ``first``, ..., ``last - 1`` for every seed. The memory of the given run is reused."""
        return jax.block_until_ready(self._advance(run, self.keys, jnp.array(first), jnp.array(last)))

    def evaluate(self, run: Run) -> Float[np.ndarray, " seeds"]:
        """The validation loss of every seed, NaN if there is none."""
        if self._evaluate is None:
            return np.full(len(self.keys), np.nan)
        return np.asarray(gather(self._evaluate(run.params)), dtype=float)

    def params(self, run: Run) -> PyTree:
        """The parameters of every seed, with a leading seed axis."""
        return eqx.combine(gather(run.params), self.static)

    def values(self, value: float) -> Float[np.ndarray, " devices"]:
        """The value that every process has, the leading one's first. A barrier: processes wait for each other here."""
        return gather_values(self.mesh, value) if self.mesh.is_multi_process else np.array([float(value)])


def fingerprint(program: Any, arrays: PyTree) -> str:
    """A hash of a traced program (``jax.jit(f).trace(...)``) and of arrays: what decides the numbers of a run.

    Every constant of the program counts, a learning rate for instance.
    """
    digest = hashlib.sha256(same_in_every_process(str(program.jaxpr)).encode())
    for array in [*program.jaxpr.consts, *jax.tree.leaves(arrays)]:
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        values = np.asarray(jax.random.key_data(array) if is_key else array)
        digest.update(f"{values.shape}{values.dtype}".encode() + values.tobytes())
    return digest.hexdigest()


def same_in_every_process(printed: str) -> str:
    """A printed program without what differs between processes: addresses of functions, and the order of sets.

    Python orders a set of strings, such as the axes of a mesh, differently in every process.

    >>> same_in_every_process("f at 0x7f3a over frozenset({'seeds', 'samples'})")
    "f at  over frozenset('samples', 'seeds')"
    """
    without_addresses = re.sub(r"0x[0-9a-f]+", "", printed)
    return re.sub(
        r"frozenset\(\{([^{}]*)\}\)",
        lambda found: f"frozenset({', '.join(sorted(found[1].split(', ')))})",
        without_addresses,
    )
