from functools import partial

import jax
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
from dmlmc.training.store import Store
from dmlmc.training.sweep import _runs, _spread, _start, one_of
from tests.helpers.runs import HALVING, assert_same_run

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


@pytest.fixture(scope="module")
def whole():
    """An uninterrupted sweep, to compare others with."""
    return swept()


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


def test_a_sweep_is_watched_stopped_and_resumed(tmp_path, whole):
    seen = []
    swept(directory=tmp_path, callback=lambda info: seen.append(info) or info.step == 3)
    assert [info.step for info in seen] == [0, 3]
    assert seen[0].loss.shape == (4,) and seen[0].params.shape == (4, 2)
    assert_same_run(swept(directory=tmp_path), whole)
    with pytest.raises(dmlmc.CheckpointError, match="its key or start differs"):
        swept(optimisers={**OPTIMISERS, "Adam": (optax.adam, [0.3])}, directory=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.FILE_NAME]


@pytest.mark.parametrize("at_once", [1, 3, 100])  # one after the other, with one left over, more than there are
def test_a_sweep_is_the_same_however_many_runs_are_trained_at_once(whole, at_once):
    (together, record), (in_turn, other) = whole, swept(seeds_at_once=at_once)
    np.testing.assert_allclose(in_turn, together, rtol=1e-5)
    np.testing.assert_allclose(other.loss, record.loss, rtol=1e-5)


def test_one_key_and_one_start_for_all():
    trained, record = swept(key=KEYS[0], params=STARTS[0], params_per_seed=False)
    expected, _ = swept(key=KEYS[:1], params=STARTS[:1])
    np.testing.assert_array_equal(trained, expected)
    assert set(record.seed) == {0}


def test_the_runs_are_all_seeds_of_a_rate_then_those_of_the_next():
    found = _runs({"SGD": (optax.sgd, [0.1, 0.3]), "Adam": [optax.adam, (0.2,)]}, 2, STARTS)
    names, rates = ["SGD"] * 4 + ["Adam"] * 2, [0.1, 0.1, 0.3, 0.3, 0.2, 0.2]
    expected = pd.DataFrame({"optimiser": names, "learning_rate": rates, "seed": [0, 1] * 3})
    pd.testing.assert_frame_equal(found, expected)


def test_an_optimiser_is_tried_with_a_rate_of_its_own():
    tried = []
    _runs({"SGD": (lambda rate: tried.append(rate) or optax.sgd(rate), [0.2, 0.1])}, 1, STARTS)
    _runs({"SGD": (lambda rate: tried.append(rate) or optax.sgd(rate), [0.3])}, 1, STARTS)
    assert tried == [0.1, 0.3]


def test_every_run_starts_with_the_parameters_of_its_seed_and_its_own_optimiser():
    optimisers = {"momentum": (partial(optax.sgd, momentum=0.9), [0.1]), "SGD": (optax.sgd, [0.3, 0.5])}
    starts = {"x": STARTS, "n": 3}
    runs = _runs(optimisers, 2, starts)
    start = _start(runs, optimisers, one_of([make for make, _ in optimisers.values()]), starts)
    np.testing.assert_array_equal(start.params["x"], np.tile(STARTS, (3, 1)))
    assert start.params["n"] == 3 and start.step == 0 and start.estimator_state is None
    assert start.optimiser_state.which.tolist() == [0, 0, 1, 1, 1, 1]
    np.testing.assert_allclose(start.optimiser_state.rate, [0.1, 0.1, 0.3, 0.3, 0.5, 0.5])
    assert start.optimiser_state.rate.dtype == jnp.float32
    assert start.optimiser_state.states[0][0].trace["x"].shape == (6, 2)


def test_a_state_chooses_its_optimiser_and_all_are_updated():
    makers = [
        lambda rate: optax.sgd(1.0 * rate, momentum=0.5),
        lambda rate: optax.chain(optax.add_decayed_weights(1.0), optax.sgd(rate)),
    ]
    optimiser, params, grads = one_of(makers), jnp.array([1.0, 2.0]), jnp.array([4.0, 8.0])
    state = optimiser.init(params)
    assert int(state.which) == 0 and float(state.rate) == 1.0
    updates, after = optimiser.update(grads, state._replace(rate=jnp.array(0.25)), params)
    assert updates.tolist() == [-1.0, -2.0] and float(after.rate) == 0.25 and int(after.which) == 0
    again, last = optimiser.update(grads, after, params)
    assert again.tolist() == [-1.5, -3.0]  # with the momentum of the first
    updates, other = optimiser.update(grads, after._replace(which=jnp.array(1)), params)
    assert updates.tolist() == [-1.25, -2.5]  # with the decay of the weights
    for one, two in zip(other.states[0][0].trace, last.states[0][0].trace, strict=True):
        assert float(one) == float(two)  # the one that is not chosen goes on as well


def test_a_sweep_is_on_the_mesh_it_is_given_or_that_of_its_estimator():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("seeds", "samples"))
    for estimator, options in ((HALVING, {"mesh": mesh}), (HALVING._replace(mesh=mesh), {})):
        seen, sgd = [], {"SGD": (optax.sgd, [0.5])}
        options |= {"validation": jnp.sum, "progress": False, "callback": seen.append}
        dmlmc.sweep(estimator, sgd, jnp.ones(2), 1, KEYS, **options)
        assert seen[-1].params.sharding.mesh == mesh


def test_an_optimiser_that_fits_these_parameters_alone_is_swept():
    grouped = {"SGD": (lambda rate: optax.multi_transform({"one": optax.sgd(rate)}, {"x": "one"}), [0.5])}
    options = {"validation": lambda params: params["x"][0], "progress": False}
    trained, _ = dmlmc.sweep(HALVING, grouped, {"x": jnp.ones(2)}, 2, KEYS[0], **options)
    assert trained["x"].tolist() == [[0.25, 0.25]]


def test_runs_are_spread_over_one_axis_of_devices():
    found = _spread(4)
    assert found.axis_names == ("seeds",) and 4 % found.shape["seeds"] == 0


def halved(steps=8, **options):
    """A sweep of two rates that compiles in no time."""
    given = {"validation": jnp.sum, "evaluate_every": 4, "progress": False, **options}
    return dmlmc.sweep(HALVING, {"SGD": (optax.sgd, [0.5, 0.25])}, jnp.ones(2), steps, KEYS, **given)


def test_the_record_of_a_sweep_says_which_run_a_row_is_of():
    params, record = halved(metrics=lambda params: {"first": params[0]})
    np.testing.assert_allclose(params[:, 0], [0.5**8, 0.5**8, 0.75**8, 0.75**8], rtol=1e-5)
    assert record.columns.tolist() == [*COLUMNS[:-1], "first", "diverged_at"]
    assert record.run.tolist() == np.repeat(range(4), 3).tolist() and record.step.tolist() == [0, 4, 8] * 4
    assert record.learning_rate.tolist() == [0.5] * 6 + [0.25] * 6 and set(record.optimiser) == {"SGD"}
    assert record.seed.tolist() == np.tile(np.repeat([0, 1], 3), 2).tolist() and set(record.method) == {"halving"}
    np.testing.assert_allclose(record["first"][record.step == 4], [0.5**4, 0.5**4, 0.75**4, 0.75**4], rtol=1e-5)


def test_a_sweep_is_evaluated_about_fifty_times():
    _, record = halved(100, evaluate_every=None)
    assert record[record.run == 3].step.tolist() == list(range(0, 101, 2))


def test_a_loss_that_is_not_finite_is_infinite_in_the_record(recwarn):
    _, record = halved(12, validation=lambda params: jnp.where(params[0] < 0.2, jnp.nan, params[0]))
    assert record.step.tolist() == [0, 4, 8, 12] * 4  # it goes on when no run is left
    assert np.isinf(record.loss).tolist() == [False, True, True, True] * 2 + [False, False, True, True] * 2
    assert not recwarn.list and not record.loss.isna().any()


def test_the_options_of_a_sweep_are_those_of_train(monkeypatch, tmp_path, capsys):
    saved, stops, seen = [], [], []
    save, advance = Store.save, Program.advance

    def watched_save(self, run, record):
        saved.append(record.step)
        save(self, run, record)

    def watched_advance(self, run, first, last):
        stops.append(last)
        return advance(self, run, first, last)

    monkeypatch.setattr(Store, "save", watched_save)
    monkeypatch.setattr(Program, "advance", watched_advance)
    halved(chunk_steps=3, callback=seen.append)
    assert stops == [3, 4, 7, 8] and capsys.readouterr().err == ""
    saved.clear()
    halved(directory=tmp_path, checkpoint_every=5)
    assert saved == [5, 8] and (tmp_path / checkpoint.FILE_NAME).exists()
    assert [info.step for info in seen] == [0, 4, 8] and seen[0].params.shape == (4, 2)
    dmlmc.sweep(HALVING, {"SGD": (optax.sgd, [0.5])}, jnp.ones(2), 8, KEYS, validation=jnp.sum)  # a bar by default
    assert "8/8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"estimator": abs}, TypeError, "sweep: estimator must be a dmlmc.GradientEstimator"),
        ({"steps": 0}, ValueError, "sweep: steps must be between 1 and 2147483647, got 0"),
        ({"steps": 2**31, "callback": lambda info: True}, ValueError, "sweep: steps must be between 1 and 2147483647"),
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
        ({"checkpoint_every": 0}, ValueError, "sweep: checkpoint_every must be at least 1"),
        ({"chunk_steps": 0}, ValueError, "sweep: chunk_steps must be at least 1"),
        ({"seeds_at_once": 0}, ValueError, "sweep: seeds_at_once must be at least 1"),
        ({"directory": 3}, TypeError, "sweep: directory must be a path"),
        ({"mesh": [0]}, TypeError, "sweep: mesh must be a jax.sharding.Mesh"),
        ({"optimisers": {}}, TypeError, "sweep: optimisers must be like .* got {}"),
        ({"optimisers": optax.sgd}, TypeError, "sweep: optimisers must be like"),
        ({"optimisers": {"SGD": optax.sgd}}, TypeError, "sweep: optimisers must be like .* got 'SGD'"),
        (
            {"optimisers": {3: (optax.sgd, [0.1])}},
            TypeError,
            r"sweep: optimisers must be like .* got 3: \(<function sgd",
        ),
        ({"optimisers": {"SGD": (optax.sgd, 1, 2)}}, TypeError, "sweep: optimisers must be like .* got 'SGD'"),
        ({"optimisers": {"SGD": (optax.sgd, ["a"])}}, TypeError, "sweep: the learning rates of SGD must be a sequence"),
        (
            {"optimisers": {"SGD": (0.1, [0.1])}},
            TypeError,
            r"sweep: the optimiser SGD must be a function of \(learning_rate",
        ),
        ({"optimisers": {"SGD": (abs, [0.1])}}, TypeError, "sweep: the optimiser SGD must be an optax optimiser"),
        ({"optimisers": {"SGD": (optax.sgd, [])}}, ValueError, "sweep: the learning rates of SGD needs at least one"),
        ({"optimisers": {"SGD": (optax.sgd, [-0.1])}}, ValueError, "sweep: a learning rate of SGD must be positive"),
    ],
)
def test_errors_name_the_bad_argument(own_errors, options, error, message):
    with pytest.raises(error, match=message):
        swept(**options)
