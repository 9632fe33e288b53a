"""A checkpoint that another version of jax wrote is read if the first step gives the numbers that it has."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmlmc
from dmlmc.training import checkpoint
from dmlmc.training.first_step import COMPARED, as_dtype, differing
from dmlmc.training.program import PRINTED
from tests.helpers.runs import PLAN, QUADRATIC, RATES, assert_same_run, run


def written_by_another_jax(directory, change=lambda entries: None):
    """Edit the checkpoint: another version of jax, which prints programs differently."""
    file = directory / checkpoint.FILE_NAME
    with np.load(file) as stored:
        entries = {name: stored[name] for name in stored.files}
    identity, names = json.loads(str(entries["identity"]))
    identity |= {checkpoint.JAX: "0.0.1", **dict.fromkeys(PRINTED, "printed differently")}
    entries["identity"] = np.array(json.dumps([identity, names]))
    change(entries)
    np.savez(file, **entries)


@pytest.fixture(scope="module")
def ten_steps(tmp_path_factory):
    """The directory of a run of ten steps, and what it returned."""
    directory = tmp_path_factory.mktemp("ten_steps")
    return directory, run(steps=10, directory=directory)


@pytest.fixture
def stopped(ten_steps, tmp_path):
    """A copy of that directory, which a test may change."""
    shutil.copy(ten_steps[0] / checkpoint.FILE_NAME, tmp_path)
    return tmp_path


def test_the_same_run_goes_on_with_another_version(tmp_path):
    metrics = {"metrics": lambda params: {"first": params[0]}}
    run(steps=10, directory=tmp_path, **metrics)
    written_by_another_jax(tmp_path)
    assert_same_run(run(directory=tmp_path, **metrics), run(**metrics))
    identity, _ = json.loads(str(np.load(tmp_path / checkpoint.FILE_NAME)["identity"]))
    assert identity[checkpoint.JAX] == jax.__version__  # and from now on it is this one's


def test_numbers_that_differ_by_rounding_are_the_same_run(stopped, ten_steps):
    def round_off(entries):
        entries["first_parameters_0"] = np.nextafter(entries["first_parameters_0"], 2, dtype=np.float32)
        entries["first_loss_0"] = entries["first_loss_0"] * (1 + 1e-6)

    written_by_another_jax(stopped, round_off)
    assert_same_run(run(steps=10, directory=stopped), ten_steps[1])


PERIODS = dmlmc.plan(RATES, 2, samples=[8, 4, 2], periods=[1, 2, 8], allocation="paper")
SAMPLES = dmlmc.plan(RATES, 2, samples=[8, 4, 3], allocation="paper")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"optimiser": optax.adam(0.101)}, "after the first step parameters and loss differ by more than rounding"),
        ({"optimiser": optax.sgd(0.1)}, "key or start differs"),  # the state of Adam is part of the start
        ({"validation": lambda params: QUADRATIC.mean(params, 1)}, "after the first step loss differ"),
        ({"key": jax.random.split(jax.random.key(1), 4)}, "key or start differs"),
        ({"params": 2 * jnp.ones(3)}, "key or start differs"),
        ({"estimator": dmlmc.mlmc(QUADRATIC, PLAN)}, "method differs"),
        ({"estimator": dmlmc.delayed_mlmc(QUADRATIC, PERIODS)}, "work or span of a step differs"),
        ({"estimator": dmlmc.delayed_mlmc(QUADRATIC, SAMPLES)}, "work or span of a step differs"),
        ({"evaluate_every": 4}, "evaluate_every differs"),
        ({"metrics": lambda params: {"first": params[0]}}, "metrics differs"),
    ],
)
def test_another_run_is_refused_and_kept(stopped, change, what):
    written_by_another_jax(stopped)
    before = (stopped / checkpoint.FILE_NAME).read_bytes()
    with pytest.raises(dmlmc.CheckpointError, match=what):
        run(steps=10, directory=stopped, **change)
    assert (stopped / checkpoint.FILE_NAME).read_bytes() == before


def test_a_checkpoint_without_these_numbers_is_refused(stopped):
    def drop(entries):
        identity, names = json.loads(str(entries["identity"]))
        del entries["first_loss_0"]
        names.remove("first_loss_0")
        entries["identity"] = np.array(json.dumps([identity, names]))

    written_by_another_jax(stopped, drop)
    with pytest.raises(dmlmc.CheckpointError, match="parameters and loss and metrics differ"):
        run(steps=10, directory=stopped)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float32, np.float64])
def test_the_tolerance_is_that_of_the_dtype(dtype):
    start, epsilon = np.ones((2, 50), dtype), float(jnp.finfo(dtype).eps)

    def after(relative):
        return {
            "start": [start],
            "parameters": [(1 + 0.5 * (1 + relative) * np.ones((2, 50))).astype(dtype)],
            "loss": [np.full(2, 3.0)],
            "metrics": [],
        }

    assert differing(after(0.5 * np.sqrt(epsilon)), after(0.0)) == []
    wrong = after(4 * np.sqrt(epsilon) + 16 * epsilon)
    assert differing(wrong, after(0.0)) == ["parameters"]


def test_numbers_that_are_not_finite_must_be_so_in_both():
    one = {"start": [np.ones(2)], "parameters": [np.array([0.9, np.nan])], "loss": [np.array([np.nan])], "metrics": []}
    assert differing(one, one) == []
    assert differing({**one, "parameters": [np.full(2, 0.9)]}, one) == ["parameters"]
    assert differing({**one, "loss": [np.ones(1)]}, one) == ["loss"]


@pytest.mark.parametrize("size", [0.0, 1000.0])
def test_parameters_that_do_not_move_may_round_at_their_own_size(size):
    one = {"start": [np.full(2, size)], "parameters": [np.full(2, size)], "loss": [np.ones(2)], "metrics": []}
    assert differing(one, one) == []
    assert differing({**one, "parameters": [np.full(2, size * (1 + 4e-16))]}, one) == []
    assert differing({**one, "parameters": [np.full(2, size + 1e-6)]}, one) == ["parameters"]


def test_four_rounding_errors_are_none_and_five_are():
    one = {"start": [np.ones(1)], "parameters": [np.ones(1)], "loss": [], "metrics": []}
    for errors, found in ((4, []), (5, ["parameters"])):
        assert differing({**one, "parameters": [1 + errors * np.finfo(float).eps * np.ones(1)]}, one) == found


@pytest.mark.parametrize("name", COMPARED)
def test_numbers_of_another_shape_are_those_of_another_run(name):
    one = {"start": [np.zeros(2)], "parameters": [np.ones(2)], "loss": [np.ones(2)], "metrics": [np.ones(2)]}
    assert differing(one, one) == []
    for shape in (0, 1, 3):
        assert differing({**one, name: [np.ones(shape)]}, one) == list(COMPARED)


def test_parameters_without_a_start_are_an_error():
    one = {"start": [np.ones(2)], "parameters": [np.ones(2)] * 2, "loss": [], "metrics": []}
    with pytest.raises(ValueError, match="zip"):
        differing(one, one)


@pytest.mark.parametrize("size", [1e-9, 1.0])
def test_losses_and_metrics_are_compared_by_the_digits_of_the_parameters(size):
    one = {"start": [np.ones(2)], "parameters": [np.ones(2)], "loss": [np.full(2, size)], "metrics": [np.full(2, size)]}
    for name in ("loss", "metrics"):
        assert differing({**one, name: [np.full(2, size * (1 + 1e-8))]}, one) == []
        assert differing({**one, name: [np.full(2, size * (1 + 1e-6))]}, one) == [name]


def test_small_floats_are_read_from_their_bytes_and_others_as_they_are():
    half = np.arange(3).astype(jnp.bfloat16)
    read = as_dtype(half.view("V2"), half.dtype)
    assert read.dtype == half.dtype and np.array_equal(read, half)
    whole = np.arange(3, dtype=np.float32)
    assert as_dtype(whole, np.dtype(np.float64)) is whole
