"""Meshes: devices that share the samples of every gradient, the seeds, or both.

A mesh may span several processes. Each of them then runs the same program and holds the arrays of its own devices.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int, PyTree

from dmlmc._internal.checks import integer

SAMPLES, SEEDS = "samples", "seeds"
WHOLE = PartitionSpec()


def mesh(samples: int | None = None, seeds: int = 1) -> Mesh:
    """A mesh for ``mesh=``: ``seeds`` groups of ``samples`` devices share the seeds, a group shares each gradient.

    ``samples`` defaults to the number of devices of all processes, divided by ``seeds``. The devices of a group are
    neighbours, since they add up their gradients. Groups do not communicate.

    If one of several processes dies, the others end too. They do not hang, and there is no exception to catch: jax
    aborts them, with "Terminating process because the JAX distributed service detected fatal errors" in the log.
    It does so at once if process 0 died, and for any other one after the ``heartbeat_timeout_seconds`` of
    ``jax.distributed.initialize``, 100 by default. Start all of them again with the same ``directory`` of
    ``dmlmc.train``, and they go on from the last checkpoint.

    >>> dict(mesh(samples=1, seeds=1).shape)
    {'seeds': 1, 'samples': 1}
    """
    devices = jax.devices()
    seeds = integer("mesh: seeds", seeds, minimum=1)
    samples = integer("mesh: samples", max(1, len(devices) // seeds) if samples is None else samples, minimum=1)
    if samples * seeds > len(devices):
        raise ValueError(
            f"mesh: samples times seeds must be at most {len(devices)}, the number of devices, got {samples} * {seeds} "
            '(a CPU can be split: jax.config.update("jax_num_cpu_devices", n) before anything else of jax).'
        )
    return check_mesh("mesh", Mesh(np.array(devices[: samples * seeds]).reshape(seeds, samples), (SEEDS, SAMPLES)))


def one_device() -> Mesh:
    """The mesh of a run that is not shared: this process's first device."""
    return Mesh(np.array(jax.local_devices()[:1]), (SEEDS,))


def even_mesh(seeds: int) -> Mesh:
    """A mesh of as many devices as share the seeds equally.

    >>> dict(even_mesh(seeds=1).shape)
    {'seeds': 1, 'samples': 1}
    """
    counts = range(1, jax.device_count() + 1)
    return mesh(samples=1, seeds=max(count for count in counts if seeds % count == 0))


def check_mesh(name: str, given: Any) -> Mesh:
    """The mesh, if its axes have the right names and it holds a device of this process."""
    if not isinstance(given, Mesh):
        raise TypeError(f"{name}: mesh must be a jax.sharding.Mesh, such as dmlmc.mesh(samples=4), got {given!r}.")
    if not given.axis_names or not set(given.axis_names) <= {SAMPLES, SEEDS}:
        raise ValueError(
            f"{name}: the axes of mesh must be called {SAMPLES!r} or {SEEDS!r}, as in dmlmc.mesh(samples=4, seeds=2), "
            f"got {given.axis_names}."
        )
    if not given.local_devices:
        raise ValueError(
            f"{name}: mesh must hold a device of every process, got none of process {jax.process_index()}."
        )
    return Mesh(given.devices, given.axis_names)  # a mesh of jax.make_mesh wants shardings in the types of all arrays


def devices_sharing() -> int | None:
    """How many devices share the samples. None if this is traced outside of a ``jax.shard_map`` over samples."""
    try:
        return jax.lax.axis_size(SAMPLES)
    except NameError:  # there is no such axis
        return None


def share_call(mesh: Mesh, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """``function(params, ...)`` on every device of the mesh, each with its share of the samples, as one compiled call.

    Within ``dmlmc.train``, which is already on the mesh, it is the function itself.
    """

    def shared(params, *rest):
        if devices_sharing() is not None:
            return function(params, *rest)
        arrays, static = eqx.partition(params, eqx.is_array)
        on_device = jax.shard_map(
            lambda arrays, *rest: function(eqx.combine(arrays, static), *rest),
            mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False,
        )  # fmt: skip
        return on_device(arrays, *rest)

    return eqx.filter_jit(shared)


def share_samples(
    samples: int, devices: int, at_once: int | None
) -> tuple[Int[np.ndarray, "{devices} chunks places"], Float[np.ndarray, "{devices} chunks places"]]:
    """Which sample each device computes in each place of each chunk, and its weight in the mean.

    Places that are left over repeat the last sample with weight 0.

    >>> source, weights = share_samples(samples=5, devices=2, at_once=2)
    >>> source.tolist(), (5 * weights).tolist()
    ([[[0, 1], [2, 3]], [[4, 4], [4, 4]]], [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]])
    """
    share = math.ceil(samples / devices)
    chunks = math.ceil(share / (at_once or share))
    index = np.arange(devices * chunks * math.ceil(share / chunks)).reshape(devices, chunks, -1)
    return np.minimum(index, samples - 1), (index < samples) / samples


def place(tree: PyTree, sharding: NamedSharding) -> PyTree:
    """Distribute arrays, of which every process has a whole copy, over a mesh."""

    def place_leaf(leaf):
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.device_put(leaf, sharding)
        # jax.device_put sends no keys to the devices of another process, only plain numbers.
        return jr.wrap_key_data(jax.device_put(jr.key_data(leaf), sharding), impl=jr.key_impl(leaf))

    return jax.tree.map(place_leaf, tree)


def gather(tree: PyTree) -> PyTree:
    """Arrays that this process can read whole. What other processes hold is sent here."""

    def gather_leaf(leaf):
        if leaf.is_fully_addressable or leaf.is_fully_replicated:
            return leaf
        return jax.jit(lambda array: array, out_shardings=NamedSharding(leaf.sharding.mesh, WHOLE))(leaf)

    return jax.tree.map(gather_leaf, tree)


def gather_values(given: Mesh, value: float) -> Float[np.ndarray, " devices"]:
    """The values of all processes, one per device of a mesh. A barrier: processes wait for each other here."""
    sharding = NamedSharding(given, PartitionSpec(given.axis_names))
    values = jax.make_array_from_callback((given.size,), sharding, lambda index: np.full(1, value, np.float32))
    return np.asarray(gather(values), dtype=float)


def leads(given: Mesh) -> bool:
    """Whether this process writes files and shows progress: it holds the first device of the mesh."""
    return given.devices.flat[0].process_index == jax.process_index()
