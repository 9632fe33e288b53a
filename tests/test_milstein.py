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
        lambda t, y, args: network(y) - y,
        lambda t, y, args: jnp.outer(network(y), jnp.array([1.0, 2.0, t])[:noises]),
    )


def step(solver, y, drift, diffusion, increment):
    terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, lambda t0, t1: increment))
    return solver.step(terms, 0.1, 0.3, y, None, None, made_jump=False)[0]


@pytest.mark.parametrize("noises", [1, 3])
@pytest.mark.parametrize("activation", [jnp.tanh, jax.nn.softplus, jax.nn.silu], ids=lambda f: f.__name__)
def test_step_and_its_gradient_are_those_of_diffrax(x64, activation, noises):
    drift, diffusion = fields(activation, noises)
    y, increment = jnp.array([0.3, -0.4]), jnp.array([0.2, -0.1, 0.4])[:noises]

    def ours_and_theirs(y, increment):
        return [step(solver, y, drift, diffusion, increment) for solver in (Milstein(), diffrax.ItoMilstein())]

    values, slopes = ours_and_theirs(y, increment), jax.jacrev(ours_and_theirs, (0, 1))(y, increment)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-12)
    for one, other in zip(*slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
