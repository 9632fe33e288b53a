import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmlmc.milstein import Milstein


def fields(activation, noises=3):
    """A drift and a diffusion matrix that call the same network."""
    weights = jax.random.normal(jax.random.key(0), (3, 2, 2))

    def network(y):
        return weights[1] @ activation(weights[0] @ y)

    return (
        lambda t, y, args: network(y) - t * args * y,
        lambda t, y, args: args * jnp.outer(network(y), jnp.array([1.0 + t, 2.0, t])[:noises]),
    )


def step(solver, y, drift, diffusion, increment):
    control = diffrax.ControlTerm(diffusion, lambda t0, t1: (t0 + 2 * t1) * increment)
    terms = diffrax.MultiTerm(diffrax.ODETerm(drift), control)
    return solver.step(terms, 0.1, 0.3, y, 0.7, None, made_jump=False)


@pytest.mark.parametrize("noises", [1, 3])
@pytest.mark.parametrize("activation", [jnp.tanh, jax.nn.softplus, jax.nn.silu], ids=lambda f: f.__name__)
def test_step_and_its_gradient_are_those_of_diffrax(x64, activation, noises):
    drift, diffusion = fields(activation, noises)
    y, increment = jnp.array([0.3, -0.4]), jnp.array([0.2, -0.1, 0.4])[:noises]

    def ours_and_theirs(y, increment):
        return [step(solver, y, drift, diffusion, increment)[0] for solver in (Milstein(), diffrax.ItoMilstein())]

    @jax.jit
    def values_and_slopes(*point):
        return ours_and_theirs(*point), jax.jacrev(ours_and_theirs, (0, 1))(*point)

    values, slopes = values_and_slopes(y, increment)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-12)
    for one, other in zip(*slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


def test_everything_else_a_step_returns_is_as_in_diffrax():
    drift, diffusion = fields(jnp.tanh)
    y, increment = jnp.array([0.3, -0.4]), jnp.array([0.2, -0.1, 0.4])
    ours, theirs = jax.jit(
        lambda: [step(solver, y, drift, diffusion, increment) for solver in (Milstein(), diffrax.ItoMilstein())]
    )()
    assert ours[1] is theirs[1] is None and ours[3] is theirs[3] is None and ours[4] == theirs[4]
    assert ours[2].keys() == theirs[2].keys()
    np.testing.assert_array_equal(ours[2]["y0"], y)
    np.testing.assert_array_equal(ours[2]["y1"], ours[0])


@pytest.mark.parametrize("noises", [1, 3])
def test_a_state_of_32_bits_keeps_them(x64, noises):
    def diffusion(t, y, args):
        return jnp.outer(y, jnp.ones(noises, y.dtype))

    y = jnp.array([0.3, -0.4], jnp.float32)
    increment = jnp.ones(noises, jnp.float32)
    found = jax.eval_shape(lambda: step(Milstein(), y, lambda t, y, args: -y, diffusion, increment)[0])
    assert found.dtype == jnp.float32


@pytest.mark.parametrize("noises", [1, 2, 3])
def test_the_step_of_geometric_brownian_motion_is_that_of_the_formula(x64, noises):
    """The noise commutes, so the step has the first terms of the exponential: 1 + s dW + ((s dW)^2 - s^2 dt) / 2."""
    volatility, increment = np.array([0.5, -1.0, 2.0])[:noises], np.array([0.2, -0.1, 0.4])[:noises]
    y, dt = np.array([1.0, -3.0]), 0.2

    def drift(t, y, args):
        return args * y

    def diffusion(t, y, args):
        return y[:, None] * volatility

    found = jax.jit(lambda y, increment: step(Milstein(), y, drift, diffusion, increment)[0])(y, increment)
    shock = volatility @ increment * (0.1 + 2 * 0.3)  # the control of the test's step
    factor = 1 + 0.7 * dt + shock + (shock**2 - volatility @ volatility * dt) / 2
    np.testing.assert_allclose(found, factor * y, rtol=1e-12)
