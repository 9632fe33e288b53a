"""The options of a run, its stops, its mesh and its costs. What a run does with them is in test_loop.py."""

import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, Mesh

import dmlmc
from dmlmc.devices import one_device
from dmlmc.training.checkpoint import alone
from dmlmc.training.driver import Driver, checked_settings, mesh_for
from dmlmc.training.evaluation import Start
from dmlmc.training.program import PRINTED, Program
from dmlmc.training.store import Store
from tests.helpers.runs import HALVING, KEYS, PLAN, QUADRATIC, assert_same_run, halved


def settings(first=0, steps=100, **options):
    given = {
        "validation": None, "metrics": None, "callback": None, "evaluate_every": None, "directory": None,
        "checkpoint_every": None, "chunk_steps": None, "progress": False, "on_divergence": "raise", "one_seed": False,
        "seeds_at_once": None,
    }  # fmt: skip
    return checked_settings("train", first, steps, **{**given, **options})


def one_function(params):
    return params


def another(params):
    return params


def test_every_option_is_kept_under_its_name(tmp_path):
    def callback(info):
        return None

    options = {
        "validation": one_function, "metrics": another, "callback": callback, "evaluate_every": 7,
        "directory": tmp_path, "checkpoint_every": 3, "chunk_steps": 2, "progress": True, "on_divergence": "record",
        "one_seed": True, "seeds_at_once": 5,
    }  # fmt: skip
    found = settings(**options)._asdict()
    assert found == {"name": "train", "steps": 100, **options}


@pytest.mark.parametrize(("first", "steps", "every"), [(0, 100, 2), (0, 149, 2), (0, 150, 3), (50, 100, 1), (0, 0, 1)])
def test_a_run_is_evaluated_about_fifty_times(tmp_path, first, steps, every):
    assert settings(first, steps).evaluate_every == every
    assert settings(first, steps, directory=tmp_path).checkpoint_every == every


def test_a_checkpoint_is_written_at_each_evaluation_and_nowhere_without_a_directory(tmp_path):
    found = settings(directory=str(tmp_path), evaluate_every=7)
    assert found.checkpoint_every == 7 and found.directory == Path(tmp_path)
    assert settings(checkpoint_every=3).checkpoint_every == 100
    assert settings(steps=0).checkpoint_every == 1
    assert settings().chunk_steps is None and settings().directory is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 3}, r"train: validation must be a function of \(params\)"),
        ({"metrics": 3}, r"train: metrics must be a function of \(params\)"),
        ({"callback": 3}, r"train: callback must be a function of \(info\)"),
        ({"evaluate_every": 0}, "train: evaluate_every must be at least 1, got 0"),
        ({"checkpoint_every": 0}, "train: checkpoint_every must be at least 1, got 0"),
        ({"chunk_steps": 0}, "train: chunk_steps must be at least 1, got 0"),
        ({"directory": 3}, "train: directory must be a path"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        settings(**options)


def test_a_validation_that_returns_no_scalar_is_named():
    with pytest.raises(ValueError, match=r"^train: validation must return an array of shape \(\), a scalar, got shape"):
        halved(validation=lambda params: params)


@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("first", [0, 3])
def test_a_run_stops_at_evaluations_checkpoints_and_the_end_and_after_a_chunk(tmp_path, chunk, first):
    found = settings(first, 23, evaluate_every=5, checkpoint_every=7, directory=tmp_path)
    step, stops = first, []
    while step < 23:
        after = found.next_stop(step, chunk)
        assert step < after <= min(23, step + chunk)
        assert after == min(step + chunk, *(stop for stop in (5, 7, 10, 14, 15, 20, 21, 23) if stop > step))
        stops.append(step := after)
    assert {5, 7, 10, 14, 15, 20, 21, 23} <= set(stops)


def test_the_mesh_is_the_one_given_that_of_the_estimator_or_the_default():
    default, given = one_device(), Mesh(np.array(jax.devices()[:1]), ("samples",))
    both = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("seeds", "samples"))
    assert mesh_for("train", None, None, 3, lambda: default) is default
    assert mesh_for("train", given, None, 3, one_device) == given
    assert mesh_for("train", None, given, 3, one_device) is given
    assert mesh_for("train", given, given, 3, one_device) == given
    with pytest.raises(ValueError, match="train: mesh must be that of the estimator if both are given"):
        mesh_for("train", given, both, 3, one_device)


def test_what_is_no_mesh_and_seeds_that_do_not_divide_are_refused(own_errors):
    with pytest.raises(TypeError, match=r"^train: mesh must be a jax\.sharding\.Mesh"):
        mesh_for("train", [0], None, 3, one_device)
    two = AbstractMesh((2, 3), ("seeds", "samples"))
    assert mesh_for("train", None, two, 4, one_device) is two
    with pytest.raises(ValueError, match="train: mesh must share the seeds equally, got 2 along 'seeds' for 3 seeds"):
        mesh_for("train", None, two, 3, one_device)


def driver(start, **options):
    starts = start._replace(params=jnp.ones((4, 3)))
    made = settings(start.step, 23, **options)
    return Driver(dmlmc.delayed_mlmc(QUADRATIC, PLAN), optax.sgd(0.1), starts, KEYS, made, one_device())


def test_the_program_gets_the_number_of_seeds_to_train_at_once():
    alike, fewer = (driver(Start(None), seeds_at_once=count).program.fingerprints() for count in (None, 1))
    assert alike[PRINTED[0]] != fewer[PRINTED[0]]


def test_the_store_gets_the_name_of_the_function_and_the_directory_is_one_run_s(tmp_path):
    halved(10, directory=tmp_path)
    with pytest.raises(ValueError, match=r"^train: steps must be at least 10, where the run"):
        halved(6, directory=tmp_path)
    with alone(tmp_path), pytest.raises(dmlmc.CheckpointError, match="another run is at work"):
        halved(10, directory=tmp_path)


def test_costs_are_those_of_the_plan_from_step_0():
    work, span = driver(Start(None)).costs([0, 5, 23])
    np.testing.assert_allclose(work, PLAN.cumulative_work(23)[[0, 5, 23]])
    np.testing.assert_allclose(span, PLAN.cumulative_span(23)[[0, 5, 23]])


def test_costs_of_a_run_that_goes_on_are_added_and_new_levels_cost_a_whole_refresh():
    """A start without the gradients of an earlier run: step 7, at which little is due, computes every level."""
    late = driver(Start(None, step=7, work=100.0, span=10.0))
    work, span = late.costs([7, 8, 10])
    whole = [100 + PLAN.work(0), 10 + PLAN.span(0)]
    assert PLAN.work(7) < PLAN.work(0) and PLAN.span(7) < PLAN.span(0)
    rest = [sum(float(cost(step)) for step in (8, 9)) for cost in (PLAN.work, PLAN.span)]
    np.testing.assert_allclose(work, [100, whole[0], whole[0] + rest[0]])
    np.testing.assert_allclose(span, [10, whole[1], whole[1] + rest[1]])
    computed = jax.tree.map(lambda leaf: jnp.ones_like(leaf), late.program.initial.estimator_state)
    going_on = driver(Start(None, step=7, work=100.0, span=10.0, estimator_state=computed))
    np.testing.assert_allclose(going_on.costs([8])[0], 100 + float(PLAN.work(7)))


def test_a_sweep_is_silent_and_a_run_that_records_warns_in_the_leading_process_only():
    made = driver(Start(None), on_divergence="record")
    assert made.policy == "record"
    made.program.leads = False
    assert made.policy == "silent"
    loud = driver(Start(None), on_divergence="raise")
    loud.program.leads = False
    assert loud.policy == "raise"


@pytest.mark.parametrize(
    ("tick", "options", "stops"),
    [
        (math.inf, {"evaluate_every": 100}, [1, 3, 7, 15, 23]),
        (math.inf, {"evaluate_every": 5}, [1, 3, 5, 9, 10, 15, 20, 23]),  # a chunk that is cut short says nothing
        (math.inf, {"evaluate_every": 100, "chunk_steps": 9}, [9, 18, 23]),
        (0.0, {"evaluate_every": 100}, list(range(1, 24))),
    ],
)
def test_chunks_double_while_they_are_fast_unless_they_are_given(monkeypatch, tick, options, stops):
    seen, advance = [], Program.advance

    def watched(self, run, first, last):
        seen.append((first, last))
        return advance(self, run, first, last)

    monkeypatch.setattr("dmlmc.training.driver._TICK", tick)
    monkeypatch.setattr(Program, "advance", watched)
    halved(**options)
    assert seen == list(zip([0, *stops], stops, strict=False))


@pytest.mark.parametrize(
    ("stop", "steps", "saved"),
    [(None, 23, [7, 14, 21, 23]), (None, 21, [7, 14, 21]), (10, 23, [7, 10]), (0, 23, [0])],
)
def test_checkpoints_are_saved_when_they_are_due_and_where_a_run_ends(monkeypatch, tmp_path, stop, steps, saved):
    seen, save = [], Store.save

    def watched(self, run, record):
        seen.append((record.step, record.steps[-1]))
        save(self, run, record)

    monkeypatch.setattr(Store, "save", watched)
    options = {"directory": tmp_path, "checkpoint_every": 7, "evaluate_every": 5}
    halved(steps, callback=None if stop is None else lambda info: info.step == stop, **options)
    assert [step for step, _ in seen] == saved and seen[-1] == (saved[-1], saved[-1])
    assert_same_run(halved(steps, **options), halved(steps, evaluate_every=5))


def test_the_bar_counts_from_the_start_and_shows_the_mean_loss(capsys):
    infos = []
    halved(10, callback=infos.append, evaluate_every=10)
    assert capsys.readouterr().err == ""
    halved(40, params=infos[-1], evaluate_every=10, progress=True, validation=lambda params: 3 * params[0] * 2.0**40)
    shown = capsys.readouterr().err
    assert "halving:  25%" in shown and "10/40" in shown and "40/40" in shown and "41/40" not in shown
    assert "loss=3]" in shown and "step" in shown.partition("40/40")[2]
    halved(40, progress=True)
    assert "loss" not in capsys.readouterr().err


def test_seconds_are_those_of_the_steps():
    began = time.perf_counter()
    _, record = halved(key=KEYS[0], evaluate_every=1, callback=lambda info: time.sleep(0.01))
    whole = time.perf_counter() - began
    assert record.seconds[0] == 0 and np.all(np.diff(record.seconds) > 0)
    assert record.seconds.iloc[-1] < whole - 23 * 0.01


@pytest.mark.parametrize("callback", [None, lambda info: None, lambda info: False])
def test_a_run_ends_with_its_last_seed_whether_it_is_watched_or_not(callback):
    options = {"evaluate_every": 5, "on_divergence": "record", "validation": lambda params: jnp.log(params[0] - 0.01)}
    with pytest.warns(RuntimeWarning, match=r"halving, seed \d: the loss is nan at step 10"):
        _, record = halved(callback=callback, **options)
    assert record.step.max() == 10
    with pytest.raises(TypeError, match="train: what callback returns must be True or False, got 0"):
        halved(callback=lambda info: 0)


def test_a_run_has_its_directory_to_itself_and_goes_on_from_there(tmp_path):
    def try_another(info):
        with pytest.raises(dmlmc.CheckpointError, match="another run is at work"):
            halved(10, directory=tmp_path)

    seen, options = [], {"directory": tmp_path, "evaluate_every": 5}
    halved(10, callback=try_another, **options)
    resumed = halved(20, callback=seen.append, **options)
    assert [info.step for info in seen] == [10, 15, 20]
    assert_same_run(resumed, halved(20, evaluate_every=5))
    with pytest.raises(ValueError, match=r"^train: steps must be at least 20, where the run .* got 10"):
        halved(10, **options)
    with pytest.raises(dmlmc.CheckpointError, match="its evaluate_every differs"):
        halved(20, directory=tmp_path, evaluate_every=4)


def test_a_gradient_that_is_not_finite_is_told_with_method_seed_and_step():
    def estimate(params, state, step, key):
        return jnp.where(step == 4, jnp.inf, params), state

    def train(key):
        return dmlmc.train(HALVING._replace(estimate=estimate), optax.sgd(0.5), jnp.ones(2), 9, key, progress=False)

    with pytest.raises(dmlmc.DivergenceError, match=r"^halving, seed 0: the gradient is not finite at step 4"):
        train(KEYS[0])
    with pytest.warns(RuntimeWarning, match=r"^halving, seed \d: the gradient is not finite at step 4"):
        _, record = train(KEYS)
    assert set(record.diverged_at) == {4.0} and record.step.max() == 5


def test_a_run_that_has_diverged_is_read_back_unless_it_is_to_raise(tmp_path):
    options = {"directory": tmp_path, "evaluate_every": 5, "validation": lambda params: jnp.log(params[0] - 0.01)}
    with pytest.warns(RuntimeWarning, match="the loss is nan at step 10"):
        first = halved(**options)
    assert_same_run(halved(**options), first)  # warnings are errors here: it was told before
    with pytest.raises(dmlmc.DivergenceError, match=r"^halving, seed 0: it diverged at step 10"):
        halved(on_divergence="raise", **options)


@pytest.mark.parametrize(("key", "axis"), [(KEYS, (4,)), (KEYS[0], ())])
def test_a_callback_sees_where_the_run_is_with_an_axis_over_seeds_if_there_are_several(key, axis):
    counting = dmlmc.GradientEstimator(
        lambda params: jnp.zeros(3), lambda params, state, step, key: (params, state + 1), "counting", lambda step: 2.0
    )
    seen, optimiser = [], optax.sgd(0.5, momentum=0.5)
    options = {"validation": jnp.sum, "metrics": lambda params: {"first": params[0]}, "progress": False}
    _, record = dmlmc.train(counting, optimiser, jnp.ones(2), 2, key, callback=seen.append, **options)
    assert [info.step for info in seen] == [0, 1, 2] and [info.work for info in seen] == [0.0, 2.0, 4.0]
    for info in seen:
        assert info.params.shape == (*axis, 2) and np.shape(info.loss) == np.shape(info.metrics["first"]) == axis
        assert info.estimator_state.shape == (*axis, 3) and np.all(info.estimator_state == info.step)
        assert info.optimiser_state[0].trace.shape == (*axis, 2) and info.seconds == record.seconds[info.step]
        np.testing.assert_array_equal(np.ravel(info.loss)[0], record.loss[info.step])
