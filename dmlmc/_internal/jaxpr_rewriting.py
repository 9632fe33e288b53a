"""Traced functions rewritten before they are differentiated.

Repeats are merged, products arranged for batches of paths, and silu gets a shorter derivative.

Equations with effects (printing, callbacks, ordered input and output) are kept, each as often as it was written.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, jaxpr_as_fun
from jaxtyping import Array, PyTree

FEW = 4  # a product with a vector of at most so many entries is written as a sum; 8 was slower, 2 gained less


def economical(function: Callable[[Any], Any], argument: Array) -> Callable[[Any], PyTree]:
    """The same function of one array with all rewrites of this module.

    >>> import jax.numpy as jnp
    >>> def twice(y):
    ...     return jnp.tanh(y) + 1, jnp.tanh(y) + 2
    >>> str(jax.make_jaxpr(twice)(1.0)).count("tanh"), str(jax.make_jaxpr(economical(twice, 1.0))(1.0)).count("tanh")
    (2, 1)
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(argument)
    eqns, outputs = without_repeats(closed.jaxpr)
    eqns = [part for eqn in eqns for shorter in shorter_silu(eqn) for part in row_first(shorter)]
    rewritten = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr.replace(eqns=eqns, outvars=outputs), closed.consts))
    return lambda argument: jax.tree.unflatten(jax.tree.structure(shape), rewritten(argument))


def without_repeats(jaxpr: Any) -> tuple[list[JaxprEqn], list[Any]]:
    """The equations without those that repeat an earlier one, and the outputs, renamed accordingly.

    XLA removes repeats from the forward pass by itself. In the backward pass each of them has a cotangent of its own,
    so they are no longer the same, and a network that is called twice is differentiated twice.
    """
    first: dict[Any, list] = {}
    stands_for: dict[Any, Any] = {}

    def renamed(variable):
        return variable if isinstance(variable, Literal) else stands_for.get(variable, variable)

    kept = []
    for eqn in jaxpr.eqns:
        eqn = eqn.replace(invars=[renamed(variable) for variable in eqn.invars])
        earlier = eqn.outvars if eqn.effects else _first_alike(first, eqn)
        if earlier is eqn.outvars:
            kept.append(eqn)
        stands_for.update(zip(eqn.outvars, earlier, strict=True))
    return kept, [renamed(variable) for variable in jaxpr.outvars]


def _first_alike(first: dict[Any, list], eqn: JaxprEqn) -> list:
    """The outputs of the first equation with the same operation, inputs and parameters: perhaps its own."""
    inputs = tuple((str(v.val), v.aval) if isinstance(v, Literal) else v for v in eqn.invars)
    try:
        return first.setdefault((eqn.primitive, inputs, tuple(sorted(eqn.params.items()))), eqn.outvars)
    except TypeError:  # parameters that cannot be compared
        return eqn.outvars


def row_first(eqn: JaxprEqn) -> list[JaxprEqn]:
    """``matrix @ vector``, the way a network's layer is usually written, as the product of a row with the matrix.

    Mapped over paths, the first form has the paths in its last axis, and the next operation moves them to the front: a
    transpose in every layer and again in its gradient. The second form has them in front from the start. A row is a
    matrix of one row, so XLA takes the same fast routine for the gradient of the weights as for the product.

    A first layer takes a time and a few states. Its product is written as a sum, with one term for each entry of the
    vector: XLA computes such a term inside of the next operation, where a product is a call that costs more than its
    arithmetic.
    """
    if eqn.primitive is not jax.lax.dot_general_p or [getattr(v.aval, "ndim", None) for v in eqn.invars] != [2, 1]:
        return [eqn]
    if eqn.params["precision"] is not None:  # it may differ for the first factor and the second
        return [eqn]
    ((of_matrix,), _), batch = eqn.params["dimension_numbers"]

    def product(matrix, vector):
        if 1 < vector.size <= FEW:
            ones = [1] * vector.size
            # Fused into the next operation, a column would be read with a stride, which is slow. The barrier copies it.
            columns = jax.lax.optimization_barrier(jax.lax.split(matrix, ones, of_matrix))
            entries = jax.lax.split(vector, ones)
            return functools.reduce(jax.lax.add, (times(*one, 0) for one in zip(columns, entries, strict=True)))
        return times(matrix, vector.reshape(1, -1), 1).reshape(-1)

    def times(matrix, vector, of_vector):
        swapped = eqn.params | {"dimension_numbers": (((of_vector,), (of_matrix,)), batch)}
        return jax.lax.dot_general_p.bind(vector, matrix, **swapped)

    return _in_place_of(eqn, product)


def shorter_silu(eqn: JaxprEqn) -> list[JaxprEqn]:
    """``jax.nn.silu`` as ``silu``, which has fewer terms in its derivatives."""
    inner = eqn.params.get("jaxpr")
    if not isinstance(inner, ClosedJaxpr) or [part.primitive for part in inner.eqns] != _OF_SILU:
        return [eqn]
    (x, *others), (sigmoid, product) = inner.jaxpr.invars, inner.eqns
    wired = [*sigmoid.invars, *product.invars, *inner.jaxpr.outvars] == [x, x, *sigmoid.outvars, *product.outvars]
    return _in_place_of(eqn, silu) if wired and not others else [eqn]


_OF_SILU = [jax.lax.logistic_p, jax.lax.mul_p]


@jax.custom_jvp
def silu(x: Array) -> Array:
    """``x * sigmoid(x)``, with a derivative that takes nothing but ``x`` and the sigmoid.

    jax differentiates product and sigmoid each by itself. Milstein's step differentiates the result once more, so every
    term less is a few less in the backward pass.

    The order of the products counts, too. With the sigmoid first, XLA has no array for the slope, and computes each
    product with it in one loop. Written as the tangent times the slope, the slope is an array of its own, and for
    networks of 32 units the short loops that make and use it are unrolled and not vectorised
    (``python -m tests.benchmarks.silu``).
    """
    return x * jax.lax.logistic(x)


@silu.defjvp
def _silu_jvp(primals, tangents):
    (x,), (tangent,) = primals, tangents
    sigmoid = jax.lax.logistic(x)
    return silu(x), tangent * sigmoid * (1 + x * (1 - sigmoid))


def _in_place_of(eqn: JaxprEqn, function: Callable[..., Any]) -> list[JaxprEqn]:
    """The equations of a function of the same inputs, with the names of the given equation."""
    made = jax.make_jaxpr(function)(*(v.aval for v in eqn.invars)).jaxpr
    names = dict(zip([*made.invars, *made.outvars], [*eqn.invars, *eqn.outvars], strict=True))

    def renamed(variables):
        return [names.get(v, v) for v in variables]

    return [part.replace(invars=renamed(part.invars), outvars=renamed(part.outvars)) for part in made.eqns]
