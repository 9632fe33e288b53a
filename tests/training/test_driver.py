"""The options of a run, its stops, its mesh and its costs. What a run does with them is in test_loop.py."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, Mesh

import dmlmc
from dmlmc.devices import one_device
from dmlmc.training.driver import Driver, checked_settings, mesh_for
from dmlmc.training.evaluation import Start
from tests.helpers.runs import KEYS, PLAN, QUADRATIC


def settings(first=0, steps=100, **options):
    given = {
        "validation": None, "metrics": None, "callback": None, "evaluate_every": None, "directory": None,
        "checkpoint_every": None, "chunk_steps": None, "progress": False, "on_divergence": "raise", "one_seed": False,
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
        "one_seed": True,
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


def test_seeds_that_do_not_divide_are_refused(own_errors):
    two = AbstractMesh((2, 3), ("seeds", "samples"))
    assert mesh_for("train", None, two, 4, one_device) is two
    with pytest.raises(ValueError, match="train: mesh must share the seeds equally, got 2 along 'seeds' for 3 seeds"):
        mesh_for("train", None, two, 3, one_device)


def driver(start, **options):
    starts = start._replace(params=jnp.ones((4, 3)))
    made = settings(start.step, 23, **options)
    return Driver(dmlmc.delayed_mlmc(QUADRATIC, PLAN), optax.sgd(0.1), starts, KEYS, made, one_device())


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
