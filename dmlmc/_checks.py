"""Argument checks shared by the constructors: each names the argument, what was given and what would work."""

import math
from numbers import Integral, Real

import numpy as np


def real(name: str, value) -> float:
    """A finite real number, as a float; NumPy and JAX scalars are welcome."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a real number, got {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}.")
    return float(value)


def positive(name: str, value) -> float:
    """A finite real number above zero."""
    value = real(name, value)
    if value <= 0:
        raise ValueError(f"{name} must be positive, got {value}.")
    return value


def integer(name: str, value, *, minimum: int, maximum: int | None = None) -> int:
    """An integer in a range; booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    value = int(value)
    if value < minimum or (maximum is not None and value > maximum):
        wanted = f"at least {minimum}" if maximum is None else f"between {minimum} and {maximum}"
        raise ValueError(f"{name} must be {wanted}, got {value}.")
    return value


def positive_integers(name: str, values, *, length: int | None = None) -> tuple[int, ...]:
    """A tuple of integers >= 1, of a given length if one is asked for."""
    try:
        values = tuple(values)
    except TypeError:
        raise TypeError(f"{name} must be a sequence with one integer per level, got {values!r}.") from None
    if not values or (length is not None and len(values) != length):
        wanted = "at least one entry" if length is None else f"{length} entries, one per level"
        raise ValueError(f"{name} needs {wanted}, got {values!r}.")
    return tuple(integer(f"{name}[{level}]", value, minimum=1) for level, value in enumerate(values))


def positive_reals(name: str, values, *, length: int | None = None) -> np.ndarray:
    """A one-dimensional array of finite numbers > 0, of a given length if one is asked for."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or array.size == 0 or (length is not None and array.size != length):
        wanted = "at least one number" if length is None else f"{length} numbers, one per level"
        raise ValueError(f"{name} needs {wanted}, got {values!r}.")
    if not np.all(np.isfinite(array) & (array > 0)):
        raise ValueError(f"{name} must be finite and positive, got {values!r}.")
    return array
