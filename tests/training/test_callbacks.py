"""Runs that are watched, stopped and gone on with, and seeds that diverge."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

import dmlmc
from tests.helpers.runs import KEYS, QUADRATIC, assert_same_run, halved, run

FAR = float(jnp.finfo(jnp.float32).max)


def stop_at(step):
    return lambda info: info.step >= step


@pytest.fixture(scope="module")
def whole():
    """An uninterrupted run, to compare others with."""
    return run()


@pytest.mark.parametrize(("run", "chunk_steps"), [(run, None), (halved, None), (halved, 1), (halved, 4), (halved, 100)])
def test_a_callback_stops_at_the_same_step_whatever_the_chunks(tmp_path, run, chunk_steps):
    options = {"validation": lambda params: jnp.sum(params**2), "evaluate_every": 5}
    stopping = {**options, "directory": tmp_path, "callback": stop_at(8)}
    params, record = run(chunk_steps=chunk_steps, checkpoint_every=7, **stopping)
    assert record.step.max() == 10
    assert_same_run((params, record), run(steps=10, **options))
    again = run(**stopping)  # a rule without memory stops the run again at once
    assert_same_run(again, (params, record))
    pd.testing.assert_frame_equal(again[1], record)
    assert_same_run(
        run(directory=tmp_path, **options), run(**options)
    )  # without it the run goes on as if never stopped


def test_a_callback_sees_what_is_recorded_and_may_keep_it(whole):
    seen = []
    params, record = run(callback=seen.append, metrics=lambda params: {"z": params[2], "a": jnp.max(params)})
    assert [info.step for info in seen] == [0, 5, 10, 15, 20, 23]
    assert record.columns.tolist()[-4:] == ["loss", "a", "z", "diverged_at"]
    for info in seen:  # all are read at the end: the run has not reused their memory
        rows = record[record.step == info.step]
        assert isinstance(info.loss, np.ndarray) and info.params.shape == (4, 3)
        np.testing.assert_array_equal(info.loss, rows.loss)
        np.testing.assert_array_equal(info.metrics["z"], rows.z)
        np.testing.assert_array_equal(info.params[:, 2], rows.z.astype(np.float32))
        assert {info.work} == set(rows.work) and {info.span} == set(rows.span) and {info.seconds} == set(rows.seconds)
        assert set(info.estimator_state.gradients) == {1, 2} and info.optimiser_state[0].mu.shape == (4, 3)
    np.testing.assert_array_equal(seen[-1].params, params)
    assert_same_run((params, record.drop(columns=["a", "z"])), whole)


def test_with_one_key_a_callback_sees_no_axis_over_seeds():
    seen = []
    params, _ = run(key=KEYS[0], callback=seen.append, metrics=lambda params: {"a": params[0]}, validation=None)
    assert all(np.isnan(info.loss) and np.shape(info.loss) == () for info in seen)
    assert np.shape(seen[-1].metrics["a"]) == () and seen[-1].params.shape == (3,)
    assert seen[-1].estimator_state.computed[1].shape == () and seen[-1].optimiser_state[0].count.shape == ()
    np.testing.assert_array_equal(seen[-1].params, params)


def test_a_metric_that_is_not_finite_is_no_divergence(tmp_path):
    options = {"metrics": lambda params: {"undefined": jnp.log(-jnp.abs(params[0]) - 1)}, "on_divergence": "raise"}
    options |= {"validation": jnp.sum, "evaluate_every": 5}
    halved(10, directory=tmp_path, **options)
    resumed = halved(directory=tmp_path, **options)
    assert resumed[1].undefined.isna().all() and resumed[1].diverged_at.isna().all()
    assert_same_run(resumed, halved(**options))
    with pytest.raises(dmlmc.CheckpointError, match="its metrics differs"):
        halved(directory=tmp_path, **{**options, "metrics": None})


def test_a_callback_is_asked_again_where_a_run_resumes(tmp_path):
    run(steps=10, directory=tmp_path)
    seen, fresh = [], []
    run(directory=tmp_path, callback=seen.append)
    run(callback=fresh.append)
    assert [info.step for info in seen] == [10, 15, 20, 23]
    one, other = (jax.tree.leaves(info._replace(seconds=0.0)) for info in (seen[0], fresh[2]))
    for here, there in zip(one, other, strict=True):
        np.testing.assert_array_equal(here, there)


def five(start, **options):
    """Five seeds of which the third has its own start."""
    starts = jnp.ones((5, 3)).at[2].set(start)
    return run(params=starts, params_per_seed=True, key=jax.random.split(jax.random.key(0), 5), **options)


def test_one_seed_of_five_diverges_and_four_go_on_bit_for_bit(tmp_path):
    with pytest.warns(RuntimeWarning) as told:
        params, record = five(FAR)
    assert [str(one.message).partition(";")[0] for one in told] == [
        "delayed MLMC, seed 2: the loss is inf at step 0"
    ]  # once
    others, expected = five(1.0)
    np.testing.assert_array_equal(np.delete(params, 2, axis=0), np.delete(others, 2, axis=0))
    well, expected = record[record.seed != 2], expected[expected.seed != 2]
    pd.testing.assert_frame_equal(well.drop(columns="seconds"), expected.drop(columns="seconds"), check_exact=True)
    assert set(record[record.seed == 2].diverged_at) == {0.0} and well.diverged_at.isna().all()
    assert record.step.max() == 23 and not np.all(np.isfinite(params[2]))
    with pytest.warns(RuntimeWarning):
        five(FAR, steps=10, directory=tmp_path)
    resumed = five(FAR, directory=tmp_path)  # warnings are errors here: it was told before
    assert_same_run(resumed, (params, record))
    with pytest.raises(dmlmc.DivergenceError, match="seed 2: it diverged at step 0"):
        five(FAR, directory=tmp_path, on_divergence="raise")


def test_seeds_beside_a_diverged_one_are_as_alone(x64):
    with pytest.warns(RuntimeWarning, match="seed 2: the gradient is not finite at step 0"):
        params, _ = five(float(jnp.finfo(float).max), validation=None)
    alone, _ = run(params=jnp.ones(3), key=jax.random.split(jax.random.key(0), 5)[4])
    np.testing.assert_allclose(params[4], alone, rtol=1e-12)


@pytest.mark.parametrize("chunk_steps", [1, 23])
def test_a_run_ends_when_no_seed_is_left(tmp_path, chunk_steps):
    # x -> (1 - 1e10) x: the gradient of step 4 is the first to overflow.
    options = {"estimator": dmlmc.naive(QUADRATIC, 0, 1), "optimiser": optax.sgd(1e10), "validation": None}
    options |= {"directory": tmp_path, "evaluate_every": 7}
    with pytest.warns(RuntimeWarning, match=r"naive, seed \d: the gradient is not finite at step 4"):
        _, record = run(chunk_steps=chunk_steps, **options)
    assert record.step.max() == 7 and set(record.diverged_at) == {4.0}
    assert_same_run(run(**options), (_, record))


def test_one_key_raises_and_may_record():
    options = {"estimator": dmlmc.naive(QUADRATIC, 0, 1), "optimiser": optax.sgd(1e10), "key": KEYS[0]}
    with pytest.raises(dmlmc.DivergenceError):
        run(**options)
    with pytest.warns(RuntimeWarning):
        _, record = run(on_divergence="record", **options)
    assert record.diverged_at.iloc[0] <= 5


def test_a_loss_that_is_left_out_by_a_longer_run_leaves_no_trace(tmp_path):
    """A run of 7 steps evaluates step 7, one of 23 does not."""

    def at_the_end_only(params):  # the parameter is 1 / 32 at step 5 and 1 / 64 at step 6
        return jnp.where(params[0] < 0.02, jnp.nan, params[0])

    options = {"validation": at_the_end_only, "evaluate_every": 5, "directory": tmp_path}
    with pytest.warns(RuntimeWarning, match="at step 7"):
        halved(7, **options)
    with pytest.warns(RuntimeWarning, match="at step 10"):
        _, record = halved(**options)
    assert set(record.diverged_at) == {10.0} and record.step.max() == 10


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"callback": 3}, TypeError, r"callback must be a function of \(info\), got 3"),
        ({"callback": lambda: None}, TypeError, r"callback must be a function of \(info\), got one of \(\)"),
        ({"callback": lambda info: 1}, TypeError, "what callback returns must be True or False, got 1"),
        (
            {"callback": lambda info: info.loss < 1},
            TypeError,
            r"what callback returns must be True or False, got array",
        ),
        ({"metrics": {}}, TypeError, r"metrics must be a function of \(params\)"),
        ({"metrics": lambda params: params[0]}, TypeError, "metrics must return a dict of scalars"),
        ({"metrics": lambda params: {"loss": params[0]}}, ValueError, "metrics must be named by .* got 'loss'"),
        ({"metrics": lambda params: {"": params[0]}}, ValueError, "metrics must be named by .* got ''"),
        ({"metrics": lambda params: {3: params[0]}}, ValueError, "metrics must be named by .* got 3"),
        ({"metrics": lambda params: {"a": params}}, ValueError, r"metrics\['a'\] must return .* got shape \(2,\)"),
        ({"metrics": lambda params: {"a": "b"}}, TypeError, r"metrics\['a'\] must return .* got 'b'"),
        ({"on_divergence": "ignore"}, ValueError, "on_divergence must be one of raise, record, got 'ignore'"),
        ({"params_per_seed": 1}, TypeError, "params_per_seed must be True or False, got 1"),
    ],
)
def test_bad_arguments_are_named(own_errors, options, error, message):
    with pytest.raises(error, match=f"train: {message}"):
        halved(**{"validation": jnp.sum, **options})
