"""Milstein's step, written for reverse-mode differentiation."""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, jaxpr_as_fun


class Milstein(diffrax.ItoMilstein):
    """``diffrax.ItoMilstein`` for a vector state and a diffusion matrix: the same numbers, cheaper gradients.

    The correction needs the diffusion and its derivative along its own columns. Linearising once lets both come out of
    a single evaluation, so the backward pass goes through the vector field once instead of three times. Drift and
    diffusion are linearised together, and what they have in common, such as a network that both call, is evaluated and
    differentiated once; their matrix products are arranged for batches of paths (``make bench`` compares with
    diffrax's own step). Like its parent it is of strong order 1 for commutative noise.
    """

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        del solver_state, made_jump
        drift, diffusion = terms.terms
        dt, dw = drift.contr(t0, t1), diffusion.contr(t0, t1)
        fields = _economical(lambda y: (drift.vf(t0, y, args), diffusion.vf(t0, y, args)), y0)
        (velocity, columns), along = jax.linearize(fields, y0)

        def derivative(column):
            return along(column)[1]

        # derivatives[k, i, j]: derivative of entry (i, j) of the diffusion along its column k. A single noise gets no
        # axis of its own: through it XLA would transpose every activation for the products of the backward pass.
        derivatives = derivative(columns[:, 0])[None] if dw.size == 1 else jax.vmap(derivative, in_axes=1)(columns)
        iterated = (jnp.outer(dw, dw) - dt * jnp.eye(dw.size, dtype=dw.dtype)) / 2
        correction = jnp.sum(derivatives * iterated[:, None, :], axis=(0, 2))
        y1 = y0 + velocity * dt + columns @ dw + correction
        return y1, None, {"y0": y0, "y1": y1}, None, diffrax.RESULTS.successful


def _economical(function: Callable[[Any], Any], y: Any) -> Callable[[Any], Any]:
    """The same function with each repeated operation done once, and products in the order that suits batches.

    XLA removes repeats from the forward pass by itself. In the backward pass they are no longer the same: each has a
    cotangent of its own, and the network is gone through once for each.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(y)
    first: dict[Any, list] = {}
    stands_for: dict[Any, Any] = {}
    kept = []
    for eqn in closed.jaxpr.eqns:
        inputs = [v if isinstance(v, Literal) else stands_for.get(v, v) for v in eqn.invars]
        names = tuple((str(v.val), v.aval) if isinstance(v, Literal) else v for v in inputs)
        try:
            twin = first.setdefault((eqn.primitive, names, tuple(sorted(eqn.params.items()))), eqn.outvars)
        except TypeError:  # parameters that cannot be compared
            twin = eqn.outvars
        if twin is eqn.outvars:
            kept += _row_first(eqn.replace(invars=inputs))
        stands_for.update(zip(eqn.outvars, twin, strict=True))
    outputs = [v if isinstance(v, Literal) else stands_for.get(v, v) for v in closed.jaxpr.outvars]
    merged = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr.replace(eqns=kept, outvars=outputs), closed.consts))
    return lambda y: jax.tree.unflatten(jax.tree.structure(shape), merged(y))


def _row_first(eqn: JaxprEqn) -> list[JaxprEqn]:
    """``matrix @ vector``, the way a network's layer is usually written, as the product of a row with the matrix.

    Mapped over paths, the first has the paths in its last axis and the next operation moves them to the front, a
    transpose in every layer and again in its gradient. The second has them in front from the start. That a row is a
    matrix of one row lets XLA take the same fast routine for the gradient of the weights as for the product.
    """
    if eqn.primitive is not jax.lax.dot_general_p or [getattr(v.aval, "ndim", None) for v in eqn.invars] != [2, 1]:
        return [eqn]
    if eqn.params["precision"] is not None:  # it may speak of the first factor and the second
        return [eqn]
    ((of_matrix,), _), batch = eqn.params["dimension_numbers"]

    def product(matrix, vector):
        swapped = eqn.params | {"dimension_numbers": (((1,), (of_matrix,)), batch)}
        return jax.lax.dot_general_p.bind(vector.reshape(1, -1), matrix, **swapped).reshape(-1)

    made = jax.make_jaxpr(product)(*(v.aval for v in eqn.invars)).jaxpr
    names = dict(zip([*made.invars, *made.outvars], [*eqn.invars, *eqn.outvars], strict=True))

    def renamed(variables):
        return [names.get(v, v) for v in variables]

    return [part.replace(invars=renamed(part.invars), outvars=renamed(part.outvars)) for part in made.eqns]
