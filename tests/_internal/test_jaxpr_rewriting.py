import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest

from dmlmc._internal.jaxpr_rewriting import economical


def activations(function, *arguments):
    """How often a function, nested ones included, evaluates a tanh."""
    return str(jax.make_jaxpr(function)(*arguments)).count("= tanh ")


def test_a_network_that_drift_and_diffusion_share_is_evaluated_once():
    weights = jax.random.normal(jax.random.key(0), (2, 2, 2))

    def network(y):
        return weights[1] @ jnp.tanh(weights[0] @ y)

    def both(y):
        return network(y) - y, jnp.outer(network(y), jnp.array([1.0, 2.0, 0.5]))

    y = jnp.array([0.3, -0.4])
    assert activations(both, y) == 2
    merged = economical(both, y)
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
        found, expected = economical(function, y)(y), function(y)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("width", [1, 4, 7])
def test_a_network_mapped_over_paths_is_never_transposed(width):
    layers = jax.random.normal(jax.random.key(0), (3, width, width))

    def network(y):
        for matrix in layers:
            y = jnp.tanh(matrix @ y + matrix[0])
        return y

    def mapped(function):
        return str(jax.make_jaxpr(jax.vmap(function))(jnp.ones((5, width)))).count("= transpose[")

    y = jnp.arange(float(width))
    assert mapped(network) == len(layers) and mapped(economical(network, y)) == 0
    np.testing.assert_allclose(economical(network, y)(y), network(y), rtol=1e-6)


@pytest.mark.parametrize("size", [2, 4, 5])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_product_may_sum_over_either_axis_of_the_matrix(axis, size):
    matrix, y = jnp.arange(3.0 * size).reshape((size, 3) if axis == 0 else (3, size)), jnp.arange(size) - 0.5

    def product(y):
        return jax.lax.dot_general(matrix, y, (((axis,), (0,)), ((), ())))

    np.testing.assert_allclose(economical(product, y)(y), product(y), rtol=1e-6)
    assert str(jax.make_jaxpr(economical(product, y))(y)) != str(jax.make_jaxpr(product)(y))


@pytest.mark.parametrize("size, terms", [(1, 1), (2, 2), (4, 4), (5, 1)])
def test_a_product_with_a_short_vector_has_a_term_for_each_entry(size, terms):
    matrix = jax.random.normal(jax.random.key(0), (3, size))
    y = jnp.arange(1.0, size + 1)
    assert str(jax.make_jaxpr(economical(lambda y: matrix @ y, y))(y)).count("= dot_general[") == terms


@pytest.mark.parametrize(
    "put_together",
    [
        lambda t, y: jnp.stack([t, y[0], y[1]]),
        lambda t, y: jnp.concatenate([t[None], y]),
        lambda t, y: jnp.concatenate([y, y])[:3] * t,
        lambda t, y: jnp.stack([1.0, y[0] * y[1], t]),
    ],
)
def test_a_vector_that_was_put_together_gives_the_same_product_and_derivatives(x64, put_together):
    matrix, t, y = jax.random.normal(jax.random.key(0), (5, 3)), jnp.array(0.7), jnp.array([0.3, -0.4])

    def layer(y, matrix=matrix, t=t):
        return jnp.tanh(matrix @ put_together(t, y))

    def derivatives(function):
        along = jax.jvp(function, (y,), (jnp.array([2.0, 1.0]),))
        of_all = jax.jacrev(lambda matrix, t, y: function(y, matrix, t), argnums=(0, 1, 2))(matrix, t, y)
        return along, of_all

    def rewritten(y, matrix=matrix, t=t):
        return economical(lambda y: layer(y, matrix, t), y)(y)

    for found, expected in zip(*(jax.tree.leaves(derivatives(one)) for one in (rewritten, layer)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("order", range(4))
def test_silu_keeps_its_value_and_derivatives(x64, order):
    y = jnp.linspace(-30.0, 30.0, 41)

    def derivative(function):
        for _ in range(order):
            function = jax.grad(lambda y, function=function: jnp.sum(function(y)))
        return function(y)

    found, expected = derivative(economical(lambda y: jax.nn.silu(y), y)), derivative(jax.nn.silu)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


def test_the_derivative_of_silu_does_not_overflow():
    y, tangent = jnp.array([-3e38, 3e38]), jnp.array([10.0, 10.0])
    _, along = jax.jvp(economical(jax.nn.silu, y), (y,), (tangent,))
    np.testing.assert_array_equal(along, [0, 10])


@pytest.mark.parametrize("mapped", [False, True])
def test_only_silu_is_taken_for_silu(mapped):
    def silu(x, y):
        return x * jax.lax.logistic(y)

    def equations(function, y):
        one = economical(function, y)
        return str(jax.make_jaxpr(jax.vmap(one) if mapped else one)(jnp.ones((3, *y.shape)) if mapped else y))

    y = jnp.array([0.3, -0.4])
    assert equations(lambda y: jax.nn.silu(y) + jax.nn.silu(2 * y), y).count("custom_jvp_call[") == 2
    for function in (
        lambda y: jax.jit(silu)(y, 2 * y),
        lambda y: jax.jit(lambda y: silu(y, y) + y)(y),
        lambda y: jax.jit(lambda y: (y * jax.lax.logistic(y), y))(y)[0],
        lambda y: jax.jit(lambda y: 2 * jax.lax.logistic(y))(y),
        lambda y: jax.jit(lambda y: jax.lax.logistic(y))(y),
    ):
        assert "custom_jvp_call[" not in equations(function, y)
        np.testing.assert_array_equal(economical(function, y)(y), function(y))


def test_products_of_another_kind_keep_their_order():
    matrix, y = jnp.arange(6.0).reshape(2, 3), jnp.array([0.3, -0.4, 2.0])
    for function in (
        lambda y: y @ matrix.T,
        lambda y: matrix @ jnp.stack([y, -y], axis=1),
        lambda y: jnp.einsum("ij,ij->i", matrix, jnp.stack([y, -y])),
        lambda y: jnp.dot(matrix, y, precision=("high", "default")),
        lambda y: jax.lax.dot_general(matrix, y, (((1,), (0,)), ((), ())), "F32_F32_F32"),
    ):
        assert str(jax.make_jaxpr(economical(function, y))(y)) == str(jax.make_jaxpr(function)(y))


@pytest.mark.parametrize("ordered", [False, True])
def test_an_effect_happens_as_often_as_it_was_written(ordered):
    drawn = iter(range(10))

    def draw():
        return np.float32(next(drawn))

    def two_draws(y):
        scalar = jax.ShapeDtypeStruct((), jnp.float32)
        first, second = (jax.experimental.io_callback(draw, scalar, ordered=ordered) for _ in range(2))
        return jnp.tanh(y) + jnp.tanh(y) + first + second

    y = jnp.array([0.3, -0.4])
    found = jax.jit(economical(two_draws, y))(y)
    np.testing.assert_allclose(found, 2 * jnp.tanh(y) + 1, rtol=1e-6)
    assert activations(economical(two_draws, y), y) == 1
