from functools import partial

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pandas as pd
import pytest

import dmlmc
from dmlmc.experiments import sweeps
from dmlmc.training import checkpoint
from dmlmc.training.evaluation import Start
from dmlmc.training.program import Program
from dmlmc.training.record import COLUMNS
from dmlmc.training.sweep import one_of
from tests.helpers.runs import assert_same_run

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
LOSS = dmlmc.QuadraticLoss(2, 1.0, 0.1, RATES)
PLAN = dmlmc.plan(RATES, 1, level0_samples=4, allocation="paper")
KEYS = jr.split(jr.key(0), 2)
OPTIMISERS = {"momentum": (partial(optax.sgd, momentum=0.9), [0.1]), "Adam": (optax.adam, [0.2])}
STARTS = jnp.array([[1.0, 2.0], [-1.0, 0.5]])


def validation(params):
    return LOSS.mean(params, 1)


def swept(estimator=None, optimisers=OPTIMISERS, params=STARTS, steps=7, key=KEYS, **options):
    settings = {"validation": validation, "evaluate_every": 3, "params_per_seed": True, "progress": False}
    return dmlmc.sweep(
        estimator or dmlmc.delayed_mlmc(LOSS, PLAN), optimisers, params, steps, key, **{**settings, **options}
    )


def test_every_run_of_a_sweep_agrees_with_train():
    estimator = dmlmc.delayed_mlmc(LOSS, PLAN)
    options = {"steps": 7, "validation": validation, "evaluate_every": 3, "params_per_seed": True, "progress": False}
    options["metrics"] = lambda params: {"first": params[0]}
    trained, record = swept(metrics=options["metrics"])
    assert trained.shape == (4, 2) and record.run.nunique() == 4
    assert record.columns.tolist() == [*COLUMNS[:-1], "first", "diverged_at"]
    for (name, rate), rows in record.groupby(["optimiser", "learning_rate"]):
        params, expected = dmlmc.train(estimator, OPTIMISERS[name][0](rate), STARTS, key=KEYS, **options)
        columns = ["method", "seed", "step", "work", "span", "diverged_at"]
        pd.testing.assert_frame_equal(rows[columns].reset_index(drop=True), expected[columns], check_dtype=False)
        np.testing.assert_allclose(rows.loss, expected.loss, rtol=1e-5)
        np.testing.assert_allclose(rows["first"], expected["first"], rtol=1e-5)
        for run, expected_params in zip(rows.run.unique(), params, strict=True):
            np.testing.assert_allclose(sweeps.params_of(trained, run), expected_params, rtol=1e-5)


def test_a_batch_of_runs_skips_levels_that_are_not_due():
    optimiser = one_of([optax.sgd, optax.adam])
    program = Program(
        dmlmc.delayed_mlmc(LOSS, PLAN), optimiser, Start(jnp.ones((4, 2))), jr.split(jr.key(0), 4),
        evaluate=None, mesh=dmlmc.mesh(samples=1),
    )  # fmt: skip
    assert str(program._advance.jaxpr).count("cond[") == len(PLAN.periods) - 1


def test_a_diverged_run_has_infinite_loss_and_does_not_affect_the_others(recwarn):
    options = {"estimator": dmlmc.mlmc(LOSS, PLAN), "steps": 30, "key": KEYS[:1], "params": STARTS[:1]}
    (trained, both), (same, other) = (
        swept(optimisers={"SGD": (optax.sgd, [0.1, bad])}, **options) for bad in (1e8, 0.2)
    )
    first, others = both[both.learning_rate == 0.1], other[other.learning_rate == 0.1]
    pd.testing.assert_frame_equal(first.drop(columns="seconds"), others.drop(columns="seconds"), check_exact=True)
    np.testing.assert_array_equal(trained[0], same[0])
    after = sweeps.after_training(both).set_index("learning_rate")
    assert np.isinf(after.loss[1e8]) and np.isfinite(after.loss[0.1])
    assert both[both.learning_rate == 1e8].diverged_at.notna().all() and first.diverged_at.isna().all()
    _, gone = swept(optimisers={"SGD": (optax.sgd, [1e8])}, **options)
    assert gone.step.max() == 30 and np.isinf(gone.loss.iloc[-1])  # as many rows as the others of a table
    assert not recwarn.list


def test_a_sweep_is_watched_stopped_and_resumed(tmp_path):
    seen = []
    swept(directory=tmp_path, callback=lambda info: seen.append(info) or info.step == 3)
    assert [info.step for info in seen] == [0, 3]
    assert seen[0].loss.shape == (4,) and seen[0].params.shape == (4, 2)
    assert_same_run(swept(directory=tmp_path), swept())
    with pytest.raises(dmlmc.CheckpointError, match="its key or start differs"):
        swept(optimisers={**OPTIMISERS, "Adam": (optax.adam, [0.3])}, directory=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.FILE_NAME]


def test_one_key_and_one_start_for_all():
    trained, record = swept(key=KEYS[0], params=STARTS[0], params_per_seed=False)
    expected, _ = swept(key=KEYS[:1], params=STARTS[:1])
    np.testing.assert_array_equal(trained, expected)
    assert set(record.seed) == {0}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"estimator": abs}, TypeError, "sweep: estimator must be a dmlmc.GradientEstimator"),
        ({"steps": 0}, ValueError, "sweep: steps"),
        ({"key": 0}, TypeError, "sweep: key must be a key"),
        ({"params": 1.0}, TypeError, "sweep: params must hold at least one array"),
        ({"params": STARTS[:1]}, ValueError, "sweep: with params_per_seed=True .* length 2"),
        ({"params_per_seed": 1}, TypeError, "sweep: params_per_seed must be True or False"),
        ({"params": dmlmc.Evaluation(*[None] * 9)}, TypeError, "sweep: params must be parameters, got an Evaluation"),
        ({"validation": None}, TypeError, r"sweep: validation must be a function of \(params\), got None"),
        ({"validation": lambda params: params}, ValueError, "sweep: validation must return"),
        ({"metrics": lambda params: {"run": params[0]}}, ValueError, "sweep: metrics must be named by .* got 'run'"),
        ({"callback": 3}, TypeError, "sweep: callback must be a function"),
        ({"evaluate_every": 0}, ValueError, "sweep: evaluate_every must be at least 1"),
        ({"directory": 3}, TypeError, "sweep: directory must be a path"),
        ({"mesh": [0]}, TypeError, "sweep: mesh must be a jax.sharding.Mesh"),
        ({"optimisers": {}}, TypeError, "sweep: optimisers must be like .* got {}"),
        ({"optimisers": optax.sgd}, TypeError, "sweep: optimisers must be like"),
        ({"optimisers": {"SGD": optax.sgd}}, TypeError, "sweep: optimisers must be like .* got 'SGD'"),
        ({"optimisers": {"SGD": (0.1, [0.1])}}, TypeError, r"the optimiser SGD must be a function of \(learning_rate"),
        ({"optimisers": {"SGD": (abs, [0.1])}}, TypeError, "the optimiser SGD must be an optax optimiser"),
        ({"optimisers": {"SGD": (optax.sgd, [])}}, ValueError, "the learning rates of SGD needs at least one"),
        ({"optimisers": {"SGD": (optax.sgd, [-0.1])}}, ValueError, "a learning rate of SGD must be positive"),
    ],
)
def test_errors_name_the_bad_argument(own_errors, options, error, message):
    with pytest.raises(error, match=message):
        swept(**options)
