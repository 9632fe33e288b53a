"""Runs that go on from an evaluation of another, with the same plan or a new one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmlmc
from dmlmc.training.evaluation import Start
from dmlmc.training.program import Program
from tests.helpers.problems import neural_loss, neural_params
from tests.helpers.runs import KEYS, PLAN, QUADRATIC, RATES, assert_same_run, run

OTHER = dmlmc.plan(RATES, 3, samples=[8, 4, 2, 2], periods=[1, 1, 8, 4], allocation="paper")


def evaluation(step=10, **options):
    seen = []
    run(steps=step, callback=seen.append, **options)
    return seen[-1]


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


def test_the_first_row_is_the_start_also_between_evaluations(tmp_path):
    info = evaluation(7)
    trained, record = run(params=info, steps=9, directory=tmp_path)
    assert record[record.seed == 0].step.tolist() == [7, 9]
    trained, record = run(params=info, directory=tmp_path)  # resumed: the row of step 9 is left out, that of 7 is not
    assert record[record.seed == 0].step.tolist() == [7, 10, 15, 20, 23]
    assert_same_run((trained, record), run(params=info))


def test_the_row_of_the_start_survives_a_run_that_breaks_off_before_the_next(tmp_path):
    def break_off(info):
        if info.step == 10:
            raise KeyboardInterrupt

    info = evaluation(7)
    with pytest.raises(KeyboardInterrupt):
        run(params=info, directory=tmp_path, checkpoint_every=1, callback=break_off)
    assert_same_run(run(params=info, directory=tmp_path), run(params=info))


def test_a_new_plan_takes_over_the_gradients_that_are_held():
    info, seen = evaluation(), []
    run(params=info, estimator=dmlmc.delayed_mlmc(QUADRATIC, OTHER), steps=12, callback=seen.append, evaluate_every=1)
    start, after = seen[0].estimator_state, seen[1].estimator_state
    assert set(start.gradients) == {2, 3} and seen[0].step == 10
    assert np.all(start.computed[2]) and not np.any(start.computed[3])
    np.testing.assert_array_equal(start.gradients[2], info.estimator_state.gradients[2])
    np.testing.assert_array_equal(after.gradients[2], info.estimator_state.gradients[2])  # not due at step 10
    assert np.all(after.computed[3]) and np.all(np.any(np.asarray(after.gradients[3]) != 0, axis=1))
    np.testing.assert_array_equal(seen[0].optimiser_state[0].mu, info.optimiser_state[0].mu)


def test_costs_go_on_and_the_first_step_of_new_levels_is_a_whole_refresh():
    info = evaluation()
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
    params, state, estimator, optimiser = (
        info.params[2],
        info.optimiser_state,
        dmlmc.mlmc(QUADRATIC, PLAN),
        optax.adam(0.1),
    )
    state = jax.tree.map(lambda leaf: leaf[2], state)
    for step in range(10, 23):
        grads, _ = estimator.estimate(params, (), step, KEYS[2])
        updates, state = optimiser.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(trained[2], params, rtol=1e-10)


def test_a_new_plan_keeps_its_branches_in_a_batch_and_on_a_mesh():
    info = evaluation()
    start = Start(info.params, info.optimiser_state, info.estimator_state, info.step)
    for mesh in (dmlmc.mesh(samples=1), None):
        estimator = dmlmc.delayed_mlmc(QUADRATIC, OTHER, mesh=mesh)
        on = mesh or jax.sharding.Mesh(np.array(jax.devices()[:1]), ("seeds",))
        program = Program(estimator, optax.adam(0.1), start, KEYS, evaluate=None, mesh=on)
        assert program._advance.lower().compile().as_text().count(" conditional(") == 2  # levels 2 and 3


def test_equinox_modules_go_on():
    loss, params, seen = neural_loss(), neural_params(), []
    estimator, key = dmlmc.delayed_mlmc(loss, PLAN), jax.random.key(8)
    settings = {"optimiser": optax.adam(1e-2), "key": key, "progress": False, "evaluate_every": 3}
    dmlmc.train(estimator, params=params, steps=3, callback=seen.append, **settings)
    trained, _ = dmlmc.train(estimator, params=seen[-1], steps=6, **settings)
    whole, _ = dmlmc.train(estimator, params=params, steps=6, **settings)
    assert trained.label == 3
    for one, other in zip(*(jax.tree.leaves(eqx.filter(t, eqx.is_array)) for t in (trained, whole)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_checkpoint_knows_where_its_run_started(tmp_path):
    info = evaluation()
    first = run(params=info, steps=15, directory=tmp_path)
    assert_same_run(run(params=info, steps=15, directory=tmp_path), first)
    held = jax.tree.map(lambda leaf: 2 * leaf if leaf.dtype == jnp.float32 else leaf, info.estimator_state)
    others = [info.params[0], info._replace(step=9), info._replace(estimator_state=held), evaluation(5)]
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
def test_an_evaluation_that_does_not_fit_is_refused(own_errors, options, message):
    info = evaluation()
    with pytest.raises(ValueError, match=f"train: {message}"):
        run(params=info, **options)
