import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import jaxprs_in_params

import dmlmc
from dmlmc.estimators import check_estimator, on_mesh
from tests.helpers.problems import neural_loss, neural_params
from tests.helpers.spy import MAKERS, Spy, assert_close, small_plan

QUADRATIC = dmlmc.QuadraticLoss(3, 1.0, 1.0, dmlmc.Rates(1.8, 1.0, 1.0))


@eqx.filter_jit
def _mean_of_gradients(loss, params, key, level, samples):
    def of_one(sample_key):
        return eqx.filter_grad(loss.difference)(params, loss.sample(sample_key, level), level)

    gradients = jax.lax.map(of_one, jax.random.split(key, samples))
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0) / samples, gradients)


def level_gradient(loss, plan, params, key, step, level):
    """The refresh of one level: the mean over samples, one by one, of the gradient of D_l."""
    level_key = jax.random.fold_in(jax.random.fold_in(key, step), level)
    return _mean_of_gradients(loss, params, level_key, level, plan.samples[level])


def algorithm_1(loss, plan, params, key, steps, learning_rate):
    """The paper's Algorithm 1, with Python's own if and for. Yields (params, caches, gradient) at each step."""
    caches = [None] * len(plan.samples)
    for step in range(steps):
        for level, period in enumerate(plan.periods):
            if step % period == 0:
                caches[level] = level_gradient(loss, plan, params, key, step, level)
        gradient = jax.tree.map(lambda *leaves: sum(leaves), *caches)
        yield params, list(caches), gradient
        params = eqx.apply_updates(params, jax.tree.map(lambda leaf: -learning_rate * leaf, gradient))


@pytest.mark.parametrize("periods", [(1, 2, 4), (1, 2, 5), (1, 3, 1), (2, 3, 4)], ids=str)
def test_every_step_is_that_of_algorithm_1(x64, periods):
    loss, plan, key, rate = Spy(), small_plan(periods), jax.random.key(3), 0.1
    estimator = dmlmc.delayed_mlmc(loss, plan)
    params = jnp.array([1.0, 0.5, -0.5])
    state = estimator.init(params)
    stale = [level for level, period in enumerate(periods) if period > 1]
    for step, (expected_params, caches, expected) in enumerate(algorithm_1(loss, plan, params, key, 9, rate)):
        assert_close(params, expected_params)
        grads, state = estimator.estimate(params, state, step, key)
        assert_close(grads, expected)
        assert_close(state.gradients, {level: caches[level] for level in stale})
        params = params - rate * grads


def test_algorithm_1_on_a_neural_sde(x64):
    loss, plan, key, rate = neural_loss(jnp.float64), small_plan((1, 3), (3, 2)), jax.random.key(1), 0.05
    estimator = dmlmc.delayed_mlmc(loss, plan)
    params = neural_params(jnp.float64)
    state = estimator.init(params)
    for step, (expected_params, _, expected) in enumerate(algorithm_1(loss, plan, params, key, 4, rate)):
        grads, state = estimator.estimate(params, state, step, key)
        assert_close(grads, expected)
        assert_close(eqx.filter(params, eqx.is_array), eqx.filter(expected_params, eqx.is_array))
        params = eqx.apply_updates(params, jax.tree.map(lambda leaf: -rate * leaf, grads))


def test_cached_gradients_are_those_of_the_last_refresh(x64):
    """With parameters that move at every step, each cache is the gradient at step tau_l(t) and at no other."""
    loss, plan, key = Spy(), small_plan((1, 3, 4)), jax.random.key(0)
    estimator = dmlmc.delayed_mlmc(loss, plan)
    at_step = [jnp.array([1.0, 2.0, 3.0]) * step for step in range(14)]
    state = estimator.init(at_step[0])
    for step in range(14):
        _, state = estimator.estimate(at_step[step], state, step, key)
        for level, cache in state.gradients.items():
            tau = plan.last_refresh(level, step)
            assert_close(cache, level_gradient(loss, plan, at_step[tau], key, tau, level))


@pytest.mark.parametrize("samples", [(5, 3, 2), (1, 1, 1)])
def test_delayed_with_all_periods_1_is_mlmc_exactly(samples):
    loss, params, key = QUADRATIC, jnp.array([1.0, 2.0, 3.0]), jax.random.key(5)
    plan = small_plan((1, 2, 4), samples)
    mlmc = dmlmc.mlmc(loss, plan)
    delayed = dmlmc.delayed_mlmc(loss, small_plan((1, 1, 1), samples))
    assert mlmc.init(params) == delayed.init(params) == ()
    for step in (0, 1, 2):
        one, _ = mlmc.estimate(params, (), step, key)
        other, _ = delayed.estimate(params, (), step, key)
        assert bool(eqx.tree_equal(one, other))


def test_delayed_equals_mlmc_at_step_0_whatever_the_state(x64):
    loss, params, key, plan = QUADRATIC, jnp.array([1.0, 2.0, 3.0]), jax.random.key(5), small_plan()
    delayed = dmlmc.delayed_mlmc(loss, plan)
    rubbish = jax.tree.map(lambda leaf: leaf + jnp.nan, delayed.init(params).gradients)
    rubbish = delayed.init(params)._replace(gradients=rubbish)
    grads, state = delayed.estimate(params, rubbish, 0, key)
    expected, _ = dmlmc.mlmc(loss, plan).estimate(params, (), 0, key)
    assert_close(grads, expected, rtol=1e-12)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(state))


def test_mlmc_and_naive_have_the_same_mean_gradient(x64):
    loss, params, repeats = neural_loss(jnp.float64), neural_params(jnp.float64), 3000
    estimators = [dmlmc.naive(loss, 2, 4), dmlmc.mlmc(loss, small_plan(samples=(8, 4, 2)))]
    means, errors = [], []
    for index, estimator in enumerate(estimators):
        keys = jax.random.split(jax.random.key(index), repeats)
        estimate = jax.vmap(lambda key, estimator=estimator: estimator.estimate(params, (), 0, key)[0])
        values = np.concatenate([np.reshape(leaf, (repeats, -1)) for leaf in jax.tree.leaves(estimate(keys))], axis=1)
        means.append(values.mean(0))
        errors.append(values.std(0) / repeats**0.5)
    scores = (means[0] - means[1]) / np.hypot(*errors)
    assert np.max(np.abs(scores)) < 4  # 24 components: a score above 4 has odds of 1 in 650
    coarse = dmlmc.naive(loss, 0, 4)
    keys = jax.random.split(jax.random.key(9), repeats)
    biased = jax.tree.leaves(jax.vmap(lambda key: coarse.estimate(params, (), 0, key)[0])(keys))
    offset = np.concatenate([np.reshape(leaf, (repeats, -1)).mean(0) for leaf in biased]) - means[0]
    assert np.max(np.abs(offset / errors[0])) > 6  # level 0 alone is told apart


def test_the_long_run_variance_is_that_of_long_averages_of_gradients(x64):
    """At fixed parameters, T times the variance of the mean of T gradients, over whole cycles."""
    rates, steps, runs = dmlmc.Rates(1.8, 1.0, 1.0), 32, 4000
    loss = dmlmc.QuadraticLoss(1, 1.0, 1.0, rates)
    for allocation in ("held", "paper"):
        plan = dmlmc.plan(rates, 3, level0_samples=4, allocation=allocation)
        estimator, params = dmlmc.delayed_mlmc(loss, plan), jnp.zeros(1)

        def average(key, estimator=estimator, params=params):
            def step(state, index):
                grads, state = estimator.estimate(params, state, index, key)
                return state, grads[0]

            return jnp.mean(jax.lax.scan(step, estimator.init(params), jnp.arange(steps))[1])

        means = jax.jit(jax.vmap(average))(jax.random.split(jax.random.key(0), runs))
        ratio = steps * float(jnp.var(means)) / plan.long_run_variance()
        assert abs(ratio - 1) < 4 * (2 / runs) ** 0.5
    assert plan.long_run_variance() > 2 * plan.variance()  # the test can tell


@pytest.mark.parametrize(
    "make", [lambda: dmlmc.mlmc(Spy(), small_plan(samples=(1, 1, 1))), lambda: dmlmc.naive(Spy(), 2, 1)]
)
def test_noise_is_fresh_for_every_step_level_and_seed(make):
    estimator = make()
    zero = jnp.zeros(3)
    drawn = [
        float(component)
        for seed in range(3)
        for step in range(5)
        for component in np.asarray(estimator.estimate(zero, (), step, jax.random.key(seed))[0])
    ]
    assert len(set(drawn)) == len(drawn) == 3 * 5 * 3


def test_a_batch_of_seeds_equals_one_seed_at_a_time(x64):
    estimator = dmlmc.delayed_mlmc(QUADRATIC, small_plan())
    keys, starts = jax.random.split(jax.random.key(2), 3), np.outer([1.0, 2.0, -1.0], [1.0, 2.0, 3.0])
    batch = jax.vmap(estimator.estimate, in_axes=(0, 0, None, 0))
    state = jax.vmap(estimator.init)(starts)
    alone = [estimator.init(start) for start in starts]
    for step in range(3):
        grads, state = batch(starts, state, step, keys)
        for seed, start in enumerate(starts):
            expected, alone[seed] = estimator.estimate(jnp.asarray(start), alone[seed], step, keys[seed])
            assert_close(np.asarray(grads)[seed], expected)


class Counting(Spy):
    """Reports, from the running program, every evaluation of a level."""

    seen: list = eqx.field(static=True)

    def sample(self, key, level):
        jax.debug.callback(lambda level: self.seen.append(int(level)), jnp.array(level))
        return super().sample(key, level)


@pytest.mark.parametrize("mesh", [lambda: None, lambda: dmlmc.mesh(samples=1)], ids=["no mesh", "mesh"])
def test_a_level_that_is_not_due_is_not_computed_also_in_a_batch_of_seeds(mesh):
    loss = Counting([])
    estimator = dmlmc.delayed_mlmc(loss, small_plan((1, 2, 4), (1, 1, 1)), mesh=mesh())
    params = jnp.zeros((2, 3))
    batch = jax.jit(jax.vmap(estimator.estimate, in_axes=(0, 0, None, 0)))
    state = jax.vmap(estimator.init)(params)
    keys = jax.random.split(jax.random.key(0), 2)
    for step in range(8):
        _, state = batch(params, state, step, keys)
    jax.effects_barrier()
    assert [loss.seen.count(level) for level in range(3)] == [8, 4, 2]
    loss.seen.clear()
    batched_step = jax.jit(jax.vmap(estimator.estimate, in_axes=(0, 0, 0, 0)))
    batched_step(params, state, jnp.array([1, 1]), keys)
    jax.effects_barrier()
    assert loss.seen.count(2) > 0  # the test can tell: a batched step computes what is not due


def test_on_a_mesh_a_level_that_is_not_due_sends_nothing_either():
    """One sum over devices outside of branches, that of level 0, and one in the branch of each level above."""
    estimator = dmlmc.delayed_mlmc(Spy(), small_plan((1, 2, 4)), mesh=dmlmc.mesh(samples=1))
    params = jnp.zeros((2, 3))
    state, keys = jax.vmap(estimator.init)(params), jax.random.split(jax.random.key(0), 2)
    batch = jax.jit(jax.vmap(estimator.estimate, in_axes=(0, 0, None, 0)))
    always, branches = sums_over_devices(batch.trace(params, state, 1, keys).jaxpr)
    assert (always, branches) == (1, [1, 1])
    assert batch.lower(params, state, 1, keys).compile().as_text().count(" conditional(") == 2


def sums_over_devices(jaxpr):
    """How many there are outside of branches, and how many in each branch that has any."""
    always, branches = 0, []
    for equation in jaxpr.eqns:
        inner = [sums_over_devices(sub) for sub in jaxprs_in_params(equation.params)]
        assert all(not deeper or equation.primitive.name != "cond" for _, deeper in inner)
        if equation.primitive.name == "cond":
            branches += [count for count, _ in inner if count]
        else:
            always += equation.primitive.name.startswith("psum") + sum(count for count, _ in inner)
            branches += [count for _, deeper in inner for count in deeper]
    return always, branches


def test_a_state_from_init_is_valid_at_any_step(x64):
    """What was never computed is computed at the first call, and is then as stale as it would be."""
    loss, plan, key = Spy(), small_plan((1, 3, 4)), jax.random.key(0)
    estimator, mlmc, params = dmlmc.delayed_mlmc(loss, plan), dmlmc.mlmc(loss, plan), jnp.array([1.0, 2.0, 3.0])
    for first in (0, 1, 5, 7):
        grads, state = estimator.estimate(params, estimator.init(params), first, key)
        assert_close(grads, mlmc.estimate(params, (), first, key)[0])
        for step in range(first + 1, first + 6):
            _, state = estimator.estimate(params, state, step, key)
            for level, cache in state.gradients.items():
                last = max(first, plan.last_refresh(level, step))
                assert_close(cache, level_gradient(loss, plan, params, key, last, level))


def test_a_seed_that_joins_late_is_computed_and_leaves_the_others_alone(x64):
    """In a batch at step 5 one state is fresh and one is not: each is what it would be alone."""
    estimator, key = dmlmc.delayed_mlmc(Spy(), small_plan((1, 2, 4))), jax.random.key(0)
    params, keys = jnp.array([[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]]), jax.random.split(key, 2)
    _, old = estimator.estimate(params[0], estimator.init(params[0]), 4, keys[0])
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), old, estimator.init(params[1]))
    grads, after = jax.vmap(estimator.estimate, in_axes=(0, 0, None, 0))(params, states, 5, keys)
    for seed, state in enumerate((old, estimator.init(params[1]))):
        alone, alone_after = estimator.estimate(params[seed], state, 5, keys[seed])
        np.testing.assert_array_equal(grads[seed], alone)
        assert_close(jax.tree.map(lambda leaf, seed=seed: leaf[seed], after), alone_after)


def test_a_state_of_another_plan_is_refused():
    params, key = jnp.ones(3), jax.random.key(0)
    for periods in [(1, 1, 4), (2, 2, 4)]:
        state = dmlmc.delayed_mlmc(Spy(), small_plan(periods)).init(params)
        with pytest.raises(ValueError, match="delayed_mlmc: state must be"):
            dmlmc.delayed_mlmc(Spy(), small_plan((1, 2, 4))).estimate(params, state, 1, key)


def test_estimate_is_traced_once_for_all_steps():
    traces = []

    class Traced(Spy):
        def loss(self, params, noise):
            traces.append(noise.shape)
            return super().loss(params, noise)

    estimator = dmlmc.delayed_mlmc(Traced(), small_plan())
    params, key = jnp.ones(3), jax.random.key(0)
    state = estimator.init(params)
    _, state = estimator.estimate(params, state, 0, key)
    after_first = len(traces)
    for step in range(1, 9):
        _, state = estimator.estimate(params, state, step, jax.random.key(step))
    assert len(traces) == after_first


def test_state_holds_one_gradient_per_level_that_can_be_stale():
    params = {"a": jnp.ones(3), "n": 4}
    estimator = dmlmc.delayed_mlmc(neural_loss(), small_plan((1, 1, 4)))
    assert jax.tree.map(jnp.shape, estimator.init(params)) == ({2: {"a": (3,), "n": None}}, {2: ()})


def test_gradients_fit_optax():
    """Only shapes, dtypes and the tree matter here, so nothing is computed."""
    estimator, params = dmlmc.delayed_mlmc(neural_loss(), small_plan()), neural_params()
    trainable, key = eqx.filter(params, eqx.is_inexact_array), jax.random.key(0)
    grads, _ = eqx.filter_eval_shape(lambda: estimator.estimate(params, estimator.init(params), 0, key))

    def moved(optimiser, grads):
        updates, _ = optimiser.update(grads, optimiser.init(trainable), trainable)
        return eqx.apply_updates(trainable, updates)

    for optimiser in (optax.sgd(0.1), optax.adam(0.1), optax.sgd(0.1, momentum=0.9)):
        assert eqx.filter_eval_shape(moved, optimiser, grads) == jax.eval_shape(lambda: trainable)


def test_costs_are_those_of_the_plan(paper_rates, paper_plan):
    plan, loss = paper_plan, neural_loss()
    steps = np.arange(64)
    delayed, mlmc, naive = dmlmc.delayed_mlmc(loss, plan), dmlmc.mlmc(loss, plan), dmlmc.naive(loss, 6, 148)
    np.testing.assert_array_equal(delayed.span(steps), plan.span(steps))
    np.testing.assert_array_equal(mlmc.span(steps), np.full(64, 64.0))
    np.testing.assert_array_equal(naive.span(steps), np.full(64, 64.0), strict=True)
    assert delayed.work(0) == mlmc.work(0) == mlmc.work(3) > delayed.work(3) == 512.0
    held = dmlmc.plan(paper_rates, 6, level0_samples=512)
    assert dmlmc.mlmc(loss, held).work(3) == mlmc.work(3) == dmlmc.delayed_mlmc(loss, held).work(steps).mean()
    assert naive.work(0) == 148 * 64.0
    assert dmlmc.naive(loss, 3, 10, c=2.0).span(0) == 64.0
    assert [e.method for e in (naive, mlmc, delayed)] == ["naive", "MLMC", "delayed MLMC"]
    custom = dmlmc.GradientEstimator(init=lambda params: (), estimate=lambda params, state, step, key: (params, state))
    assert np.isnan(custom.work(0)) and np.isnan(custom.span(steps)).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: dmlmc.naive(abs, 1, 1),
            TypeError,
            r"naive: loss must be a dmlmc.MultilevelLoss, such as dmlmc.SDELoss\(",
        ),
        (lambda: dmlmc.naive(Spy(), 1, 1).estimate(jnp.ones(3), (), 0, 7), TypeError, "^naive: key must be a key"),
        (
            lambda: dmlmc.naive(Spy(), 1, 1).estimate(3.0, (), 0, jax.random.key(0)),
            TypeError,
            "^naive: params must hold",
        ),
        (lambda: dmlmc.mlmc(Spy(), small_plan()).init(1.0), TypeError, "^mlmc: params must hold"),
        (lambda: dmlmc.naive(Spy(), -1, 1), ValueError, "naive: level must be at least 0"),
        (lambda: dmlmc.naive(Spy(), 1, 0), ValueError, "naive: samples must be at least 1"),
        (lambda: dmlmc.naive(Spy(), 1, 2.5), TypeError, "naive: samples must be an integer"),
        (lambda: dmlmc.naive(Spy(), 1, 1, c=0.0), ValueError, "naive: c must be positive"),
        (lambda: dmlmc.mlmc(Spy(), (4, 2)), TypeError, r"^mlmc: plan must be a dmlmc.Plan, made by dmlmc.plan\("),
        (lambda: dmlmc.mlmc(abs, small_plan()), TypeError, "loss must be a dmlmc.MultilevelLoss"),
        (lambda: dmlmc.delayed_mlmc(Spy(), None), TypeError, r"^delayed_mlmc: plan .* made by dmlmc.plan\("),
        (lambda: dmlmc.delayed_mlmc(None, small_plan()), TypeError, r"^delayed_mlmc: loss .* such as dmlmc.SDELoss\("),
        (
            lambda: dmlmc.delayed_mlmc(Spy(), small_plan()).estimate(jnp.ones(3), (), 0, jax.random.key(0)),
            ValueError,
            r"^delayed_mlmc: state must be that of init\(params\) or of the step before, .* got \(\)",
        ),
        (
            lambda: dmlmc.mlmc(Spy(), small_plan()).estimate(jnp.ones(3), (), 0, 7),
            TypeError,
            "^mlmc: key must be a key",
        ),
        (
            lambda: dmlmc.naive(Spy(), 1, 1).estimate(jnp.ones(3), (), "0", jax.random.key(0)),
            TypeError,
            "^estimate: step must be an",
        ),
        (lambda: dmlmc.naive(Spy(), 1, 1).init(3.0), TypeError, "^naive: params must hold at least one"),
        (lambda: dmlmc.mlmc(Spy(), small_plan()).init({}), TypeError, "params must hold at least one array"),
        (lambda: dmlmc.mlmc(Spy(), small_plan()).init(jnp.arange(3)), TypeError, "^mlmc: params must hold"),
    ],
)
def test_bad_arguments_are_named(own_errors, call, error, message):
    with pytest.raises(error, match=message):
        call()


class Antithetic(Spy):
    """A loss whose coupled pairs have two fine paths."""

    @property
    def fine_paths(self):
        return 2


@pytest.mark.parametrize("make", [dmlmc.mlmc, dmlmc.delayed_mlmc])
def test_an_estimator_has_the_mesh_it_was_given_and_the_work_of_its_pairs(make):
    mesh, plan = dmlmc.mesh(samples=1), small_plan((1, 1, 1), (5, 3, 2))
    estimator = make(Antithetic(), plan, mesh=mesh)
    assert estimator.mesh is mesh and make(Spy(), plan).mesh is None
    assert make(Spy(), plan).work(0) == 5 + 3 * (2 + 1) + 2 * (4 + 2)
    assert estimator.work(0) == 5 + 3 * (2 * 2 + 1) + 2 * (2 * 4 + 2)


def test_a_level_that_was_never_computed_is_computed_at_once_and_then_held():
    estimator, params, key = dmlmc.delayed_mlmc(Spy(), small_plan((1, 4), (1, 1))), jnp.zeros(3), jax.random.key(0)
    grads, state = estimator.estimate(params, estimator.init(params), 1, key)
    assert float(grads[1]) == float(state.gradients[1][1]) != 0 and bool(state.computed[1])
    later, after = estimator.estimate(params, state, 2, key)
    assert float(later[1]) == float(grads[1]) and float(later[0]) != float(grads[0])
    assert float(after.gradients[1][1]) == float(grads[1])
    assert float(estimator.estimate(params, after, 4, key)[0][1]) != float(grads[1])
    always = dmlmc.delayed_mlmc(Spy(), small_plan((1, 1), (1, 1)))
    assert always.estimate(params, always.init(params), 1, key)[1] == ()


def shares(function, *arguments):
    """How devices share the arguments and the results of a function."""
    (outer,) = jax.make_jaxpr(function)(*arguments).eqns
    inner = [equation for sub in jaxprs_in_params(outer.params) for equation in sub.eqns]
    shared = [equation.params for equation in inner if equation.primitive.name == "shard_map"]
    return [(tuple(params["in_specs"]), tuple(params["out_specs"])) for params in shared]


def test_on_a_mesh_with_samples_both_functions_are_called_by_every_device():
    device, spec = np.array(jax.devices()[:1]), jax.sharding.PartitionSpec("samples")
    seeds, samples = (jax.sharding.Mesh(device, (axis,)) for axis in ("seeds", "samples"))
    estimator = dmlmc.GradientEstimator(
        lambda params: jax.lax.psum(params, "samples") + jnp.arange(2.0),
        lambda params, state, step, key: (jax.lax.psum(params + step + jax.random.uniform(key), "samples"), 2 * state),
        "mine",
        state_spec=spec,
    )
    assert on_mesh(None, estimator) is estimator
    assert on_mesh(seeds, estimator) == estimator._replace(mesh=seeds)
    shared, key = on_mesh(samples, estimator), jax.random.key(0)
    assert shared.mesh is samples and shared.method == "mine" and shared.state_spec is spec
    state = shared.init(jnp.ones(2))
    assert state.tolist() == [1.0, 2.0]
    grads, after = shared.estimate(jnp.ones(2), state, 3, key)
    np.testing.assert_allclose(grads, np.full(2, 4 + float(jax.random.uniform(key))), rtol=1e-6)
    assert after.tolist() == [2.0, 4.0]
    whole = jax.sharding.PartitionSpec()
    assert shares(shared.init, jnp.ones(2)) == [((whole,), (spec,))]
    assert shares(shared.estimate, jnp.ones(2), state, 3, key) == [((whole, spec, whole, whole), (whole, spec))]
    with pytest.raises(TypeError, match=r"^mine: mesh must be a jax\.sharding\.Mesh"):
        on_mesh(1, estimator)
    with pytest.raises(TypeError, match=r"^estimate: step must be an"):
        shared.estimate(jnp.ones(2), state, "3", key)


@pytest.mark.parametrize("method", MAKERS)
def test_a_mesh_is_kept_and_changes_no_number(method):
    device = np.array(jax.devices()[:1])
    alone, params = MAKERS[method](), jnp.array([0.1, 0.2, 0.3])
    for axes in (("seeds",), ("seeds", "samples")):  # a mesh with samples alone: in the test before
        mesh = jax.sharding.Mesh(device.reshape([1] * len(axes)), axes)
        shared = MAKERS[method](mesh=mesh)
        assert shared.mesh == mesh and shared.method == method and alone.mesh is None
        state = alone.init(params), shared.init(params)
        for step in range(3):
            (grads, one), (others, other) = (
                estimator.estimate(params, memory, step, jax.random.key(0))
                for estimator, memory in zip((alone, shared), state, strict=True)
            )
            state = one, other
            np.testing.assert_allclose(others, grads, rtol=1e-6)
    with pytest.raises(TypeError, match=f"{method.replace('delayed MLMC', 'MLMC')}: mesh must be a jax.sharding.Mesh"):
        MAKERS[method](mesh=1)


def test_on_a_mesh_params_may_hold_other_things_than_arrays():
    loss, params = neural_loss(), neural_params()
    grads, others = (
        dmlmc.naive(loss, 0, 2, mesh=mesh).estimate(params, (), 0, jax.random.key(0))[0]
        for mesh in (None, dmlmc.mesh(samples=1))
    )
    for one, other in zip(jax.tree.leaves(grads), jax.tree.leaves(others), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def own(**fields):
    """An estimator of a user's own, whose params are its gradient."""
    good = {"init": lambda params: (), "estimate": lambda params, state, step, key: (params, state)}
    return dmlmc.GradientEstimator(**{**good, **fields})


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"init": None}, TypeError, r"mine\.init must be a function of \(params\), got None"),
        ({"init": lambda: ()}, TypeError, r"mine\.init must be a function of \(params\), got one of \(\)"),
        ({"estimate": 3}, TypeError, r"mine\.estimate must be a function of \(params, state, step, key\), got 3"),
        ({"estimate": lambda params: params}, TypeError, r"mine\.estimate .* \(params, state, step, key\), got one of"),
        ({"work": 3}, TypeError, r"mine\.work must be a function of \(step\), got 3"),
        ({"span": lambda: 1}, TypeError, r"mine\.span must be a function of \(step\), got one of \(\)"),
        ({"work": lambda step: "a"}, TypeError, r"mine\.work must be a sequence of real numbers"),
        ({"span": lambda step: step[:2]}, ValueError, r"mine\.span must return one number per step, got 2 for 3 steps"),
        ({"work": lambda step: np.r_[step, 0]}, ValueError, r"mine\.work must return one number .* got 4 for 3 steps"),
    ],
)
def test_a_custom_estimator_is_checked_before_a_run(fields, error, message):
    with pytest.raises(error, match=f"^{message}"):
        check_estimator("mine", own(**fields))


def test_a_custom_estimator_may_give_its_cost_per_step_once_or_not_at_all():
    with pytest.raises(TypeError, match=r"^mine must be a dmlmc.GradientEstimator, made by dmlmc.delayed_mlmc\("):
        check_estimator("mine", abs)
    for cost in (lambda step: 2.0, lambda step: step + 1.0, lambda step: np.full(np.shape(step), 3.0)):
        check_estimator("mine", own(work=cost, span=cost))
    check_estimator("mine", own())


@pytest.mark.parametrize(
    ("estimate", "error", "message"),
    [
        (lambda params: params, TypeError, r"estimate must return a pair \(grads, state\), got {"),
        (lambda params: (params, 1, 2), TypeError, r"estimate must return a pair \(grads, state\), got \("),
        (lambda params: [params, jnp.zeros(2)], TypeError, "estimate must return a pair"),
        (lambda params: (None, jnp.zeros(2)), ValueError, "grads must be like the float arrays of params, .* got None"),
        (lambda params: ({"a": jnp.ones(2), "n": None}, jnp.zeros(2)), ValueError, r"grads must be .*3\].*2\]"),
        (lambda params: (params, jnp.zeros(2)), ValueError, "grads must be like the float arrays of params"),
        (lambda params: ({**params, "n": None}, jnp.zeros(3)), ValueError, r"state must be like the state .* before, "),
        (lambda params: ({**params, "n": None}, jnp.zeros(2, int)), ValueError, "state must be like .* got i32"),
    ],
)
def test_what_an_estimate_returns_is_checked(estimate, error, message):
    params = {"a": jnp.ones(3), "n": jnp.array(1)}
    estimator = own(estimate=lambda params, state, step, key: estimate(params))
    with pytest.raises(error, match=f"^GradientEstimator: {message}"):
        estimator.checked(params, jnp.zeros(2), 0, jax.random.key(0))


def test_a_good_estimate_is_passed_on_with_all_it_was_given():
    def estimate(params, state, step, key):
        seen.extend([params, state, step, key])
        return {"a": jnp.full(3, 2, jnp.float16), "n": None}, state + 1  # gradients may have a dtype of their own

    seen, params, key = [], {"a": jnp.ones(3), "n": jnp.array(1)}, jax.random.key(0)
    grads, state = own(estimate=estimate).checked(params, jnp.zeros(2), 5, key)
    assert grads["a"].tolist() == [2.0] * 3 and state.tolist() == [1.0, 1.0]
    assert seen[0] is params and seen[1].tolist() == [0.0, 0.0] and seen[2] == 5 and seen[3] is key
