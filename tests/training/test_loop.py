import gc
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

import dmlmc
from dmlmc.training import checkpoint
from dmlmc.training.program import Program
from tests.helpers.problems import neural_loss, neural_params
from tests.helpers.runs import HALVING, KEYS, PLAN, QUADRATIC, RATES, assert_same_run, halved, run


@pytest.fixture(scope="module")
def whole():
    """An uninterrupted run, to compare others with."""
    return run()


@pytest.fixture(scope="module")
def in_double():
    with jax.enable_x64(True):
        return run(params=jnp.ones(3))


def test_a_run_is_a_plain_loop_over_estimate_and_update(x64):
    estimator, optimiser, params = dmlmc.delayed_mlmc(QUADRATIC, PLAN), optax.adam(0.1), jnp.ones(3)
    state, optimiser_state = estimator.init(params), optimiser.init(params)
    for step in range(23):
        grads, state = estimator.estimate(params, state, step, KEYS[1])
        updates, optimiser_state = optimiser.update(grads, optimiser_state, params)
        params = optax.apply_updates(params, updates)
    trained, _ = run(params=jnp.ones(3))
    np.testing.assert_allclose(trained[1], params, rtol=1e-10)


def test_the_record_is_tidy_and_its_costs_are_the_plan_s():
    params, record = run()
    assert record.columns.tolist() == ["method", "seed", "step", "work", "span", "seconds", "loss", "diverged_at"]
    assert record.groupby("seed").step.apply(list).tolist() == [[0, 5, 10, 15, 20, 23]] * 4
    assert set(record.method) == {"delayed MLMC"}
    np.testing.assert_allclose(record.work, PLAN.cumulative_work(23)[record.step])
    np.testing.assert_allclose(record.span, PLAN.cumulative_span(23)[record.step])
    assert (record.groupby("seed").seconds.diff().dropna() > 0).all()
    last = record[record.step == 23].set_index("seed").loss
    np.testing.assert_allclose(last, [QUADRATIC.mean(p, 2) for p in params], rtol=1e-6)
    assert np.allclose(record[record.step == 0].loss, QUADRATIC.mean(jnp.ones(3), 2))


@pytest.mark.parametrize("chunk_steps", [1, 4, 100])
def test_chunks_of_any_length_give_the_same_run(whole, chunk_steps):
    assert_same_run(whole, run(chunk_steps=chunk_steps))


def test_a_seed_is_not_touched_by_its_neighbours(in_double, x64):
    together, record = in_double
    for seed in (0, 3):
        alone, alone_record = run(key=KEYS[seed], params=jnp.ones(3))
        assert alone.shape == (3,)
        np.testing.assert_allclose(alone, together[seed], rtol=1e-12)
        np.testing.assert_allclose(alone_record.loss, record[record.seed == seed].loss, rtol=1e-12)


@pytest.mark.parametrize("at_once", [1, 3, 9])  # one after the other, with one left over, more than there are
def test_a_run_is_the_same_however_many_seeds_are_trained_at_once(in_double, x64, at_once):
    (together, record), (in_turn, other) = in_double, run(params=jnp.ones(3), seeds_at_once=at_once)
    np.testing.assert_allclose(in_turn, together, rtol=1e-12)
    np.testing.assert_allclose(other.loss, record.loss, rtol=1e-12)


def test_every_seed_can_have_its_own_start():
    starts = jnp.arange(12.0).reshape(4, 3)
    trained, _ = run(steps=0, params=starts, params_per_seed=True)
    np.testing.assert_array_equal(trained, starts)


@pytest.mark.parametrize("stop", [5, 7, 22])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path, whole, stop):
    run(steps=stop, directory=tmp_path, checkpoint_every=3)
    assert_same_run(run(steps=23, directory=tmp_path, checkpoint_every=3), whole)
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.FILE_NAME]


def test_a_finished_run_is_read_back_without_training(tmp_path):
    first, again = (halved(directory=tmp_path, validation=jnp.sum) for _ in range(2))
    assert_same_run(first, again)
    pd.testing.assert_frame_equal(first[1], again[1])  # the seconds too


def test_a_diverging_run_names_method_seed_and_step():
    # Seed 2 starts so far out that its first gradient overflows; the others are well.
    starts = jnp.ones((4, 3)).at[2].set(jnp.finfo(jnp.float32).max)
    with pytest.raises(dmlmc.DivergenceError, match="delayed MLMC, seed 2: the gradient is not finite at step 0"):
        run(params=starts, params_per_seed=True, validation=None, on_divergence="raise")
    estimator = dmlmc.naive(QUADRATIC, 0, 1)
    # x -> (1 - 1e10) x overflows float32 (3e38) in its fourth step, so the gradient of step 4 is the first to show it.
    with pytest.raises(dmlmc.DivergenceError, match="naive, seed 0: the gradient is not finite at step 4"):
        run(
            estimator=estimator,
            optimiser=optax.sgd(1e10),
            validation=None,
            chunk_steps=23,
            evaluate_every=23,
            on_divergence="raise",
        )


def test_a_validation_loss_that_is_not_finite_stops_the_run():
    with pytest.raises(dmlmc.DivergenceError, match="delayed MLMC, seed 0: the loss is nan at step 0"):
        run(validation=lambda params: jnp.log(-jnp.sum(params)), on_divergence="raise")


def test_equinox_modules_train_and_keep_what_is_not_trained():
    loss, params, plan = neural_loss(), neural_params(), dmlmc.plan(RATES, 1, samples=[8, 4], allocation="paper")
    key = jax.random.key(8)

    def validation(params):
        return dmlmc.mean_loss(loss, params, 1, 64, key)

    trained, record = dmlmc.train(
        dmlmc.delayed_mlmc(loss, plan), optax.adam(1e-2), params, 60, key, validation=validation, progress=False
    )
    assert trained.label == 3 and trained.drift.activation is params.drift.activation
    assert trained.scale.shape == (2,)
    assert record.loss.iloc[-1] < 0.7 * record.loss.iloc[0]
    np.testing.assert_allclose(record.loss.iloc[-1], validation(trained), rtol=1e-5)


def test_without_validation_the_loss_is_nan():
    _, record = run(validation=None)
    assert record.loss.isna().all() and len(record) == 24


def test_the_progress_bar_shows_method_and_loss(capsys):
    run(progress=True)
    shown = capsys.readouterr().err
    assert "delayed MLMC" in shown and "23/23" in shown and "loss=" in shown


def test_a_bar_is_shown_unless_it_is_declined(capsys):
    dmlmc.train(HALVING, optax.sgd(0.5), jnp.ones(2), 3, KEYS[0])
    assert "3/3" in capsys.readouterr().err
    halved(3)
    assert capsys.readouterr().err == ""


def test_a_run_is_compiled_once_whatever_its_length(tmp_path):
    traces = []

    class Traced(dmlmc.QuadraticLoss):
        def loss(self, params, noise):
            traces.append(noise.shape)
            return super().loss(params, noise)

    estimator = dmlmc.delayed_mlmc(Traced(dimension=3, L=1.0, M=1.0, rates=RATES), PLAN)
    run(steps=1, estimator=estimator)
    once = len(traces)
    run(steps=200, estimator=estimator, chunk_steps=7)
    assert len(traces) <= 2 * once


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def garbage_is_collected_often():
    """Python's default. The suite's own thresholds are so large that garbage looks like a leak."""
    thresholds = gc.get_threshold()
    gc.freeze()  # what is there already is no garbage of the test, and need not be looked at again and again
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory in use from /proc")
def test_a_long_run_neither_grows_nor_compiles_again(garbage_is_collected_often, monkeypatch, caplog):
    traces, advance = [], Program.advance
    seen, looks = np.zeros((2000, 5), int), iter(range(2000))  # made beforehand, so that looking takes no memory

    class Traced(dmlmc.QuadraticLoss):
        def loss(self, params, noise):
            traces.append(noise.shape)
            return super().loss(params, noise)

    def watched(self, *arguments):
        advanced = advance(self, *arguments)
        memory = resident_bytes(), len(jax.live_arrays()), sys.getallocatedblocks()
        seen[next(looks)] = (*memory, len(traces), len(caplog.records))
        return advanced

    monkeypatch.setattr(Program, "advance", watched)
    estimator = dmlmc.delayed_mlmc(Traced(dimension=2, L=1.0, M=1.0, rates=RATES), PLAN)
    settings = {"params": jnp.ones(2), "validation": jnp.sum, "evaluate_every": 500, "chunk_steps": 50}
    with jax.log_compiles():
        run(steps=100_000, estimator=estimator, **settings)
    settled = seen[20:]  # the second evaluation is the last thing to happen for the first time
    assert next(looks, None) is None and np.all(settled[-1, 3:] == settled[0, 3:]) and np.all(settled[-1, 3:] > 0)
    # Freed memory can hide a small leak from the resident bytes: arrays and Python's own blocks are counted, too.
    first, second = np.array_split(settled[:, :3], 2)
    resident, arrays, blocks = np.max(second, axis=0) - np.max(first, axis=0)
    assert resident < 2**20 and arrays == 0 and blocks < len(second)  # the record takes a few blocks per evaluation


def test_one_key_gives_one_run_and_several_give_an_axis_over_seeds():
    start = {"x": jnp.array([8.0, 16.0]), "n": 3, "name": "kept"}
    one, record = halved(3, key=KEYS[0], params=start)
    assert one["x"].tolist() == [1.0, 2.0] and one["n"] == 3 and one["name"] == "kept"
    assert set(record.seed) == {0} and set(record.method) == {"halving"} and record.step.tolist() == [0, 1, 2, 3]
    several, record = halved(3, params=start)
    assert several["x"].tolist() == [[1.0, 2.0]] * 4 and several["n"] == 3 and set(record.seed) == {0, 1, 2, 3}
    own, _ = halved(3, params={"x": jnp.array([[8.0], [16.0], [24.0], [32.0]]), "n": 3}, params_per_seed=True)
    assert own["x"].tolist() == [[1.0], [2.0], [3.0], [4.0]] and own["n"] == 3


def test_a_run_goes_on_from_an_evaluation_with_its_costs_and_records_what_it_is_asked_for(tmp_path):
    seen, options = [], {"evaluate_every": 2, "params": {"x": jnp.array([8.0, 16.0]), "n": 3}}
    halved(2, callback=seen.append, **options)
    metrics = {"metrics": lambda params: {"second": params["x"][1]}, "validation": lambda params: params["x"][0]}
    settings = {**options, "params": seen[-1]._replace(work=5.0, span=7.0), "directory": tmp_path, **metrics}
    trained, record = halved(5, checkpoint_every=1, **settings)
    assert trained["x"].tolist() == [[0.25, 0.5]] * 4 and trained["n"] == 3
    one = record[record.seed == 3]
    assert one.step.tolist() == [2, 4, 5] and one.loss.tolist() == [2.0, 0.5, 0.25]
    assert one.second.tolist() == [4.0, 1.0, 0.5] and (one.work.iloc[0], one.span.iloc[0]) == (5.0, 7.0)
    assert (tmp_path / checkpoint.FILE_NAME).exists()


def test_an_optimiser_that_fits_these_parameters_alone_goes_on_with_them():
    seen, optimiser = [], optax.multi_transform({"half": optax.sgd(0.5)}, {"x": "half"})
    dmlmc.train(HALVING, optimiser, {"x": jnp.ones(2)}, 1, KEYS[0], callback=seen.append, progress=False)
    trained, _ = dmlmc.train(HALVING, optimiser, seen[-1], 2, KEYS[0], progress=False)
    assert trained["x"].tolist() == [0.25, 0.25]


def test_one_key_raises_and_several_record_unless_they_are_told_otherwise():
    options = {"evaluate_every": 5, "validation": lambda params: jnp.log(params[0] - 0.01)}
    for told in ({"key": KEYS[0]}, {"on_divergence": "raise"}):
        with pytest.raises(dmlmc.DivergenceError, match="halving, seed 0: the loss is nan at step 10"):
            halved(**options, **told)
    for told in ({}, {"key": KEYS[0], "on_divergence": "record"}):
        with pytest.warns(RuntimeWarning, match=r"halving, seed \d: the loss is nan at step 10"):
            halved(**options, **told)


def test_a_run_is_on_the_mesh_it_is_given():
    seen, mesh = [], jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("seeds", "samples"))
    halved(1, mesh=mesh, callback=seen.append)
    assert seen[0].params.sharding.mesh == mesh
    halved(1, callback=seen.append)
    assert seen[-1].params.sharding.mesh != mesh
    options = {"callback": seen.append, "progress": False}
    dmlmc.train(HALVING._replace(mesh=mesh), optax.sgd(0.5), jnp.ones(2), 1, KEYS, **options)
    assert seen[-1].params.sharding.mesh == mesh


def broken(estimate=lambda params: (params, ()), **fields):
    """An estimator of a user who got something wrong."""
    good = {"init": lambda params: (), "estimate": lambda params, state, step, key: estimate(params)}
    return dmlmc.GradientEstimator(**{**good, **fields})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"steps": -1}, ValueError, "steps must be between 0 and 2147483647, got -1"),
        (
            {"steps": 2**31, "callback": lambda info: True},
            ValueError,
            "steps must be between 0 and 2147483647, got 2147483648",
        ),
        ({"steps": 2.0}, TypeError, "steps must be an integer"),
        ({"evaluate_every": 0}, ValueError, "evaluate_every must be at least 1"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every must be at least 1"),
        ({"chunk_steps": 0}, ValueError, "chunk_steps must be at least 1"),
        ({"seeds_at_once": 0}, ValueError, "seeds_at_once must be at least 1"),
        ({"key": 0}, TypeError, "key must be a key such as jax.random.key"),
        ({"key": jnp.zeros(2, jnp.uint32)}, TypeError, "key must be a key such as jax.random.key"),
        ({"key": KEYS[:0]}, ValueError, "at least one key"),
        ({"key": KEYS.reshape(2, 2)}, TypeError, "key must be a key"),
        ({"params": 1.0}, TypeError, "params must hold at least one array of floats"),
        ({"params_per_seed": True}, ValueError, r"leading axis of length 4.*got shape \(3,\)"),
        ({"estimator": abs}, TypeError, "estimator must be a dmlmc.GradientEstimator"),
        ({"optimiser": 0.1}, TypeError, "optimiser must be an optax optimiser"),
        ({"validation": 3}, TypeError, "validation must be a function"),
        ({"validation": lambda: 1.0}, TypeError, r"validation must be a function of \(params\), got one of \(\)"),
        ({"validation": lambda params: params}, ValueError, r"validation must return .* got shape \(3,\)"),
        ({"validation": lambda params: None}, TypeError, "validation must return .* got None"),
        ({"validation": lambda params: {"a": params[0]}}, TypeError, "validation must return .* got {'a'"),
        ({"validation": lambda params: 1j * params[0]}, TypeError, "validation must return .* got dtype complex64"),
        ({"directory": 3}, TypeError, "directory must be a path such as 'runs/first', got 3"),
        ({"mesh": [0]}, TypeError, "mesh must be a jax.sharding.Mesh"),
        (
            {"optimiser": optax.lbfgs()},
            TypeError,
            "optimiser must .* works with gradients and params alone, .* missing",
        ),
        ({"estimator": broken(init=None)}, TypeError, r"estimator.init must be a function of \(params\), got None"),
        ({"estimator": broken(lambda params: params)}, TypeError, r"must return a pair \(grads, state\), got"),
    ],
)
def test_bad_arguments_are_named(own_errors, options, error, message):
    with pytest.raises(error, match=rf"^(train|GradientEstimator)[:.].*{message}"):
        run(**options)
