"""The checkpoint of a run by itself: what identifies a run, when it is read, and who writes it."""

from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmlmc
from dmlmc.devices import one_device
from dmlmc.training import checkpoint
from dmlmc.training.evaluation import Start
from dmlmc.training.program import Program
from dmlmc.training.record import Record
from dmlmc.training.store import Store
from tests.helpers.runs import KEYS, QUADRATIC

ESTIMATOR = dmlmc.naive(QUADRATIC, 0, 1)


@pytest.fixture
def program():
    start = Start(jnp.ones((1, 3)))
    return Program(ESTIMATOR, optax.sgd(0.1), start, KEYS[:1], evaluate=None, mesh=one_device())


def store(directory, program, start=0, every=5, **costs):
    return Store("train", directory, program, ESTIMATOR._replace(**costs), every, Record.at(start, 0.5, 1))


def reached(step, evaluated, start=0):
    """The record of a run at a step."""
    record = Record.at(start, 0.5, 1)
    for stop in evaluated:
        record.advance(stop, 1.0)
        record.add(np.ones(1), {})
    record.advance(step, 1.0)
    return record


def test_without_a_directory_every_run_starts_afresh_and_nothing_is_written(program):
    nowhere = store(None, program)
    run, record = nowhere.load(0)
    assert run is program.initial and record is nowhere.beginning
    nowhere.save(run, record)
    assert not hasattr(nowhere, "identity")


def test_an_empty_directory_is_a_fresh_start_and_a_checkpoint_has_the_numbers_of_the_first_step(tmp_path, program):
    fresh = store(tmp_path, program)
    run, record = fresh.load(3)
    assert run is program.initial and record is fresh.beginning
    fresh.save(run, record)
    with np.load(tmp_path / checkpoint.FILE_NAME) as written:
        np.testing.assert_array_equal(written["first_parameters_0"], program.first_step()["parameters"][0])
        assert not np.array_equal(written["first_parameters_0"], program.initial.params)


def test_a_run_is_read_back_with_its_record(tmp_path, program):
    first, second = (store(tmp_path, program, start=3) for _ in range(2))
    first.load(9)
    run = program.initial._replace(params=2 * program.initial.params)
    first.save(run, reached(7, [3, 5, 6], start=3))
    found, record = second.load(7)
    np.testing.assert_array_equal(found.params, run.params)
    assert (record.start, record.step, record.seconds) == (3, 7, 4.5)
    assert record.steps == [3, 5]  # the start is kept, 6 is no multiple of 5
    with pytest.raises(ValueError, match=f"^train: steps must be at least 7, where the run in {tmp_path} .* got 6"):
        second.load(6)


def test_a_checkpoint_of_another_jax_is_known_by_the_numbers_of_the_first_step(tmp_path, program):
    first, second = (store(tmp_path, program) for _ in range(2))
    first.identity[checkpoint.JAX] = "0.0.1"
    first.load(5)
    first.save(program.initial, reached(5, [5]))
    assert second.load(5)[1].step == 5


def test_only_the_leading_process_writes(tmp_path, program, monkeypatch):
    monkeypatch.setattr(program, "leads", False)
    store(tmp_path, program).save(program.initial, reached(5, [5]))
    assert not list(tmp_path.iterdir())


def test_a_run_is_known_by_its_versions_method_programs_and_costs(tmp_path, program):
    known = store(tmp_path, program).identity
    expected = {"dmlmc version": version("dmlmc"), checkpoint.JAX: jax.__version__, "method": "naive"}
    assert expected.items() | program.fingerprints().items() <= known.items()
    assert known["evaluate_every"] == "5" and store(tmp_path, program, every=6).identity["evaluate_every"] == "6"

    def costs(**given):
        return store(tmp_path, program, **given).identity["work or span of a step"]

    def only_at(step):
        return lambda steps: np.where(np.asarray(steps) == step, 2.0, 1.0)

    assert costs() == costs(work=lambda steps: 1, span=lambda steps: np.ones(1))  # a number stands for every step
    for name in ("work", "span"):
        assert costs(**{name: only_at(0)}) != costs() != costs(**{name: only_at(1023)})
        assert costs(**{name: only_at(1024)}) == costs()  # as far as it looks
    assert costs(work=only_at(1)) != costs(span=only_at(1))
