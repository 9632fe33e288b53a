import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmlmc
from tests.helpers.paths import path
from tests.helpers.problems import StoredPath, neural_loss, neural_params

SOLVERS = [
    diffrax.ItoMilstein(),
    diffrax.Euler(),
    diffrax.StratonovichMilstein(),
    diffrax.EulerHeun(),
    diffrax.Heun(),
    diffrax.ReversibleHeun(),
]


def solved_by_diffrax(loss, params, noise, solver, dt, times=None):
    """On steps of length dt, at most as many as the noise has: a path is the same on every grid."""
    control = StoredPath(path(noise), loss.t1)
    solution = diffrax.diffeqsolve(
        diffrax.MultiTerm(diffrax.ODETerm(loss.drift), diffrax.ControlTerm(loss.diffusion, control)),
        solver,
        0.0,
        loss.t1,
        dt,
        loss.y0,
        params,
        saveat=diffrax.SaveAt(t1=True) if times is None else diffrax.SaveAt(ts=jnp.array(times)),
        max_steps=len(noise),
    )
    return loss.terminal(solution.ys[-1] if times is None else solution.ys, params)


def assert_same(found, expected):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_value_and_gradient_are_those_of_diffrax_on_the_same_path(x64, solver):
    loss, params = neural_loss(jnp.float64, solver=solver), neural_params(jnp.float64)
    noise = loss.sample(jax.random.key(0), level=2)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def alone(params):
        return loss.loss(params, noise)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def of_pair(params, which):
        return jnp.stack(loss.pair(params, noise))[which]

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def theirs(params, dt):
        return solved_by_diffrax(loss, params, noise, solver, dt)

    fine, coarse = (of_pair(params, jnp.array(which)) for which in (0, 1))
    assert_same(alone(params), theirs(params, jnp.array(1 / 16)))
    assert_same(fine, alone(params))
    assert_same(coarse, theirs(params, jnp.array(1 / 8)))


def test_observed_states_are_those_of_diffrax(x64):
    times = [0.25, 0.75, 1.0]
    loss, params = neural_loss(jnp.float64, observation_times=times), neural_params(jnp.float64)
    assert loss.terminal(jnp.zeros((3, 2)), params) == 6.0  # it sums over times and components

    @eqx.filter_jit
    def ours(params, noise):
        return loss.loss(params, noise)

    @eqx.filter_jit
    def theirs(params, noise):
        return solved_by_diffrax(loss, params, noise, diffrax.ItoMilstein(), 1 / len(noise), times)

    for level in (0, 2):
        noise = loss.sample(jax.random.key(1), level)
        np.testing.assert_allclose(ours(params, noise), theirs(params, noise), rtol=1e-12)
    expected = ours(params, noise), ours(params, loss.coarsen(noise))
    np.testing.assert_allclose(eqx.filter_jit(loss.pair)(params, noise), expected, rtol=1e-12)


def geometric_brownian_motion(solver, volatility=0.5):
    return dmlmc.SDELoss(
        drift=lambda t, y, params: params * y,
        diffusion=lambda t, y, params: volatility * y[:, None],
        terminal=lambda y, params: y[0],
        y0=jnp.ones(1),
        t1=1.0,
        coarsest_steps=2,
        noise_dim=1,
        solver=solver,
    )


@pytest.mark.parametrize(("solver", "slope"), [(diffrax.ItoMilstein(), 2.0), (diffrax.Euler(), 1.0)])
def test_strong_order_against_the_exact_solution(x64, solver, slope):
    """Squared strong error and variance of D_l fall like 2^(-slope l), twice the solver's strong order."""
    loss, rate, samples = geometric_brownian_motion(solver), jnp.array(0.1), 4000
    levels = np.arange(5, 10)  # fine enough for the next term in the step size to be lost in the standard error

    @eqx.filter_jit
    def squares(level):
        noises = loss.batch(jax.random.split(jax.random.key(level), samples), level)
        exact = jnp.exp(rate - 0.5**2 / 2 + 0.5 * noises.sum((1, 2)))
        fine, coarse = loss.pairs(rate, noises)
        difference = fine - coarse
        return (fine - exact) ** 2, (difference - difference.mean()) ** 2

    logs, deviations = [], []
    for level in levels:
        for_level = [np.asarray(x) for x in squares(int(level))]
        logs.append([np.log2(x.mean()) for x in for_level])
        deviations.append([x.std() / x.mean() / samples**0.5 / np.log(2) for x in for_level])
    weights = (levels - levels.mean()) / np.sum((levels - levels.mean()) ** 2)
    fitted = -weights @ np.array(logs)
    error = np.sqrt(weights**2 @ np.array(deviations) ** 2)
    assert np.all(np.abs(fitted - slope) < 4 * error), (fitted, error)


def test_noise_is_shared_between_the_paths_of_a_pair(x64):
    """Without coupling the variance of D_l would not fall at all."""
    loss = geometric_brownian_motion(None)
    keys = jax.random.split(jax.random.key(0), 500)

    @jax.jit
    @jax.vmap
    def coupled_and_alone(key):
        rate, noise = jnp.array(0.1), loss.sample(key, 5)
        return loss.difference(rate, noise, 5), loss.loss(rate, noise)

    coupled, alone = coupled_and_alone(keys)
    assert np.var(coupled) < 1e-3 * np.var(alone)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_dtype_is_that_of_y0(x64, dtype):
    loss = neural_loss(dtype)
    noise = loss.sample(jax.random.key(0), 1)
    assert noise.dtype == dtype
    difference = eqx.filter_eval_shape(lambda params: loss.difference(params, noise, 1), neural_params(dtype))
    assert difference.dtype == dtype


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"drift": 1.0}, TypeError, "drift must be a function"),
        ({"diffusion": None}, TypeError, "diffusion must be a function"),
        ({"terminal": "y"}, TypeError, "terminal must be a function"),
        ({"y0": jnp.array(1.0)}, ValueError, r"y0 must be a vector of floats of shape \(dim,\)"),
        ({"y0": jnp.ones((1, 1))}, ValueError, "y0 must be a vector"),
        ({"y0": jnp.ones(0)}, ValueError, "y0 must be a vector"),
        ({"y0": jnp.array([1])}, ValueError, "y0 must be a vector of floats"),
        ({"y0": "one"}, TypeError, "y0 must be a vector of floats"),
        ({"t1": 0.0}, ValueError, "t1 must be positive"),
        ({"t1": float("inf")}, ValueError, "t1 must be finite"),
        ({"coarsest_steps": 0}, ValueError, "coarsest_steps must be at least 1"),
        ({"coarsest_steps": 2.0}, TypeError, "coarsest_steps must be an integer"),
        ({"noise_dim": 0}, ValueError, "noise_dim must be at least 1"),
        ({"solver": diffrax.Euler}, TypeError, "solver must be an instance"),
        ({"solver": diffrax.Tsit5()}, TypeError, "solver must be an instance of a diffrax solver for SDEs"),
        ({"solver": diffrax.SPaRK()}, ValueError, "needs Levy areas"),
        ({"solver": diffrax.HalfSolver(diffrax.Euler())}, ValueError, "one step at a time"),
        ({"observation_times": [0.3]}, ValueError, "multiples of t1 / coarsest_steps = 0.25"),
        ({"observation_times": [0.5, 0.25]}, ValueError, "observation_times must increase"),
        ({"observation_times": [0.0, 1.0]}, ValueError, "observation_times"),
        ({"observation_times": [1.25]}, ValueError, "observation_times"),
        ({"observation_times": []}, ValueError, "observation_times"),
        ({"observation_times": 0.5}, ValueError, "observation_times"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    good = {
        "drift": lambda t, y, params: -y,
        "diffusion": lambda t, y, params: jnp.ones((1, 1)),
        "terminal": lambda y, params: y[0],
        "y0": jnp.ones(1),
        "t1": 1.0,
        "coarsest_steps": 4,
        "noise_dim": 1,
    }
    with pytest.raises(error, match=f"SDELoss: .*{message}"):
        dmlmc.SDELoss(**{**good, **arguments})


@pytest.mark.parametrize(
    ("name", "function", "shape"),
    [
        ("drift", lambda t, y, params: y[:1], r"\(2,\)"),
        ("diffusion", lambda t, y, params: y, r"\(2, 2\)"),
        ("terminal", lambda y, params: y, r"\(\)"),
    ],
)
def test_a_function_that_returns_the_wrong_shape_is_named(name, function, shape):
    loss = eqx.tree_at(lambda loss: getattr(loss, name), neural_loss(), function)
    with pytest.raises(ValueError, match=f"SDELoss: {name} must return an array of shape {shape}"):
        loss.loss(neural_params(), loss.sample(jax.random.key(0), 1))


@pytest.mark.parametrize("shape", [(6, 2), (8, 1), (8,)])
def test_noise_of_the_wrong_shape_is_named(own_errors, shape):
    with pytest.raises(ValueError, match=r"noise must have shape \(coarsest_steps"):
        neural_loss().loss(neural_params(), jnp.ones(shape))
