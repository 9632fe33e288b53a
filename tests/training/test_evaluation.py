"""Runs that go on from an evaluation of another, with the same plan or a new one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmlmc
from dmlmc.training.evaluation import Start, evaluated, one_start_per_seed, start_of, with_seeds, without_seeds
from dmlmc.training.program import Program
from tests.helpers.problems import neural_loss, neural_params
from tests.helpers.runs import KEYS, PLAN, QUADRATIC, RATES, assert_same_run, run

OTHER = dmlmc.plan(RATES, 3, samples=[8, 4, 2, 2], periods=[1, 1, 8, 4], allocation="paper")


def evaluation(step=10, **options):
    seen = []
    run(steps=step, callback=seen.append, **options)
    return seen[-1]


@pytest.fixture(scope="module")
def at_ten():
    """The evaluation at step 10, to go on from. Several tests do, as its arrays can be used again."""
    return evaluation()


@pytest.fixture(scope="module")
def at_seven():
    """The evaluation of a run that ended between two of the others, and the run that goes on from there."""
    info = evaluation(7)
    return info, run(params=info)


@pytest.mark.parametrize("key", [KEYS, KEYS[1]], ids=["four keys", "one key"])
def test_going_on_with_the_same_plan_is_the_uninterrupted_run(key):
    info = evaluation(key=key)
    whole, expected = run(key=key)
    for _ in range(2):  # the arrays of an evaluation can be used again
        trained, record = run(params=info, key=key)
        np.testing.assert_array_equal(trained, whole)
        rest = expected[expected.step >= 10].reset_index(drop=True)
        assert_same_run((trained, record), (whole, rest))
        assert record.seconds.min() == info.seconds and (record.groupby("seed").seconds.diff().dropna() > 0).all()


def test_the_first_row_is_the_start_also_between_evaluations(tmp_path, at_seven):
    info, from_there = at_seven
    trained, record = run(params=info, steps=9, directory=tmp_path)
    assert record[record.seed == 0].step.tolist() == [7, 9]
    trained, record = run(params=info, directory=tmp_path)  # resumed: the row of step 9 is left out, that of 7 is not
    assert record[record.seed == 0].step.tolist() == [7, 10, 15, 20, 23]
    assert_same_run((trained, record), from_there)


def test_the_row_of_the_start_survives_a_run_that_breaks_off_before_the_next(tmp_path, at_seven):
    def break_off(info):
        if info.step == 10:
            raise KeyboardInterrupt

    info, from_there = at_seven
    with pytest.raises(KeyboardInterrupt):
        run(params=info, directory=tmp_path, checkpoint_every=1, callback=break_off)
    assert_same_run(run(params=info, directory=tmp_path), from_there)


def test_a_new_plan_takes_over_the_gradients_that_are_held(at_ten):
    info, seen = at_ten, []
    run(params=info, estimator=dmlmc.delayed_mlmc(QUADRATIC, OTHER), steps=12, callback=seen.append, evaluate_every=1)
    start, after = seen[0].estimator_state, seen[1].estimator_state
    assert set(start.gradients) == {2, 3} and seen[0].step == 10
    assert np.all(start.computed[2]) and not np.any(start.computed[3])
    np.testing.assert_array_equal(start.gradients[2], info.estimator_state.gradients[2])
    np.testing.assert_array_equal(after.gradients[2], info.estimator_state.gradients[2])  # not due at step 10
    assert np.all(after.computed[3]) and np.all(np.any(np.asarray(after.gradients[3]) != 0, axis=1))
    np.testing.assert_array_equal(seen[0].optimiser_state[0].mu, info.optimiser_state[0].mu)


def test_costs_go_on_and_the_first_step_of_new_levels_is_a_whole_refresh(at_ten):
    info = at_ten
    _, record = run(params=info, estimator=dmlmc.delayed_mlmc(QUADRATIC, OTHER))
    costs = record[record.seed == 0].set_index("step")
    assert costs.work[10] == info.work and costs.span[10] == info.span
    assert costs.work[15] == info.work + OTHER.work(0) + OTHER.work(np.arange(11, 15)).sum()
    assert costs.span[23] == info.span + OTHER.span(0) + OTHER.span(np.arange(11, 23)).sum()
    known = dmlmc.plan(RATES, 2, samples=[8, 4, 2], periods=[1, 4, 4], allocation="paper")  # no level is new
    _, record = run(params=info, estimator=dmlmc.delayed_mlmc(QUADRATIC, known))
    assert record[record.step == 15].work.iloc[0] == info.work + known.work(np.arange(10, 15)).sum()


def test_another_method_goes_on_with_the_optimiser_of_the_first(x64):
    info = evaluation(params=jnp.ones(3))
    trained, _ = run(params=info, estimator=dmlmc.mlmc(QUADRATIC, PLAN))
    estimator, optimiser = dmlmc.mlmc(QUADRATIC, PLAN), optax.adam(0.1)

    @jax.jit
    def stepped(params, state, step):
        grads, _ = estimator.estimate(params, (), step, KEYS[2])
        updates, state = optimiser.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params, state = jax.tree.map(lambda leaf: leaf[2], (info.params, info.optimiser_state))
    for step in range(10, 23):
        params, state = stepped(params, state, step)
    np.testing.assert_allclose(trained[2], params, rtol=1e-10)


def test_a_new_plan_keeps_its_branches_in_a_batch_and_on_a_mesh(at_ten):
    info = at_ten
    start = Start(info.params, info.optimiser_state, info.estimator_state, info.step)
    for mesh in (dmlmc.mesh(samples=1), None):
        estimator = dmlmc.delayed_mlmc(QUADRATIC, OTHER, mesh=mesh)
        on = mesh or jax.sharding.Mesh(np.array(jax.devices()[:1]), ("seeds",))
        program = Program(estimator, optax.adam(0.1), start, KEYS, evaluate=None, mesh=on)
        assert program._advance.lower().compile().as_text().count(" conditional(") == 2  # levels 2 and 3


def test_equinox_modules_go_on():
    seen, plan = [], dmlmc.plan(RATES, 1, samples=[8, 4], allocation="paper")
    estimator, key = dmlmc.delayed_mlmc(neural_loss(), plan), jax.random.key(8)
    settings = {"optimiser": optax.adam(1e-2), "key": key, "progress": False, "evaluate_every": 3}
    whole, _ = dmlmc.train(estimator, params=neural_params(), steps=6, callback=seen.append, **settings)
    trained, record = dmlmc.train(estimator, params=seen[1], steps=6, **settings)
    assert trained.label == 3 and record.step.tolist() == [3, 6]
    for one, other in zip(*(jax.tree.leaves(eqx.filter(t, eqx.is_array)) for t in (trained, whole)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_checkpoint_knows_where_its_run_started(tmp_path, at_ten, at_seven):
    info = at_ten
    first = run(params=info, steps=15, directory=tmp_path)
    assert_same_run(run(params=info, steps=15, directory=tmp_path), first)
    held = jax.tree.map(lambda leaf: 2 * leaf if leaf.dtype == jnp.float32 else leaf, info.estimator_state)
    others = [info.params[0], info._replace(step=9), info._replace(estimator_state=held), at_seven[0]]
    for other in others:
        with pytest.raises(dmlmc.CheckpointError, match="its key or start differs"):
            run(params=other, steps=15, directory=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"optimiser": optax.sgd(0.1)},
            r"params.optimiser_state must be that of the optimiser \(give params.params to",
        ),
        (
            {"key": KEYS[:2]},
            r"params must be an Evaluation of as many seeds as there are keys, got seeds of shape \(4,\)",
        ),
        ({"key": KEYS[0]}, r"params must be an Evaluation of as many .* and keys of shape \(\)"),
        ({"steps": 9}, "steps must be at least 10, where params is already, got 9"),
    ],
)
def test_an_evaluation_that_does_not_fit_is_refused(own_errors, at_ten, options, message):
    with pytest.raises(ValueError, match=f"train: {message}"):
        run(params=at_ten, **options)


def of_one_seed():
    return dmlmc.Evaluation(
        step=np.int64(7), params=neural_params(), loss=np.float64(2.0), metrics={"a": np.float64(3.0)}, work=1, span=2,
        seconds=3, optimiser_state={"count": jnp.array(5)}, estimator_state=(jnp.ones(2),),
    )  # fmt: skip


def test_an_axis_over_seeds_comes_and_goes():
    one = of_one_seed()
    batch = with_seeds(one)
    assert batch.loss.shape == batch.metrics["a"].shape == batch.optimiser_state["count"].shape == (1,)
    assert batch.params.scale.shape == (1, 2) and batch.estimator_state[0].shape == (1, 2)
    assert batch.params.label == 3 and (batch.step, batch.work, batch.span, batch.seconds) == (7, 1, 2, 3)
    again = without_seeds(batch)
    for here, there in zip(jax.tree.leaves(again), jax.tree.leaves(one), strict=True):
        assert here is there or np.shape(here) == np.shape(there)
        assert callable(here) or np.all(here == there)


def test_a_start_has_the_states_and_costs_of_its_evaluation():
    optimiser = optax.sgd(0.1, momentum=0.9)
    state = optimiser.init(eqx.filter(neural_params(), eqx.is_inexact_array))
    given = of_one_seed()._replace(optimiser_state=state)
    start = start_of("train", given, optimiser, KEYS[0], 7, False)
    assert (start.step, start.work, start.span, start.seconds) == (7, 1.0, 2.0, 3.0)
    assert all(type(cost) is float for cost in start[4:]) and type(start.step) is int
    assert start.params.scale.shape == (1, 2) and start.estimator_state[0].shape == (1, 2)
    assert jax.tree.structure(start.optimiser_state) == jax.tree.structure(state)
    with pytest.raises(ValueError, match=r"train: params.step must be at least 0, got -1"):
        start_of("train", given._replace(step=-1), optimiser, KEYS[0], 7, False)


def test_every_seed_has_the_start_or_its_own():
    same = one_start_per_seed("train", {"a": jnp.arange(2.0), "n": 3}, 4, False)
    np.testing.assert_array_equal(same["a"], [[0.0, 1.0]] * 4)
    assert same["n"] == 3
    own = {"a": jnp.ones((4, 2)), "b": jnp.ones(4), "n": 3}
    assert one_start_per_seed("train", own, 4, True) is own
    for shape in ((), (2, 4)):
        with pytest.raises(ValueError, match=r"train: with params_per_seed=True .* axis of length 4, one") as told:
            one_start_per_seed("train", {**own, "b": jnp.ones(shape)}, 4, True)
        assert str(told.value).endswith(f"got shape {shape}.")


def test_a_start_from_parameters_is_fresh_and_has_one_for_each_key():
    own = {"a": jnp.ones((4, 2)), "n": 3}
    start = start_of("train", own, optax.sgd(0.1), KEYS, 7, True)
    assert start.params is own and start == Start(own)
    same = start_of("train", own, optax.sgd(0.1), KEYS, 7, False)
    assert same.params["a"].shape == (4, 4, 2) and (same.optimiser_state, same.estimator_state) == (None, None)
    assert start_of("train", own, optax.sgd(0.1), KEYS[0], 7, False).params["a"].shape == (1, 4, 2)
    with pytest.raises(ValueError, match=r"^train: with params_per_seed=True .* axis of length 2"):
        start_of("train", own, optax.sgd(0.1), KEYS[:2], 7, True)


@pytest.mark.parametrize(
    ("found", "error", "message"),
    [
        (3.0, TypeError, r"must return a dict of scalars, such as {'drift': \.\.\.}, got 3\.0"),
        ({"": 1.0}, ValueError, r"must be named by text that is no column .* \(method, .*\), got ''"),
        ({3: 1.0}, ValueError, "must be named by text .* got 3"),
    ],
)
def test_metrics_that_have_no_names_are_refused(found, error, message):
    with pytest.raises(error, match=f"^train: metrics {message}"):
        evaluated("train", None, lambda params: found)(jnp.ones(2))


def test_loss_and_metrics_are_one_function_and_either_may_be_missing():
    assert evaluated("train", None, None) is None
    loss, metrics = evaluated("train", lambda params: params[0], None)(jnp.array([2.0, 3.0]))
    assert float(loss) == 2.0 and metrics == {}
    loss, metrics = evaluated("train", None, lambda params: {"b": params[1], "a": 1})(jnp.array([2.0, 3.0]))
    assert np.isnan(loss) and list(metrics) == ["b", "a"] and float(metrics["b"]) == 3.0
    assert metrics["a"].dtype == jnp.float32
    assert evaluated("train", lambda params: 1, None)(jnp.ones(2))[0].dtype == jnp.float32
    with pytest.raises(ValueError, match=r"train: metrics must be named by text .* got 'work'"):
        evaluated("train", None, lambda params: {"fine": 1.0, "work": 2.0})(jnp.ones(2))
    with pytest.raises(ValueError, match=r"train: metrics\['a'\] must return"):
        evaluated("train", None, lambda params: {"a": params})(jnp.ones(2))
    with pytest.raises(ValueError, match="train: validation must return"):
        evaluated("train", lambda params: params, None)(jnp.ones(2))
