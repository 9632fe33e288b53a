"""Whatever is passed, it works or is refused by name: no traceback from inside JAX, NumPy or pandas."""

import warnings

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dmlmc
from tests.helpers.array_types import unchecked
from tests.helpers.problems import neural_loss

RATES = dmlmc.Rates(1.8, 1.0, 1.0)
PLAN = dmlmc.plan(RATES, 2, samples=[8, 4, 2], allocation="paper")
LOSS = dmlmc.QuadraticLoss(dimension=3, L=1.0, M=1.0, rates=RATES)
DELAYED, NAIVE = dmlmc.delayed_mlmc(LOSS, PLAN), dmlmc.naive(LOSS, 1, 3)
POINT, KEY = jnp.ones(3), jr.key(0)
MEASURED = dmlmc.Measurement(None, None)


@pytest.fixture(scope="module", autouse=True)
def own_errors():
    with unchecked():
        yield


def sde(**changes):
    good = {
        "drift": lambda t, y, params: -params * y,
        "diffusion": lambda t, y, params: jnp.ones((2, 1)),
        "terminal": lambda y, params: jnp.sum(y**2),
        "y0": jnp.ones(2),
        "t1": 1.0,
        "coarsest_steps": 2,
        "noise_dim": 1,
    }
    return dmlmc.SDELoss(**{**good, **changes})


def custom(function, base=dmlmc.MultilevelLoss):
    class Custom(base):
        def sample(self, key, level):
            return jr.normal(key, (2**level,))

        def coarsen(self, noise):
            return noise[::2]

        def loss(self, params, noise):
            return function(params)

    return Custom()


def estimate(estimator):
    return lambda params=POINT, key=KEY, step=0: estimator.estimate(params, estimator.init(params), step, key)


# Every public function that takes a loss, parameters or a key, by these names and with good values for the rest.
CALLS = {
    "naive": estimate(NAIVE),
    "delayed_mlmc": estimate(DELAYED),
    "mean_loss": lambda loss=LOSS, params=POINT, key=KEY: dmlmc.mean_loss(loss, params, 1, 10, key),
    "measure_levels": lambda loss=LOSS, params=POINT, key=KEY: dmlmc.measure_levels(
        loss, params, 2 * POINT, key, max_level=1, samples=8
    ),
    "calibrate": lambda loss=LOSS, params=POINT, key=KEY: dmlmc.calibrate(loss, params, key, 100.0, max_level=2),
    "level_seconds": lambda loss=LOSS, params=POINT, key=KEY: dmlmc.level_seconds(
        loss, params, key, max_level=1, repeats=1
    ),
    "iterates": lambda params=POINT, key=KEY: dmlmc.iterates(DELAYED, optax.sgd(0.1), params, [0, 1], key),
    "train": lambda params=POINT, key=KEY: dmlmc.train(DELAYED, optax.sgd(0.1), params, 2, key, progress=False),
    "sweep": lambda params=POINT, key=KEY: dmlmc.sweep(
        DELAYED,
        {"SGD": (optax.sgd, [0.1])},
        params,
        2,
        key,
        validation=lambda params: LOSS.mean(params, 1),
        progress=False,
    ),
}
TAKING_A_LOSS = ["mean_loss", "measure_levels", "calibrate", "level_seconds"]
BAD_KEYS = [jr.PRNGKey(0), 0, None, "key", np.array(3), jnp.ones(2), jr.split(KEY, 4).reshape(2, 2)]
BAD_PARAMS = [None, 1.0, [1.0, 2.0, 3.0], {}, "params", object(), jnp.arange(3), jnp.ones(3, bool), 1j * POINT]


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_key_is_refused(name):
    for key in BAD_KEYS:
        with pytest.raises(TypeError, match=rf"^{name}: key must be a key such as jax.random.key\(0\).*, got "):
            CALLS[name](key=key)
    if name not in ("train", "sweep"):
        with pytest.raises(TypeError, match=rf"^{name}: key .*, got an array of keys of shape \(2,\)"):
            CALLS[name](key=jr.split(KEY))


@pytest.mark.parametrize("name", [name for name in CALLS if name != "mean_loss"])
def test_params_without_real_floats_are_refused(name):
    for params in BAD_PARAMS:
        with pytest.raises(
            TypeError, match=f"^{name}: params must (hold at least one array of floats|be real).*, got "
        ):
            CALLS[name](params=params)


@pytest.mark.parametrize("params", [jnp.ones(4), {"a": POINT}, jnp.array(1.0)], ids=lambda value: type(value).__name__)
def test_params_that_do_not_fit_the_loss_are_refused(params):
    for name in ("naive", "delayed_mlmc", "mean_loss", "iterates", "train", "sweep"):
        with pytest.raises(ValueError, match=r"QuadraticLoss: params must have shape \(3,\), got "):
            CALLS[name](params=params)


@pytest.mark.parametrize("name", ["delayed_mlmc", "mean_loss", "train", "sweep"])
def test_numpy_params_work(name):
    ours, numpys = (jax.tree.leaves(CALLS[name](params=point)) for point in (POINT, np.ones(3)))
    np.testing.assert_array_equal(ours[0], numpys[0])


@pytest.mark.parametrize(
    "loss", [None, PLAN, lambda params: 1.0, dmlmc.QuadraticLoss, NAIVE], ids=lambda value: type(value).__name__
)
def test_what_is_no_loss_is_refused(loss):
    makers = {"naive": lambda loss: dmlmc.naive(loss, 1, 1), "mlmc": lambda loss: dmlmc.mlmc(loss, PLAN)}
    for name, call in {**makers, **{name: CALLS[name] for name in TAKING_A_LOSS}}.items():
        with pytest.raises(TypeError, match=rf"^{name}: loss must be a dmlmc.MultilevelLoss, such as .*, got "):
            call(loss=loss)


@pytest.mark.parametrize("plan", [None, LOSS, RATES, (8, 4, 2), dmlmc.Plan], ids=lambda value: type(value).__name__)
def test_what_is_no_plan_is_refused(plan):
    for maker in (dmlmc.mlmc, dmlmc.delayed_mlmc):
        with pytest.raises(TypeError, match=rf"^{maker.__name__}: plan must be a dmlmc.Plan, made by .*, got "):
            maker(LOSS, plan)


NO_SCALARS = {
    "vector": lambda params: params,
    "vector of one": lambda params: params[:1],
    "None": lambda params: None,
    "integer": lambda params: 3,
    "complex": lambda params: 1j * params[0],
    "text": lambda params: "a",
    "tree": lambda params: {"a": params[0]},
    "pair": lambda params: (params[0], params[0]),
}


@pytest.mark.parametrize("returns", NO_SCALARS.values(), ids=NO_SCALARS)
def test_a_loss_that_returns_no_real_scalar_is_refused(returns):
    loss = custom(returns)
    calls = {name: lambda name=name: CALLS[name](loss=loss) for name in TAKING_A_LOSS}
    calls |= {"naive": estimate(dmlmc.naive(loss, 1, 3)), "delayed": estimate(dmlmc.delayed_mlmc(loss, PLAN))}
    for call in calls.values():
        with pytest.raises(
            (TypeError, ValueError), match=r"^Custom: loss must return an array of shape \(\), a scalar"
        ):
            call()


def test_a_batch_of_losses_of_the_wrong_shape_is_refused():
    class Batched(dmlmc.QuadraticLoss):
        def losses(self, params, noises):
            return noises.sum(axis=-1)

    with pytest.raises(ValueError, match=r"Batched: losses must return an array of shape \(3,\), got shape \(3, 2\)"):
        estimate(dmlmc.naive(Batched(3, 1.0, 1.0, RATES), 1, 3))()


STATE = DELAYED.init(POINT)


@pytest.mark.parametrize(
    "state",
    [
        None,
        (),
        STATE._replace(gradients={1: POINT}),
        jnp.ones(3),
        dmlmc.delayed_mlmc(LOSS, PLAN).init(jnp.ones(4)),
        dmlmc.delayed_mlmc(LOSS, PLAN).init({"a": POINT}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_state_of_other_params_is_refused(state):
    with pytest.raises(ValueError, match=r"^delayed_mlmc: state must be that of init\(params\) .*f32\[3\].*\), got "):
        DELAYED.estimate(POINT, state, 1, KEY)


@pytest.mark.parametrize("step", [-1, 1.5, None, "a", jnp.arange(2), True], ids=lambda value: type(value).__name__)
def test_what_is_no_step_is_refused(step):
    with pytest.raises((TypeError, ValueError), match=r"^estimate: step must be .*, got "):
        DELAYED.estimate(POINT, STATE, step, KEY)
    with pytest.raises(TypeError, match=r"^estimate: step must be an integer, got shape \(\) and dtype float32"):
        jax.eval_shape(lambda step: DELAYED.estimate(POINT, STATE, step, KEY), 1.5)


def test_a_period_longer_than_any_run_is_no_trouble():
    rare = dmlmc.plan(RATES, 1, samples=[2, 2], periods=[1, 2**40])
    estimator = dmlmc.delayed_mlmc(LOSS, rare)
    _, state = estimate(estimator)()
    _, later = estimator.estimate(POINT, state, 2**31 - 2, KEY)
    np.testing.assert_array_equal(state.gradients[1], later.gradients[1])


dtypes = st.sampled_from([jnp.float32, jnp.bfloat16, jnp.int32, jnp.complex64, bool])
shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(["drift", "diffusion", "terminal"]), shape=shapes, dtype=dtypes)
def test_functions_of_an_sde_work_or_are_named(name, shape, dtype):
    """The right shape and real numbers will do; of the terminal loss there is a gradient, so it has to be of floats."""
    loss = sde(**{name: lambda *arguments: jnp.ones(shape, dtype)})
    right = {"drift": (2,), "diffusion": (2, 1), "terminal": ()}[name]
    real = [jnp.float32, jnp.bfloat16] if name == "terminal" else [jnp.float32, jnp.bfloat16, jnp.int32]
    call = lambda: jax.eval_shape(loss.loss, jnp.array(0.5), jnp.ones((4, 1)))  # noqa: E731
    if shape == right and dtype in real:
        assert call().shape == ()
    else:
        with pytest.raises((TypeError, ValueError), match=f"^SDELoss: {name} must return an array of shape "):
            call()


def test_a_drift_of_more_precision_than_y0_is_cast(x64):
    loss = sde(drift=lambda t, y, params: params * y, y0=jnp.ones(2, jnp.float32))
    noise = loss.sample(KEY, 1)
    assert loss.loss(jnp.array(0.5), noise).dtype == jnp.float32


@pytest.mark.parametrize(
    "noise", [None, [1.0], jnp.array(1.0), jnp.ones((0, 1)), jnp.ones((6, 1))], ids=lambda value: type(value).__name__
)
def test_noise_of_no_level_is_refused(noise):
    with pytest.raises(ValueError, match=r"^SDELoss: noise must have shape .* with level >= 0, got "):
        sde().loss(jnp.array(0.5), noise)
    with pytest.raises(ValueError, match=r"^SDELoss: noise must have shape .* with level >= 1, got \(2, 1\)"):
        sde().pair(jnp.array(0.5), sde().sample(KEY, 0))


def test_every_solver_works_or_is_refused_by_name():
    """All solvers that diffrax has, the ones that need Levy area among them."""
    solvers = [value for value in vars(diffrax).values() if isinstance(value, type)]
    solvers = [kind for kind in solvers if issubclass(kind, diffrax.AbstractSolver) and "Abstract" not in kind.__name__]
    worked = 0
    for kind in solvers:
        try:
            solver = kind()
        except TypeError:
            solver = kind(diffrax.Euler()) if kind is diffrax.HalfSolver else kind(0.1)
        try:
            loss = neural_loss(solver=solver)
        except (TypeError, ValueError) as error:
            assert str(error).startswith("SDELoss: solver")
            continue
        worked += 1
        assert loss.sample(KEY, 1).shape == (8, 2)
    assert len(solvers) > 30 and worked >= 8


# Anything that could be passed by mistake. Whole numbers stay small: a valid one may be a size.
junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.floats(),
    st.floats(0.1, 3.0),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.one_of(st.integers(-1, 4), st.floats(), st.text(max_size=1), st.none()), max_size=4),
    st.dictionaries(st.integers(0, 3), st.integers(1, 3), max_size=3),
    st.sets(st.integers(1, 3), max_size=3),
    st.sampled_from([jnp.ones(3), jnp.array(2), np.float32(1.5), np.arange(1, 4), np.ones((2, 2)), object(), len, int]),
    st.sampled_from([RATES, PLAN, LOSS, KEY, DELAYED, jnp.array([1, 2, 4]), np.array("a"), 1e300, -0.0]),
)
CHEAP = {
    dmlmc.Rates: {"b": 1.8, "c": 1.0, "d": 1.0},
    dmlmc.plan: {"rates": RATES, "max_level": 2, "samples": 10, "periods": None},
    dmlmc.Plan: {"rates": RATES, "samples": (4, 2, 1), "periods": (1, 2, 4)},
    PLAN.due_levels: {"step": 3},
    PLAN.last_refresh: {"level": 1, "step": 3},
    PLAN.work: {"step": 3},
    PLAN.span: {"step": 3},
    PLAN.cumulative_work: {"steps": 3},
    PLAN.variance: {"variances": [1.0, 0.5, 0.2]},
    PLAN.naive_samples: {"variances": [1.0, 0.5, 0.2], "naive_variance": 1.0},
    dmlmc.optimal_allocation: {"variances": [1.0, 0.5], "costs": [1.0, 2.0], "total_cost": 10.0},
    dmlmc.QuadraticLoss: {"dimension": 3, "L": 1.0, "M": 1.0, "rates": RATES},
    LOSS.sample: {"key": KEY, "level": 1},
    LOSS.mean: {"params": POINT, "level": 1},
    dmlmc.naive: {"loss": LOSS, "level": 1, "samples": 3, "c": 1.0},
    dmlmc.mlmc: {"loss": LOSS, "plan": PLAN},
    dmlmc.delayed_mlmc: {"loss": LOSS, "plan": PLAN},
    sde: {"drift": None, "diffusion": None, "terminal": None, "y0": None, "t1": None, "coarsest_steps": None}
    | {"noise_dim": None, "solver": None, "observation_times": None},
}


def refuses_by_name(function, arguments, name, value):
    """Whether the call is refused; if so, a plain error has to name the argument and say what would work."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rates with b <= c
            function(**{**arguments, name: value})
    except (TypeError, ValueError) as error:
        assert type(error) in (TypeError, ValueError), repr(error)
        assert ": " in str(error) and name in str(error), repr(error)
        return True
    return False


@settings(max_examples=600, deadline=None)
@given(data=st.data(), function=st.sampled_from(list(CHEAP)))
def test_anything_works_or_is_refused_by_name(data, function):
    arguments = CHEAP[function] if function is not sde else {}
    name = data.draw(st.sampled_from(list(CHEAP[function])))
    refuses_by_name(function, arguments, name, data.draw(junk))


@settings(max_examples=100, deadline=None)
@given(rates=st.tuples(*[st.floats(0.01, 1e4)] * 3), max_level=st.integers(0, 3000), samples=st.floats(0.1, 1e12))
def test_any_plan_is_finite_or_refused(rates, max_level, samples):
    assume(rates[0] > rates[1])
    try:
        plan = dmlmc.plan(dmlmc.Rates(*rates), max_level, samples=samples)
    except ValueError as error:
        assert "max_level" in str(error) and "lower one of them" in str(error)
        return
    assert all(count >= 1 for count in (*plan.samples, *plan.periods))
    assert np.isfinite(plan.work(0)) and np.isfinite(plan.span(0)) and np.isfinite(plan.variance())


NEVER_RIGHT = [None, "a", 1j, object(), {"a": 1}, [None], jnp.nan, -3]
COSTLY = {
    dmlmc.mean_loss: {"level": 1, "samples": 4, "chunk": 2},
    dmlmc.measure_levels: {"other": 2 * POINT, "max_level": 1, "samples": 8, "blocks": 4, "chunk": 2, "steps": [1, 2]},
    dmlmc.calibrate: {"budget": 10.0, "max_level": 2, "steps": [1, 2, 4], "distance": 0.1, "blocks": 4, "drop": 1},
    dmlmc.level_seconds: {"max_level": 1, "samples": 2, "repeats": 1},
    dmlmc.iterates: {"estimator": DELAYED, "optimiser": optax.sgd(0.1), "stops": [0]},
    dmlmc.train: {"estimator": DELAYED, "optimiser": optax.sgd(0.1), "steps": 1, "evaluate_every": 1}
    | {"checkpoint_every": 1, "chunk_steps": 1, "validation": None, "mesh": None},
    dmlmc.fit_rates: {"measured": MEASURED},
    dmlmc.CheckList.from_measurement: {"measured": MEASURED, "fitted": None},
}


@pytest.mark.parametrize("function", COSTLY, ids=lambda function: function.__name__)
def test_what_is_never_right_is_refused_by_name(function):
    good = {"loss": LOSS, "params": POINT, "key": KEY, **COSTLY[function]}
    if function in (dmlmc.iterates, dmlmc.train):
        del good["loss"]
    if function in (dmlmc.fit_rates, dmlmc.CheckList.from_measurement):
        good = COSTLY[function]
    optional = {"chunk", "steps", "samples", "evaluate_every", "checkpoint_every", "chunk_steps"}
    optional |= {"validation", "mesh", "fitted"}
    for name in COSTLY[function]:
        for value in NEVER_RIGHT:
            if value is not None or name not in optional:
                assert refuses_by_name(function, good, name, value), (name, value)


def test_what_is_passed_on_is_not_changed():
    """A refusal loses nothing: the same objects work afterwards."""
    params = {"a": np.ones(3)}
    with pytest.raises(ValueError, match="QuadraticLoss: params"):
        CALLS["train"](params=params)
    assert eqx.tree_equal(params, {"a": np.ones(3)})
