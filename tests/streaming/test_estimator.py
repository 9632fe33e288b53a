"""Streaming MLMC against MLMC's own gradients, on the same noise."""

import diffrax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import dmlmc
from dmlmc.estimators import level_gradients
from dmlmc.streaming.estimator import Stream, streamed_plan
from dmlmc.streaming.noise import stretches
from dmlmc.streaming.pieces import observed_steps

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
KEY = jr.key(3)
QUADRATIC = dmlmc.QuadraticLoss(dimension=1, L=1.0, M=1.0, rates=RATES)
PARAMS = {"pull": 0.7, "noise": 0.4, "start": 0.2, "price": 0.3}


def params():
    return {name: jnp.array(value, float) for name, value in PARAMS.items()}


def small_loss(*, coarsest_steps=4, context=False, y0=None, terminal=None, **options):
    """Two states and two noises that do not commute; every parameter has a gradient."""

    def drift(t, y, params, *shift):
        return params["pull"] * (1.0 + t - y) + sum(shift)

    def diffusion(t, y, params, *shift):
        return params["noise"] * jnp.array([[1.0, 0.2 * y[1]], [y[0], 1.0]])

    def loss_at_the_end(y, params, *shift):
        return jnp.sum(jnp.sin(y) ** 2) + (jnp.sum(y) - params["price"]) ** 2 + sum(shift) * jnp.sum(y)

    if context:
        options["context"] = lambda key: jr.uniform(key)
    start = jnp.array([0.5, 1.0], float) if y0 is None else y0
    terminal = loss_at_the_end if terminal is None else terminal
    return dmlmc.SDELoss(drift, diffusion, terminal, start, 1.0, coarsest_steps, 2, **options)


def trained_start(params, *context):
    return jnp.stack([params["start"] + sum(context), 1.0])


# Options that have nothing to do with each other share a case.
OPTIONS = {
    "observed, in groups": {"observation_times": [0.25, 0.5, 1.0], "samples_at_once": 3},
    "context": {"context": True, "y0": trained_start},
    "copies observed early": {"copies": 2, "observation_times": [0.5, 0.75]},
    "antithetic": {"antithetic": True, "y0": trained_start},
    "solver": {"solver": diffrax.ReversibleHeun(), "y0": trained_start},
    "all": {"context": True, "copies": 2, "antithetic": True, "observation_times": [0.25, 1.0], "y0": trained_start},
}


def flat(tree):
    return np.asarray(ravel_pytree(tree)[0])


def gradients(estimator, params, steps, key=KEY):
    """The gradients of consecutive steps at fixed parameters, one row per step."""

    def advance(state, step):
        grads, state = estimator.estimate(params, state, step, key)
        return state, ravel_pytree(grads)[0]

    return np.asarray(jax.jit(lambda: jax.lax.scan(advance, estimator.init(params), jnp.array(steps))[1])())


def noises_of_cohorts(stream, level, first):
    """``noises(began)``: the noise of all pairs of a cohort, as ``loss.pairs`` takes it, from its way forward."""
    rows, _ = stream.rows()
    mine, samples = rows.level == level, stream.plan.samples

    def forward_at(step):
        chunk, pairs = (step - first) % rows.period, jnp.asarray(rows.place)
        onward, _, _ = stretches(stream.loss, rows, pairs, chunk, samples, jnp.arange(1), step, KEY, stream.iterations)
        return jax.tree.map(lambda leaf: leaf[mine][: samples[level]], (onward.increments, onward.context))

    def noises(began):
        # axes (chunk, pair, iteration, 2, copies, noise)
        chunks, context = jax.vmap(forward_at)(began + jnp.arange(stream.plan.periods[level]))
        whole = jnp.moveaxis(chunks, 0, 1).reshape(samples[level], -1, *chunks.shape[4:])
        whole = whole if stream.loss.copies > 1 else whole[:, :, 0]
        return whole if context is None else (whole, jax.tree.map(lambda leaf: leaf[0], context))

    return noises


def whole_gradients(loss, stream, params, steps, first):
    """What the pieces of ``steps`` must add up to: the gradients of all cohorts that turn in them, and whole levels."""
    total = 0.0
    for level, period in enumerate(stream.plan.periods):
        if period > 1:
            noises = noises_of_cohorts(stream, level, first)

            def of_cohort(params, began, noises=noises, level=level):
                return jnp.mean(loss.differences(params, noises(began), level))

            turns = jnp.array([step for step in steps if (step - first) % period == 0])
            of_all = jax.jit(jax.vmap(jax.grad(of_cohort), (None, 0)))(params, turns - period)
        else:
            period, of_level = 1, level_gradients("test", loss, stream.plan)[level]
            keys = jax.vmap(lambda step, level=level: jr.fold_in(jr.fold_in(KEY, step), level))(jnp.array(steps))
            of_all = jax.jit(jax.vmap(of_level, (None, 0)))(params, keys)
        total += period * flat(jax.tree.map(lambda leaf: leaf.sum(axis=0), of_all))
    return total


@pytest.mark.parametrize(
    ("stride", "first", "coarsest_steps"), [(1, 5, 4), (2, 0, 3)], ids=["stride 1", "stride 2 on an odd grid"]
)
def test_over_a_period_the_pieces_add_up_to_the_coupled_gradients(x64, stride, first, coarsest_steps):
    loss, start, plan = small_loss(coarsest_steps=coarsest_steps), params(), dmlmc.plan(RATES, 3, level0_samples=3)
    stream = Stream(loss, streamed_plan(plan, stride), stride)
    period = stream.plan.periods[-1]
    found = gradients(dmlmc.streaming_mlmc(loss, plan, stride=stride), start, range(first, first + 3 * period))
    window = range(first + 2 * period, first + 3 * period)
    wanted = whole_gradients(loss, stream, start, window, first)
    assert np.all(np.abs(wanted[:3]) > 1e-6)  # noise, price and pull; the start has no gradient
    np.testing.assert_allclose(found[2 * period :].sum(axis=0), wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_pieces_add_up_with_every_option_of_the_loss(x64, name):
    if "copies" in OPTIONS[name]:

        def terminal(y, params, *shift):  # two copies of a path, seen at two times
            return jnp.sum(jnp.sin(y[0]) * y[1]) * params["price"] + sum(shift) * y[0, 0, 0]

        loss = small_loss(terminal=terminal, **OPTIONS[name])
    else:
        loss = small_loss(**OPTIONS[name])
    # Levels that follow each other are tested above: one streamed level is enough here, except for all options at once.
    start, plan = params(), dmlmc.plan(RATES, 2 if name == "all" else 1, level0_samples=3)
    stream, period = Stream(loss, streamed_plan(plan, 1), 1), plan.periods[-1]
    found = gradients(dmlmc.streaming_mlmc(loss, plan), start, range(3 * period))
    wanted = whole_gradients(loss, stream, start, range(2 * period, 3 * period), 0)
    assert np.all(np.abs(wanted[: 4 if callable(loss.y0) else 3]) > 1e-6)  # in order: noise, price, pull, start
    np.testing.assert_allclose(found[2 * period :].sum(axis=0), wanted, rtol=1e-10, atol=1e-11)


def test_before_a_level_arrives_the_gradient_is_that_of_the_levels_below(x64):
    loss, start, plan = small_loss(), params(), dmlmc.plan(RATES, 2, level0_samples=3)
    found = gradients(dmlmc.streaming_mlmc(loss, plan), start, range(3))
    level0 = level_gradients("test", loss, plan)[0]
    of_step = jax.jit(jax.vmap(lambda step: ravel_pytree(level0(start, jr.fold_in(jr.fold_in(KEY, step), 0)))[0]))
    wanted = np.asarray(of_step(jnp.arange(3)))
    np.testing.assert_allclose(found[:2], wanted[:2], rtol=1e-12)
    assert np.abs(found[2] - wanted[2]).max() > 1e-3


def test_a_stride_as_long_as_the_finest_path_is_mlmc(x64):
    loss, start, plan = small_loss(), params(), dmlmc.plan(RATES, 1, level0_samples=3)
    found = gradients(dmlmc.streaming_mlmc(loss, plan, stride=2), start, range(3))
    np.testing.assert_array_equal(found, gradients(dmlmc.mlmc(loss, plan), start, range(3)))


def test_the_mean_over_periods_is_that_of_mlmc(x64):
    loss, start, plan = small_loss(coarsest_steps=2), params(), dmlmc.plan(RATES, 2, level0_samples=16)
    periods = 400
    streaming = gradients(dmlmc.streaming_mlmc(loss, plan), start, range(4 * (periods + 2)))[8:]
    streaming = streaming.reshape(periods, 4, -1).mean(axis=1)
    wanted = gradients(dmlmc.mlmc(loss, plan), start, range(4 * periods), jr.key(9))
    errors = np.sqrt(streaming.var(axis=0) / len(streaming) + wanted.var(axis=0) / len(wanted))
    assert np.all((np.abs(streaming.mean(axis=0) - wanted.mean(axis=0)) <= 4 * errors)[:3])  # the start has no gradient
    level0 = gradients(dmlmc.naive(loss, 0, 4), start, range(4 * periods), jr.key(9))
    assert np.any(np.abs(level0.mean(axis=0) - wanted.mean(axis=0)) > 4 * errors)  # so the first bound can fail


SEEDS = jr.split(jr.key(0), 2)


@pytest.fixture(scope="module")
def estimator():
    """In double precision. All runs share it, so JAX traces it once."""
    with jax.enable_x64(True):
        return dmlmc.streaming_mlmc(small_loss(), dmlmc.plan(RATES, 2, level0_samples=3))


def run(estimator, steps, keys=SEEDS, start=None, **options):
    settings = {"progress": False, "evaluate_every": 5, "validation": lambda p: p["pull"], **options}
    return dmlmc.train(estimator, optax.adam(0.01), params() if start is None else start, steps, keys, **settings)


@pytest.fixture(scope="module")
def uninterrupted(estimator):
    with jax.enable_x64(True):
        return run(estimator, 30)


def test_a_run_resumed_in_the_middle_of_a_period_is_the_uninterrupted_one(x64, estimator, uninterrupted, tmp_path):
    run(estimator, 13, directory=tmp_path)
    resumed, record = run(estimator, 30, directory=tmp_path, chunk_steps=7)
    np.testing.assert_array_equal(flat(resumed), flat(uninterrupted[0]))
    assert record.drop(columns="seconds").equals(uninterrupted[1].drop(columns="seconds"))


def test_seeds_of_a_batch_are_those_that_run_alone(x64, estimator, uninterrupted):
    for seed, key in enumerate(SEEDS):
        alone, _ = run(estimator, 30, key)
        of_seed = jax.tree.map(lambda leaf, seed=seed: np.asarray(leaf)[seed], uninterrupted[0])
        np.testing.assert_allclose(flat(of_seed), flat(alone), rtol=1e-12)


def test_a_run_can_go_on_from_an_evaluation(x64, estimator, uninterrupted):
    seen = []
    run(estimator, 13, callback=seen.append)
    assert seen[-1].step == 13
    second, _ = run(estimator, 30, start=seen[-1])
    np.testing.assert_array_equal(flat(second), flat(uninterrupted[0]))


def test_the_program_has_no_branch_and_no_gather_over_places():
    loss, plan = small_loss(), dmlmc.plan(RATES, 3, level0_samples=3)
    estimator = dmlmc.streaming_mlmc(loss, plan)

    def batch(params, state, step, keys):
        return jax.vmap(estimator.estimate, (None, 0, None, 0))(params, state, step, keys)

    keys = jr.split(jr.key(0), 2)
    state = jax.vmap(lambda key: estimator.init(params()))(keys)
    lowered = jax.jit(batch).lower(params(), state, jnp.array(0), keys).as_text()
    assert "stablehlo.case" not in lowered and "stablehlo.if" not in lowered
    places = "x".join(map(str, state.kept[0].shape))
    moves = [line for line in lowered.splitlines() if f"tensor<{places}x" in line]
    assert any("dynamic_update_slice" in line for line in moves)
    assert not any("gather" in line or "scatter" in line for line in moves)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_it_lowers_for_accelerators(platform):
    loss, plan = small_loss(), dmlmc.plan(RATES, 2, level0_samples=3)
    estimator = dmlmc.streaming_mlmc(loss, plan)
    arguments = params(), estimator.init(params()), jnp.array(0), jr.key(0)
    exported = jax.export.export(jax.jit(estimator.estimate), platforms=[platform])(*arguments)
    assert exported.platforms == (platform,)
    assert "f64" not in exported.mlir_module()


def test_the_accounts_are_uniform_and_those_of_delayed_mlmc_over_a_period():
    loss, plan = small_loss(antithetic=True), dmlmc.plan(RATES, 4, level0_samples=32)
    streaming, delayed = dmlmc.streaming_mlmc(loss, plan), dmlmc.delayed_mlmc(loss, plan)
    steps = np.arange(16)
    assert streaming.span(steps).tolist() == [1.0] * 16 and len(set(streaming.work(steps))) == 1
    assert np.isclose(np.sum(streaming.work(steps)), np.sum(delayed.work(steps)))
    for stride in (2, 16):
        assert dmlmc.streaming_mlmc(loss, plan, stride=stride).span(0) == stride
    assert dmlmc.streaming_mlmc(loss, plan, stride=16).work(0) == dmlmc.mlmc(loss, plan).work(0)


def test_the_plan_keeps_the_samples_per_step_of_mlmc():
    held = dmlmc.plan(RATES, 4, level0_samples=32)
    assert streamed_plan(held, 1).samples == held.samples
    assert streamed_plan(held, 16).samples == held.without_delay().samples
    paper = dmlmc.plan(RATES, 4, level0_samples=32, allocation="paper")
    assert streamed_plan(paper, 2).samples == paper.samples
    slow = dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=0.5), 4, level0_samples=32)
    assert streamed_plan(slow, 1).periods == (1, 2, 4, 8, 16)
    assert np.isclose(streamed_plan(slow, 1).long_run_variance(), slow.long_run_variance(), rtol=0.05)


def test_memory_does_not_grow_with_steps():
    plan = dmlmc.plan(RATES, 3, samples=[1, 1, 1, 1])
    estimator = dmlmc.streaming_mlmc(small_loss(coarsest_steps=2), plan)
    start = params()
    state = estimator.init(start)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(state.kept)) == (2 + 4 + 8) * 1 * 2 * 2 * 4  # places, paths, dim

    @jax.jit
    def thousand(state, first):
        return jax.lax.fori_loop(
            first, first + 1000, lambda t, state: estimator.estimate(start, state, t, KEY)[1], state
        )

    live = []
    for first in range(0, 10_000, 1000):
        state = jax.block_until_ready(thousand(state, first))
        live.append(sum(array.nbytes for array in jax.live_arrays()))
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(state)) == size
    assert live[-1] <= live[1]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda plan: dmlmc.streaming_mlmc(QUADRATIC, plan), TypeError, "loss must be a dmlmc.SDELoss"),
        (lambda plan: dmlmc.streaming_mlmc(small_loss(), 3), TypeError, "plan must be a dmlmc.Plan"),
        (lambda plan: dmlmc.streaming_mlmc(small_loss(), plan, stride=3), ValueError, "power of two, got 3"),
        (lambda plan: dmlmc.streaming_mlmc(small_loss(), plan, stride=8), ValueError, "between 1 and 4, got 8"),
        (lambda plan: dmlmc.streaming_mlmc(small_loss(), plan, stride=1.5), TypeError, "stride must be an integer"),
        (lambda plan: dmlmc.streaming_mlmc(small_loss(coarsest_steps=5), plan), ValueError, "coarsest_steps=5 and str"),
    ],
)  # fmt: skip
def test_bad_input_is_named(own_errors, make, error, message):
    with pytest.raises(error, match=message):
        make(dmlmc.plan(RATES, 2, level0_samples=3))


def test_a_state_of_another_plan_is_refused():
    loss, start = small_loss(), params()
    one, other = (dmlmc.streaming_mlmc(loss, dmlmc.plan(RATES, top, level0_samples=3)) for top in (2, 3))
    with pytest.raises(ValueError, match="streaming_mlmc: state must be that of init"):
        one.estimate(start, other.init(start), 0, KEY)
    assert one.adopt(other.init(start), start).kept[0].shape == one.init(start).kept[0].shape


def test_observed_steps_default_to_the_end():
    assert observed_steps(small_loss()).tolist() == [4]
    assert observed_steps(small_loss(observation_times=[0.25, 1.0])).tolist() == [1, 4]
