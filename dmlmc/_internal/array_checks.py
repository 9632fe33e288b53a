"""Checks of keys, PyTrees, optimisers, and of what a user's functions return."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, Key, PyTree, Shaped

from dmlmc._internal.checks import integer


def returned(name: str, value: Any, shape: tuple[int, ...], dtype: Any = None) -> Shaped[Array, "..."]:
    """An array that a user's function returned: of this shape, of floats, or cast to ``dtype``."""
    wanted = f"{name} must return an array of shape {shape}{'' if shape else ', a scalar'}"
    try:
        array = jnp.asarray(None if isinstance(value, str) else value)  # NumPy may read text as the name of a dtype
    except (TypeError, ValueError):
        raise TypeError(f"{wanted}, got {value!r}.") from None
    if array.shape != shape:
        raise ValueError(f"{wanted}, got shape {array.shape}.")
    if not jnp.issubdtype(array.dtype, jnp.floating if dtype is None else jnp.number) or jnp.iscomplexobj(array):
        raise TypeError(f"{wanted}, of real floats, got dtype {array.dtype}.")
    return array if dtype is None else array.astype(dtype)


def random_key(name: str, value: Any, *, several: bool = False) -> Key[Array, ""] | Key[Array, " seeds"]:
    """A typed key, or also a vector of them."""
    typed = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    if not typed or value.ndim > int(several):
        more = ", or an array of them such as jax.random.split(jax.random.key(0), 10)" if several else ""
        old = getattr(value, "dtype", None) == np.uint32
        hint = "; jax.random.wrap_key_data makes a key of an old-style one" if old else ""
        given = f"an array of keys of shape {value.shape}" if typed else repr(value)
        raise TypeError(f"{name} must be a key such as jax.random.key(0){more}, got {given}{hint}.")
    if value.size == 0:
        raise ValueError(f"{name} must hold at least one key, one per seed, got none.")
    return value


def parameters(name: str, params: PyTree) -> None:
    """A PyTree with at least one array of floats and no array of complex numbers."""
    arrays = [leaf for leaf in jax.tree.leaves(params) if eqx.is_inexact_array(leaf)]
    if not arrays:
        raise TypeError(f"{name} must hold at least one array of floats (jnp.array(1.0), not 1.0), got {params!r}.")
    for leaf in arrays:
        if jnp.iscomplexobj(leaf):
            raise TypeError(f"{name} must be real (give real and imaginary parts as two arrays), got {leaf.dtype}.")


def layout(tree: Any, *, dtypes: bool = True) -> Any:
    """The structure of a PyTree with the shapes and dtypes of its leaves, to compare with another."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(np.shape(leaf), getattr(leaf, "dtype", type(leaf)) if dtypes else 0) for leaf in leaves]


def alike(name: str, value: Any, like: Any, wanted: str, *, dtypes: bool = True) -> None:
    """A PyTree with the structure and shapes of another, and its dtypes too, unless ``dtypes=False``."""
    if layout(value, dtypes=dtypes) != layout(like, dtypes=dtypes):
        given, needed = (eqx.tree_pformat(tree, struct_as_array=True, width=1000) for tree in (value, like))
        raise ValueError(f"{name} must be {wanted}, {needed}, got {given}.")


def step_index(name: str, value: Any) -> Int[Array, ""]:
    """One step of a run, as an array: an integer, at least 0 unless it is a tracer."""
    if not isinstance(value, jax.core.Tracer):
        return jnp.asarray(integer(name, value, minimum=0))
    if value.shape != () or not jnp.issubdtype(value.dtype, jnp.integer):
        raise TypeError(f"{name} must be an integer, got shape {value.shape} and dtype {value.dtype}.")
    return value


def optimiser(name: str, value: Any, params: Any) -> None:
    """An optax optimiser that works with gradients and these parameters alone."""
    wanted = f"{name} must be an optax optimiser such as optax.sgd(1e-3)"
    if not isinstance(value, optax.GradientTransformation):
        raise TypeError(f"{wanted}, got {value!r}.")
    floats = eqx.filter(params, eqx.is_inexact_array)
    try:
        jax.eval_shape(lambda floats: value.update(floats, value.init(floats), floats), floats)
    except Exception as error:
        raise TypeError(f"{wanted} that works with gradients and params alone, got one that says: {error}") from error
