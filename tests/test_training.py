import os
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

import dmlmc
from dmlmc import checkpoint
from tests.problems import neural_loss, neural_params

RATES = dmlmc.Rates(1.8, 1.0, 1.0)
PLAN = dmlmc.plan(RATES, 2, samples=[8, 4, 2])
QUADRATIC = dmlmc.QuadraticLoss(dimension=3, L=1.0, M=1.0, rates=RATES)
KEYS = jax.random.split(jax.random.key(0), 4)


def run(steps=23, key=KEYS, optimiser=None, estimator=None, **options):
    settings = {"validation": lambda params: QUADRATIC.mean(params, 2), "evaluate_every": 5, "progress": False}
    return dmlmc.train(
        estimator or dmlmc.delayed_mlmc(QUADRATIC, PLAN),
        optimiser or optax.adam(0.1),
        options.pop("params", jnp.ones(3)),
        steps,
        key,
        **{**settings, **options},
    )


def assert_same_run(one, other):
    """Bit for bit, seconds apart."""
    np.testing.assert_array_equal(one[0], other[0])
    pd.testing.assert_frame_equal(one[1].drop(columns="seconds"), other[1].drop(columns="seconds"), check_exact=True)


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
    assert record.columns.tolist() == ["method", "seed", "step", "work", "span", "seconds", "loss"]
    assert record.groupby("seed").step.apply(list).tolist() == [[0, 5, 10, 15, 20, 23]] * 4
    assert set(record.method) == {"delayed MLMC"}
    np.testing.assert_allclose(record.work, PLAN.cumulative_work(23)[record.step])
    np.testing.assert_allclose(record.span, PLAN.cumulative_span(23)[record.step])
    assert (record.groupby("seed").seconds.diff().dropna() > 0).all()
    last = record[record.step == 23].set_index("seed").loss
    np.testing.assert_allclose(last, [QUADRATIC.mean(p, 2) for p in params], rtol=1e-6)
    assert np.allclose(record[record.step == 0].loss, QUADRATIC.mean(jnp.ones(3), 2))


@pytest.mark.parametrize("chunk_steps", [1, 4, 100])
def test_chunks_of_any_length_give_the_same_run(chunk_steps):
    assert_same_run(run(), run(chunk_steps=chunk_steps))


def test_a_seed_is_not_touched_by_its_neighbours(x64):
    together, record = run(params=jnp.ones(3))
    for seed in (0, 3):
        alone, alone_record = run(key=KEYS[seed], params=jnp.ones(3))
        assert alone.shape == (3,)
        np.testing.assert_allclose(alone, together[seed], rtol=1e-12)
        np.testing.assert_allclose(alone_record.loss, record[record.seed == seed].loss, rtol=1e-12)


def test_every_seed_can_have_its_own_start():
    starts = jnp.arange(12.0).reshape(4, 3)
    trained, _ = run(steps=0, params=starts, params_per_seed=True)
    np.testing.assert_array_equal(trained, starts)


@pytest.mark.parametrize("stop", [5, 7, 22])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path, stop):
    run(steps=stop, directory=tmp_path, checkpoint_every=3)
    assert_same_run(run(steps=23, directory=tmp_path, checkpoint_every=3), run())
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.FILE_NAME]


def test_a_finished_run_is_read_back_without_training(tmp_path):
    first = run(directory=tmp_path)
    again = run(directory=tmp_path)
    assert_same_run(first, again)
    pd.testing.assert_frame_equal(first[1], again[1])  # the seconds too


def test_a_killed_run_resumes(tmp_path):
    """SIGKILL from within the run, at a moment when a checkpoint is half written."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {os.getcwd()!r})
import numpy as np
from tests import test_training
from dmlmc import checkpoint
write, calls = np.savez, []
def dying(file, **entries):
    calls.append(1)
    if len(calls) == 4:
        file.write(b"half of a checkpoint")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    write(file, **entries)
checkpoint.np.savez = dying
test_training.run(directory={str(tmp_path)!r}, checkpoint_every=3)
"""
    # Bit for bit only if compiled alike: see conftest.py.
    alike = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, env=alike)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(list(tmp_path.iterdir())) == 2  # the last good one and the torn one
    assert_same_run(run(directory=tmp_path, checkpoint_every=3), run())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"optimiser": optax.adam(0.2)}, "training program"),
        ({"optimiser": optax.sgd(0.1)}, "training program"),
        ({"key": jax.random.split(jax.random.key(1), 4)}, "keys or initial parameters"),
        ({"params": 2 * jnp.ones(3)}, "keys or initial parameters"),
        ({"evaluate_every": 4}, "evaluate_every"),
        ({"validation": lambda params: QUADRATIC.mean(params, 1)}, "validation"),
        ({"estimator": dmlmc.mlmc(QUADRATIC, PLAN)}, "method"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path, change, what):
    run(steps=6, directory=tmp_path)
    before = (tmp_path / checkpoint.FILE_NAME).read_bytes()
    with pytest.raises(dmlmc.CheckpointError, match=f"another run: its {what} differs"):
        run(steps=6, directory=tmp_path, **change)
    assert (tmp_path / checkpoint.FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"x" * 100])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    run(steps=6, directory=tmp_path)
    file = tmp_path / checkpoint.FILE_NAME
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(dmlmc.CheckpointError, match="cannot be read"):
        run(steps=6, directory=tmp_path)


def test_a_checkpoint_beyond_the_steps_asked_for_is_refused(tmp_path):
    run(steps=10, directory=tmp_path)
    with pytest.raises(ValueError, match="at step 10, beyond steps=6"):
        run(steps=6, directory=tmp_path)


def test_a_failed_write_leaves_the_last_checkpoint_and_nothing_else(tmp_path, monkeypatch):
    run(steps=6, directory=tmp_path)
    before = (tmp_path / checkpoint.FILE_NAME).read_bytes()

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space left"):
            run(steps=23, directory=tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {checkpoint.FILE_NAME: before}
    assert_same_run(run(directory=tmp_path), run())


def test_a_diverging_run_names_method_seed_and_step():
    # Seed 2 starts so far out that its first gradient overflows; the others are well.
    starts = jnp.ones((4, 3)).at[2].set(jnp.finfo(jnp.float32).max)
    with pytest.raises(dmlmc.DivergenceError, match="delayed MLMC, seed 2: the gradient is not finite at step 0"):
        run(params=starts, params_per_seed=True, validation=None)
    estimator = dmlmc.naive(QUADRATIC, 0, 1)
    # x -> (1 - 1e10) x overflows float32 (3e38) in its fourth step, so the gradient of step 4 is the first to show it.
    with pytest.raises(dmlmc.DivergenceError, match="naive, seed 0: the gradient is not finite at step 4"):
        run(estimator=estimator, optimiser=optax.sgd(1e10), validation=None, chunk_steps=23, evaluate_every=23)


def test_a_validation_loss_that_is_not_finite_stops_the_run():
    with pytest.raises(dmlmc.DivergenceError, match="delayed MLMC, seed 0: the loss is nan at step 0"):
        run(validation=lambda params: jnp.log(-jnp.sum(params)))


def test_equinox_modules_train_and_keep_what_is_not_trained():
    loss, params = neural_loss(), neural_params()
    key = jax.random.key(8)

    def validation(params):
        return dmlmc.mean_loss(loss, params, 2, 64, key)

    trained, record = dmlmc.train(
        dmlmc.delayed_mlmc(loss, PLAN), optax.adam(1e-2), params, 60, key, validation=validation, progress=False
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


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"steps": -1}, ValueError, "steps must be at least 0"),
        ({"steps": 2.0}, TypeError, "steps must be an integer"),
        ({"evaluate_every": 0}, ValueError, "evaluate_every must be at least 1"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every must be at least 1"),
        ({"chunk_steps": 0}, ValueError, "chunk_steps must be at least 1"),
        ({"key": 0}, TypeError, "key must be a key such as jax.random.key"),
        ({"key": jnp.zeros(2, jnp.uint32)}, TypeError, "key must be a key such as jax.random.key"),
        ({"key": KEYS[:0]}, ValueError, "at least one key"),
        ({"key": KEYS.reshape(2, 2)}, TypeError, "key must be a key"),
        ({"params": 1.0}, TypeError, "params must hold at least one array of floats"),
        ({"params_per_seed": True}, ValueError, r"leading axis of length 4.*got shape \(3,\)"),
        ({"estimator": abs}, TypeError, "estimator must be a dmlmc.GradientEstimator"),
        ({"optimiser": 0.1}, TypeError, "optimiser must be an optax optimiser"),
        ({"validation": 3}, TypeError, "validation must be a function"),
    ],
)
def test_bad_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        run(**options)
