import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmlmc.milstein import Milstein, _economical


def activations(function, *arguments):
    """How often a function, nested ones included, evaluates a tanh."""
    return str(jax.make_jaxpr(function)(*arguments)).count("= tanh ")


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


def test_a_network_that_drift_and_diffusion_share_is_evaluated_once():
    drift, diffusion = fields(jnp.tanh)

    def both(y):
        return drift(0.0, y, None), diffusion(0.0, y, None)

    y = jnp.array([0.3, -0.4])
    assert activations(both, y) == 2
    merged = _economical(both, y)
    assert activations(merged, y) == 1
    for found, expected in zip(jax.tree.leaves(merged(2 * y)), jax.tree.leaves(both(2 * y)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_what_only_looks_alike_is_kept():
    y = jnp.array([0.3, -0.4])
    for function in (
        lambda y: (y * 2.0, y * 3.0, 2.0 * y),
        lambda y: (y.sum(keepdims=True), y.max(keepdims=True), y[::-1]),
        lambda y: (jnp.tanh(y), jnp.tanh(y + 1e-3), y, 1.0),
        lambda y: (jax.nn.relu(y), jax.nn.relu(y), jax.nn.softplus(-y)),
    ):
        found, expected = _economical(function, y)(y), function(y)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_network_mapped_over_paths_is_never_transposed():
    layers = jax.random.normal(jax.random.key(0), (3, 4, 4))

    def network(y):
        for matrix in layers:
            y = jnp.tanh(matrix @ y + matrix[0])
        return y

    def mapped(function):
        return str(jax.make_jaxpr(jax.vmap(function))(jnp.ones((5, 4)))).count("= transpose[")

    y = jnp.arange(4.0)
    assert mapped(network) == len(layers) and mapped(_economical(network, y)) == 0
    np.testing.assert_allclose(_economical(network, y)(y), network(y), rtol=1e-6)


def test_a_product_may_sum_over_either_axis_of_the_matrix():
    matrix, y = jnp.arange(12.0).reshape(4, 3), jnp.array([0.3, -0.4, 2.0, 1.0])

    def product(y):
        return jax.lax.dot_general(matrix, y, (((0,), (0,)), ((), ())))

    np.testing.assert_allclose(_economical(product, y)(y), product(y), rtol=1e-6)
    assert str(jax.make_jaxpr(_economical(product, y))(y)) != str(jax.make_jaxpr(product)(y))


def test_products_of_another_kind_keep_their_order():
    matrix, y = jnp.arange(6.0).reshape(2, 3), jnp.array([0.3, -0.4, 2.0])
    for function in (
        lambda y: y @ matrix.T,
        lambda y: matrix @ jnp.stack([y, -y], axis=1),
        lambda y: jnp.einsum("ij,ij->i", matrix, jnp.stack([y, -y])),
        lambda y: jnp.dot(matrix, y, precision=("high", "default")),
        lambda y: jax.lax.dot_general(matrix, y, (((1,), (0,)), ((), ())), "F32_F32_F32"),
    ):
        assert str(jax.make_jaxpr(_economical(function, y))(y)) == str(jax.make_jaxpr(function)(y))


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
