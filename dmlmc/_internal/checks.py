"""Checks of plain arguments, one per kind. Each error names the argument, what would work and what was given."""

import inspect
import math
from collections.abc import Mapping, Sequence, Set
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np


def _number(value: Any) -> Any:
    """A NumPy or JAX scalar as a Python number. Anything else is returned as it is, tracers included."""
    try:
        return value.item() if getattr(value, "shape", None) == () else value
    except (AttributeError, NotImplementedError, TypeError):  # NotImplementedError: a key
        return value


def real(name: str, value) -> float:
    """A finite real number, as a float. NumPy and JAX scalars count."""
    value = _number(value)
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


def power_of_two(name: str, exponent: float) -> float:
    """2^exponent, if a float can hold it."""
    if exponent > 1000:
        raise ValueError(f"{name} must lead to numbers that a float can hold, got 2^{exponent:g}; lower one of them.")
    return 2.0**exponent


def integer(name: str, value, *, minimum: int, maximum: int | None = None) -> int:
    """An integer in a range, as an int. NumPy and JAX integers count, booleans do not."""
    value = _number(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    value = int(value)
    if value < minimum or (maximum is not None and value > maximum):
        wanted = f"at least {minimum}" if maximum is None else f"between {minimum} and {maximum}"
        raise ValueError(f"{name} must be {wanted}, got {value}.")
    return value


def positive_integers(name: str, values, *, length: int | None = None) -> tuple[int, ...]:
    """A tuple of integers >= 1, of a given length if one is asked for."""
    if isinstance(values, str | bytes | Set | Mapping) or not np.iterable(values):
        raise TypeError(f"{name} must be a sequence with one integer per level, got {values!r}.")
    values = tuple(values)
    if not values or (length is not None and len(values) != length):
        wanted = "at least one entry" if length is None else f"{length} entries, one per level"
        raise ValueError(f"{name} needs {wanted}, got {values!r}.")
    return tuple(integer(f"{name}[{level}]", value, minimum=1) for level, value in enumerate(values))


def numbers(name: str, values) -> np.ndarray:
    """A one-dimensional array of one real number or more, as floats."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a sequence of real numbers, got {values!r}.") from None
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} needs at least one number, got {values!r}.")
    return array


def positive_reals(name: str, values, *, length: int | None = None) -> np.ndarray:
    """A one-dimensional array of finite numbers > 0, of a given length if one is asked for."""
    array = numbers(name, values)
    if length is not None and array.size != length:
        raise ValueError(f"{name} needs {length} numbers, one per level, got {values!r}.")
    if not np.all(np.isfinite(array) & (array > 0)):
        raise ValueError(f"{name} must be finite and positive, got {values!r}.")
    return array


def step_or_steps(name: str, value) -> np.ndarray:
    """A step of a run or an array of them: integers >= 0."""
    try:
        steps = np.asarray(value)
    except (TypeError, ValueError):  # a key, or lists of unequal lengths
        steps = np.array(None)
    if steps.dtype.kind not in "iu" or np.any(steps < 0):
        raise ValueError(f"{name} must be an integer of at least 0, or an array of them, got {value!r}.")
    return steps


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
    return value


def truth(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def instance(name: str, value: Any, kind: type, advice: str = "") -> None:
    """An object of one of our own classes."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a dmlmc.{kind.__name__}{advice}, got {value!r}.")


def function(name: str, value: Any, *arguments: str) -> None:
    """A function that can be called with these positional arguments."""
    wanted = f"{name} must be a function of ({', '.join(arguments)})"
    if not callable(value):
        raise TypeError(f"{wanted}, got {value!r}.")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some builtins have no signature
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TypeError(f"{wanted}, got one of {signature} ({error}).") from None


def directory(name: str, value: Any) -> Path | None:
    """A path, or None."""
    if value is None:
        return None
    if not isinstance(value, str | Path) or value == "":
        raise TypeError(f"{name} must be a path such as 'runs/first', got {value!r}.")
    return Path(value)
