"""Checkpoints under attack: killed runs, full disks, damaged files, two runs at once, and runs that are not theirs."""

import os
import random
import resource
import shutil
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.training import checkpoint
from dmlmc.training.program import PRINTED
from tests.helpers import killed
from tests.helpers.runs import PLAN, QUADRATIC, assert_same_run, halved, run


@pytest.fixture(scope="module")
def uninterrupted():
    return killed.train()


def test_a_run_killed_twenty_times_ends_as_if_never_interrupted(tmp_path, uninterrupted):
    assert killed.kill_repeatedly(tmp_path, times=20) >= 15
    assert_same_run(killed.train(tmp_path), uninterrupted)
    assert os.listdir(tmp_path) == [checkpoint.FILE_NAME]


def test_a_run_killed_while_it_writes_a_checkpoint_resumes(tmp_path, uninterrupted):
    process = killed.start(tmp_path, dies_at_save=4)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2  # the last good one and the torn one
    assert_same_run(killed.train(tmp_path), uninterrupted)
    assert os.listdir(tmp_path) == [checkpoint.FILE_NAME]


def test_a_second_run_in_the_same_directory_is_refused_at_once_and_harms_nothing(tmp_path, uninterrupted):
    first = killed.start(tmp_path)
    while not killed.written(tmp_path):
        assert first.is_alive()
        time.sleep(0.001)
    os.kill(first.pid, signal.SIGSTOP)  # in the middle of its training, however slow this test is
    try:
        with pytest.raises(dmlmc.CheckpointError, match=rf"another run is at work in {tmp_path}. Wait for it, or give"):
            killed.train(tmp_path)
    finally:
        os.kill(first.pid, signal.SIGCONT)
        first.join()
    assert first.exitcode == 0
    assert_same_run(killed.train(tmp_path), uninterrupted)


def test_a_directory_has_one_run_at_a_time_and_torn_files_go(tmp_path):
    directory = tmp_path / "made" / "here"
    used = f"checkpoint: another run is at work in {directory}. Wait for it"
    with checkpoint.alone(directory), pytest.raises(dmlmc.CheckpointError, match=used), checkpoint.alone(directory):
        pass
    for name in (f".1.{checkpoint.FILE_NAME}", checkpoint.FILE_NAME, "notes.txt"):
        (directory / name).touch()
    with pytest.raises(KeyboardInterrupt), checkpoint.alone(directory):
        assert sorted(os.listdir(directory)) == [checkpoint.FILE_NAME, "notes.txt"]
        raise KeyboardInterrupt
    open_files = len(os.listdir("/proc/self/fd"))
    with checkpoint.alone(directory), checkpoint.alone(None):  # the lock went with the run before
        pass
    assert len(os.listdir("/proc/self/fd")) == open_files


def no_locks(*arguments):
    raise OSError(95, "Operation not supported")


def test_without_locks_a_directory_is_used_and_torn_files_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint.fcntl, "flock", no_locks)
    torn = tmp_path / f".1.{checkpoint.FILE_NAME}"
    torn.touch()
    with checkpoint.alone(tmp_path):
        assert torn.exists()  # another run may be writing it
    monkeypatch.setattr(checkpoint, "fcntl", None)
    with checkpoint.alone(tmp_path):
        assert torn.exists()


def test_runs_work_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint.fcntl, "flock", no_locks)
    halved(6, directory=tmp_path)
    monkeypatch.setattr(checkpoint, "fcntl", None)
    assert_same_run(halved(directory=tmp_path), halved())


@pytest.fixture(scope="module")
def six_steps(tmp_path_factory):
    directory = tmp_path_factory.mktemp("six_steps")
    run(steps=6, directory=directory)
    return directory


@pytest.fixture
def stopped(six_steps, tmp_path):
    """The directory of a run that was stopped after six steps, and that a test may harm."""
    shutil.copy(six_steps / checkpoint.FILE_NAME, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"optimiser": optax.adam(0.2)}, "loss, plan, optimiser or learning rate"),
        ({"optimiser": optax.sgd(0.1)}, "loss, plan, optimiser or learning rate"),
        ({"key": jax.random.split(jax.random.key(1), 4)}, "key or start"),
        ({"params": 2 * jnp.ones(3)}, "key or start"),
        ({"params": jnp.ones(3, jnp.bfloat16)}, "loss, plan, optimiser or learning rate"),
        ({"evaluate_every": 4}, "evaluate_every"),
        ({"validation": lambda params: QUADRATIC.mean(params, 1)}, "validation or metrics"),
        ({"estimator": dmlmc.mlmc(QUADRATIC, PLAN)}, "method"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_kept(stopped, change, what):
    before = (stopped / checkpoint.FILE_NAME).read_bytes()
    with pytest.raises(dmlmc.CheckpointError, match=f"another run: its {what} differs"):
        run(steps=6, directory=stopped, **change)
    assert (stopped / checkpoint.FILE_NAME).read_bytes() == before


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    halved(6, directory=tmp_path)
    monkeypatch.setattr("dmlmc.training.store.version", lambda name: "0.0.1")
    with pytest.raises(dmlmc.CheckpointError, match=r"its dmlmc version differs \('.+' there, '0.0.1' here\)"):
        halved(6, directory=tmp_path)


def test_a_checkpoint_beyond_the_steps_asked_for_is_refused(tmp_path):
    halved(10, directory=tmp_path)
    with pytest.raises(ValueError, match=r"train: steps must be at least 10, where the run .* got 6"):
        halved(6, directory=tmp_path)


IDENTITY = {"method": "a test"}
STATE = {"params": jnp.arange(6.0).reshape(2, 3), "count": jnp.array([3, 4])}
RECORD = {"step": np.arange(5), "loss": np.linspace(0.0, 1.0, 10).reshape(5, 2)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved")
    checkpoint.save(directory, IDENTITY, STATE, RECORD)
    return directory


def assert_as_saved(loaded):
    assert loaded is not None
    for one, other in zip(jax.tree.leaves(loaded), jax.tree.leaves((STATE, RECORD)), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def is_refused_or_unharmed(directory, content):
    """The one thing that must not happen is that other numbers are read than were written."""
    (directory / checkpoint.FILE_NAME).write_bytes(content)
    try:
        loaded = checkpoint.load(directory, IDENTITY, STATE)
    except dmlmc.CheckpointError as error:
        assert "cannot be read" in str(error) or "another run" in str(error)
        assert (directory / checkpoint.FILE_NAME).read_bytes() == content
        return True
    assert_as_saved(loaded)  # a time stamp of the archive was hit, or the like
    return False


@settings(max_examples=300, deadline=None)
@given(damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=8))
def test_flipped_bytes_are_noticed(saved, tmp_path_factory, damage):
    content = bytearray((saved / checkpoint.FILE_NAME).read_bytes())
    for where, flips in damage:
        content[int(where * len(content))] ^= flips
    is_refused_or_unharmed(tmp_path_factory.mktemp("damaged"), bytes(content))


@settings(max_examples=100, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True), tail=st.binary(max_size=64))
def test_a_cut_or_overwritten_end_is_noticed(saved, tmp_path_factory, share, tail):
    content = (saved / checkpoint.FILE_NAME).read_bytes()
    kept = content[: int(share * len(content))]
    assert is_refused_or_unharmed(tmp_path_factory.mktemp("cut"), kept)
    is_refused_or_unharmed(tmp_path_factory.mktemp("overwritten"), kept + tail)


def mutated(content, chance):
    """The content with one to three changes: flipped bits, a cut, an insertion, a block that is repeated or moved."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(content) + 1)
        end, to = min(len(content), start + chance.randint(1, 300)), chance.randrange(len(content) + 1)
        before, block, after = content[:start], content[start:end], content[end:]
        flipped = bytes(byte ^ (1 << chance.randrange(8)) for byte in block[:8])
        content = chance.choice(
            [
                before + flipped + block[8:] + after,
                before + after,
                before + chance.randbytes(len(block)) + block + after,
                before + block + block + after,
                content[:to] + block + content[to:],
                before + after[:to] + block + after[to:],
                before,
            ]
        )
    return content


def test_a_thousand_mutations_are_noticed_or_harmless(saved, tmp_path):
    chance, content = random.Random(0), (saved / checkpoint.FILE_NAME).read_bytes()
    refused = sum(is_refused_or_unharmed(tmp_path, mutated(content, chance)) for _ in range(1000))
    assert refused > 900  # the others hit time stamps and the like, or changed nothing


def test_a_shape_changed_in_place_is_noticed(tmp_path):
    """NumPy would read a shorter array, and never get to the checksum at its end."""
    checkpoint.save(tmp_path, IDENTITY, STATE, {"loss": np.ones((9000, 2))})
    content = (tmp_path / checkpoint.FILE_NAME).read_bytes()
    assert content.count(b"(9000, 2)") == 1
    (tmp_path / checkpoint.FILE_NAME).write_bytes(content.replace(b"(9000, 2)", b"(1000, 2)"))
    with pytest.raises(dmlmc.CheckpointError, match=r"cannot be read \(record_loss.npy is damaged\)"):
        checkpoint.load(tmp_path, IDENTITY, STATE)


def test_an_entry_that_is_missing_is_noticed(saved, tmp_path):
    with np.load(saved / checkpoint.FILE_NAME) as stored:
        entries = {name: stored[name] for name in stored.files if name != "record_loss"}
    np.savez(tmp_path / checkpoint.FILE_NAME, **entries)
    with pytest.raises(dmlmc.CheckpointError, match=r"cannot be read \(an entry is missing\)"):
        checkpoint.load(tmp_path, IDENTITY, STATE)


@settings(max_examples=30, deadline=None)
@given(content=st.binary(max_size=200))
def test_any_other_file_is_refused(tmp_path_factory, content):
    assert is_refused_or_unharmed(tmp_path_factory.mktemp("other"), content)


def test_a_damaged_checkpoint_stops_a_run(tmp_path):
    halved(6, directory=tmp_path)
    (tmp_path / checkpoint.FILE_NAME).write_bytes(b"x" * 100)
    with pytest.raises(dmlmc.CheckpointError, match=r"cannot be read .*Give another directory, or delete this one"):
        halved(6, directory=tmp_path)


def test_keys_and_small_floats_survive(tmp_path):
    state = {"key": jax.random.split(jax.random.key(3), 2), "half": jnp.arange(3, dtype=jnp.bfloat16)}
    checkpoint.save(tmp_path, IDENTITY, state, {})
    loaded, _ = checkpoint.load(tmp_path, IDENTITY, state)
    assert loaded["half"].dtype == jnp.bfloat16 and jnp.array_equal(loaded["half"], state["half"])
    assert loaded["key"].dtype == state["key"].dtype and jnp.all(loaded["key"] == state["key"])


def test_arrays_and_keys_go_back_to_where_they_were(tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("seeds",))
    state = {"key": jax.random.split(jax.random.key(3), 2), "array": jnp.ones(2)}
    state = jax.device_put(state, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("seeds")))
    checkpoint.save(tmp_path, IDENTITY, state, {})
    loaded, _ = checkpoint.load(tmp_path, IDENTITY, state)
    assert all(loaded[name].sharding == state[name].sharding for name in state)


def test_keys_keep_their_kind_and_numpy_arrays_stay_so(tmp_path):
    state = {"key": jax.random.key(3, impl="rbg"), "plain": np.arange(3)}
    checkpoint.save(tmp_path, IDENTITY, state, {})
    loaded, record = checkpoint.load(tmp_path, IDENTITY, state)
    assert jax.random.key_impl(loaded["key"]) == jax.random.key_impl(state["key"]) and record == {}
    assert isinstance(loaded["plain"], np.ndarray) and np.array_equal(loaded["plain"], np.arange(3))
    assert checkpoint.load(tmp_path / "elsewhere", IDENTITY, state) is None


def test_a_checkpoint_of_another_jax_is_known_by_its_numbers_alone(tmp_path):
    numbers = {"start": [np.ones(2)], "parameters": [np.full(2, 0.9)], "loss": [np.ones(2)], "metrics": [np.ones(2)]}
    there = {**IDENTITY, checkpoint.JAX: "1", **dict.fromkeys(PRINTED, "printed")}
    here = {**there, checkpoint.JAX: "2", **dict.fromkeys(PRINTED, "printed differently")}
    checkpoint.save(tmp_path, there, STATE, RECORD, numbers)
    assert_as_saved(checkpoint.load(tmp_path, here, STATE, lambda: numbers))
    assert_as_saved(checkpoint.load(tmp_path, there, STATE, pytest.fail))  # the same jax computes nothing
    other = {**numbers, "loss": [np.zeros(2)], "metrics": [np.zeros(2)]}
    for identity, found, message in (
        (here, other, "jax 2 computes it differently: it was written with jax 1, .* step loss and metrics differ by"),
        ({**here, "method": "another"}, numbers, r"its method differs \('a test' there, 'another' here\)"),
        ({**there, PRINTED[0]: "different"}, numbers, f"its {PRINTED[0]} differs"),  # the same jax prints the same
    ):
        with pytest.raises(dmlmc.CheckpointError, match=message):
            checkpoint.load(tmp_path, identity, STATE, lambda found=found: found)
    with pytest.raises(dmlmc.CheckpointError, match="its jax version differs"):
        checkpoint.load(tmp_path, here, STATE)  # there is nothing to know it by
    checkpoint.save(tmp_path, there, STATE, RECORD)  # without numbers
    with pytest.raises(dmlmc.CheckpointError, match=r"after the first step .* differ by more than rounding"):
        checkpoint.load(tmp_path, here, STATE, lambda: numbers)


def test_a_full_disk_leaves_the_last_checkpoint_and_nothing_else(tmp_path, monkeypatch):
    halved(6, directory=tmp_path)
    before = (tmp_path / checkpoint.FILE_NAME).read_bytes()
    write, limits = np.savez, resource.getrlimit(resource.RLIMIT_FSIZE)

    def on_a_full_disk(file, **entries):
        resource.setrlimit(resource.RLIMIT_FSIZE, (256, limits[1]))  # the system refuses to write more into a file
        try:
            write(file, **entries)
            file.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with monkeypatch.context() as patched:
        patched.setattr(np, "savez", on_a_full_disk)
        with pytest.raises(
            dmlmc.CheckpointError, match=r"cannot be written .*File too large.* is intact. Fix the cause"
        ):
            halved(23, directory=tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {checkpoint.FILE_NAME: before}
    assert_same_run(halved(directory=tmp_path), halved())


@pytest.mark.parametrize("place", ["file", "file/under"])
def test_a_directory_that_cannot_be_had_is_refused_before_training(tmp_path, place):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(dmlmc.CheckpointError, match=f"{tmp_path}/{place} cannot be used .* Give another directory"):
        halved(10**9, directory=tmp_path / place)
