"""The numbers are the same whatever the mesh: on eight devices of one process, and in two processes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

import dmlmc
from dmlmc import devices
from dmlmc.devices import share_samples
from tests.helpers.device_runs import ESTIMATORS, LOSS

ROOT = Path(__file__).parent.parent
TIMEOUT = 300  # seconds; what is run here takes about 30 on one core


def start(devices, *arguments):
    options = {"JAX_NUM_CPU_DEVICES": str(devices), "JAX_ENABLE_X64": "1"}
    command = [sys.executable, "-m", "tests.helpers.device_runs", *map(str, arguments)]
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag]
    environment = {**os.environ, **options, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(*processes):
    """What each wrote to stderr, once all have ended well."""
    try:
        written = [process.communicate(timeout=TIMEOUT)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, text in zip(processes, written, strict=True):
        assert process.returncode == 0, text
    return written


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    output = tmp_path_factory.mktemp("eight") / "found.json"
    finish(start(8, "eight", output))
    return json.loads(output.read_text())


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The directory, and by process its numbers and what it wrote to stderr."""
    directory = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outputs = [directory / f"{process}.json" for process in range(2)]
    written = finish(*(start(2, "two", output, process, port) for process, output in enumerate(outputs)))
    return directory, [json.loads(output.read_text()) for output in outputs], written


def assert_same(found, expected):
    assert found
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-12, atol=1e-14, err_msg=name)


@pytest.mark.parametrize(
    "mesh",
    ["8 samples", "4 samples, 2 seeds", "8 seeds", "3 samples, by jax.make_mesh", "4 seeds, no axis for samples"],
)
def test_every_mesh_gives_the_numbers_of_one_device(eight, mesh):
    assert_same(eight[mesh], eight["none"])


def test_seeds_that_do_not_divide_eight_devices_are_refused(eight):
    assert eight["3 seeds"].startswith("train: mesh must share the seeds equally, got 3 along 'seeds' for 8 seeds")


def test_an_even_mesh_takes_as_many_of_eight_devices_as_divide_the_seeds(eight):
    taken = {"1": 1, "6": 6, "7": 7, "12": 6}
    assert eight["even"] == {seeds: {"seeds": devices, "samples": 1} for seeds, devices in taken.items()}


def test_two_processes_give_the_numbers_of_one_device(eight, two):
    _, (first, second), _ = two
    assert first == second
    error = first.pop("error")
    assert "seed 6: the gradient is not finite at step 0" in error  # a seed of the second process stops the first too
    for found in first.values():
        assert_same(found, eight["none"])


def test_one_process_writes_and_shows(two):
    directory, _, (first, second) = two
    assert [file.name for file in (directory / "shared").iterdir()] == ["checkpoint.npz"]
    assert "delayed MLMC: 100%" in first and "delayed MLMC:" not in second
    assert all((directory / f"alone {process}" / "checkpoint.npz").exists() for process in range(2))


@pytest.mark.parametrize("at_once", [None, 1, 3, 100])
@pytest.mark.parametrize("devices", [1, 2, 7, 64])
@pytest.mark.parametrize("samples", [1, 2, 13, 64, 100])
def test_every_sample_counts_once_and_shares_are_equal(samples, devices, at_once):
    source, weights = share_samples(samples, devices, at_once)
    assert source.shape == weights.shape and source.shape[0] == devices
    np.testing.assert_allclose(np.bincount(source.ravel(), weights.ravel()), np.full(samples, 1 / samples))
    share, (_, chunks, size) = -(-samples // devices), source.shape
    assert size <= (at_once or share) and share <= chunks * size < share + chunks


def one(*axes):
    return Mesh(np.array(jax.devices()[:1]).reshape((1,) * len(axes)), axes)


def train(estimator, mesh):
    return dmlmc.train(estimator, optax.sgd(0.1), jnp.ones(3), 1, jax.random.key(0), mesh=mesh, progress=False)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: train(ESTIMATORS["naive"](LOSS), one("x")), ValueError, "train: the axes of mesh must be called 'sam"),
        (lambda: train(ESTIMATORS["naive"](LOSS), one()), ValueError, "the axes of mesh must be called"),
        (lambda: train(ESTIMATORS["naive"](LOSS), jax.devices()), TypeError, "train: mesh must be a jax.sharding.Mesh"),
        (
            lambda: train(ESTIMATORS["naive"](LOSS, mesh=one("samples")), one("seeds")),
            ValueError,
            "mesh must be that of the estimator",
        ),
        (lambda: ESTIMATORS["MLMC"](LOSS, mesh=one("samples", "x")), ValueError, "MLMC: the axes of mesh must be"),
        (lambda: ESTIMATORS["naive"](LOSS, mesh=4), TypeError, "naive: mesh must be a jax.sharding.Mesh"),
        (lambda: dmlmc.mesh(samples=0), ValueError, "mesh: samples must be at least 1"),
        (lambda: dmlmc.mesh(seeds=0), ValueError, "^mesh: seeds must be at least 1"),
        (lambda: dmlmc.mesh(seeds=jax.device_count() + 1), ValueError, "mesh: samples times seeds must be at most"),
        (lambda: dmlmc.mesh(samples=jax.device_count() + 1), ValueError, "samples times seeds must be at most"),
    ],
)
def test_bad_meshes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# What follows runs on all devices of this process: one in ``make test``, eight in tests/mutants.py.
DEVICES = jax.devices()
DIVISORS = [count for count in range(1, len(DEVICES) + 1) if len(DEVICES) % count == 0]


@pytest.mark.parametrize("seeds", DIVISORS)
def test_a_mesh_takes_all_devices_and_groups_are_neighbours(seeds):
    made = dmlmc.mesh(seeds=seeds)
    assert made.axis_names == ("seeds", "samples")
    np.testing.assert_array_equal(made.devices, np.array(DEVICES).reshape(seeds, -1))
    few = dmlmc.mesh(samples=1, seeds=seeds)
    np.testing.assert_array_equal(few.devices, np.array(DEVICES[:seeds]).reshape(seeds, 1))
    assert dict(dmlmc.mesh(samples=seeds).shape) == {"seeds": 1, "samples": seeds}


@pytest.mark.parametrize("seeds", [1, 6, 7, 12, len(DEVICES) + 1])
def test_an_even_mesh_has_the_largest_divisor_of_the_seeds(seeds):
    taken = max(count for count in range(1, len(DEVICES) + 1) if seeds % count == 0)
    assert devices.even_mesh(seeds).devices.tolist() == [[device] for device in DEVICES[:taken]]


def test_a_run_that_is_not_shared_is_on_the_first_device():
    alone = devices.one_device()
    assert alone.axis_names == ("seeds",) and alone.devices.tolist() == DEVICES[:1]


def test_a_checked_mesh_keeps_devices_and_names_but_no_types_of_axes():
    made = jax.make_mesh((len(DEVICES),), ("samples",), axis_types=(jax.sharding.AxisType.Explicit,))
    found = devices.check_mesh("train", made)
    assert found == Mesh(made.devices, ("samples",)) and found.devices.tolist() == made.devices.tolist()
    assert found.axis_types == (jax.sharding.AxisType.Auto,)


def test_samples_are_shared_within_a_mesh_and_nowhere_else():
    made, seen = dmlmc.mesh(), []

    def function(params, number):
        seen.append(devices.devices_sharing())
        assert params["label"] == 3
        return jnp.sum(jax.lax.all_gather(params["a"] + number, "samples"), axis=0)

    shared = devices.share_call(made, function, (PartitionSpec(), PartitionSpec("samples")), PartitionSpec())
    assert devices.devices_sharing() is None
    every = jnp.arange(1.0 * len(DEVICES))  # one number for each device
    total = float(jnp.sum(every))
    found = shared({"a": jnp.arange(2.0), "label": 3}, every)
    np.testing.assert_array_equal(found, [total, total + len(DEVICES)])
    within = jax.shard_map(
        lambda a: shared({"a": a, "label": 3}, 1.0), mesh=made, in_specs=PartitionSpec("samples"),
        out_specs=PartitionSpec("samples"), check_vma=False,
    )  # fmt: skip
    np.testing.assert_array_equal(within(every), np.full(len(DEVICES), total + len(DEVICES)))
    assert seen == [len(DEVICES)] * 2


def test_arrays_and_keys_are_placed_and_gathered_unchanged():
    by_seed = NamedSharding(dmlmc.mesh(samples=1, seeds=len(DEVICES)), PartitionSpec("seeds"))
    keys = jax.random.split(jax.random.key(0, impl="rbg"), 2 * len(DEVICES))
    tree = {"numbers": np.arange(2.0 * len(DEVICES), dtype=np.float32), "keys": keys}
    placed = devices.place(tree, by_seed)
    assert placed["numbers"].sharding == by_seed and jax.random.key_data(placed["keys"]).sharding.spec[0] == "seeds"
    assert placed["keys"].dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.key_data(placed["keys"]), jax.random.key_data(keys))
    np.testing.assert_array_equal(placed["numbers"], tree["numbers"])
    assert devices.gather(placed)["numbers"] is placed["numbers"]  # this process has all of it


def test_every_device_has_the_value_of_its_process():
    for made in (dmlmc.mesh(), devices.one_device(), dmlmc.mesh(samples=1, seeds=len(DEVICES))):
        values = devices.gather_values(made, 2.5)
        assert values.dtype == float and values.tolist() == [2.5] * made.size
        assert devices.leads(made)


def test_a_mesh_of_other_processes_is_refused(own_errors):
    with pytest.raises(TypeError, match=r"train: mesh must be a jax.sharding.Mesh, .* got AbstractMesh"):
        devices.check_mesh("train", AbstractMesh((2,), ("seeds",)))
