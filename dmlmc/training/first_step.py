"""The numbers of a run's first step, by which another version of jax recognises it."""

import math

import jax.numpy as jnp
import numpy as np

Numbers = dict[str, list[np.ndarray]]  # of all seeds, see Program.first_step
COMPARED = "parameters", "loss", "metrics"  # after the step; "start" is the parameters before it


def differing(there: Numbers, here: Numbers) -> list[str]:
    """What of a run's first step is not the same up to rounding, some of ``COMPARED``.

    Two versions of jax add up in another order. That changes a gradient by some rounding errors times its size, and
    parameters by one more of their own size. Half of the digits of the dtype is far above the first: 3e-4 of the step
    in 32 bits, 1.5e-8 in 64. A learning rate, a loss or noise that differ by more than that are seen.

    >>> one = {"start": [np.ones(2)], "parameters": [np.full(2, 0.9)], "loss": [np.full(2, 0.81)], "metrics": []}
    >>> differing(one, one), differing(one, {**one, "parameters": [np.full(2, 0.901)]})
    ([], ['parameters'])
    """
    shapes = [[[array.shape for array in numbers[name]] for name in COMPARED] for numbers in (there, here)]
    if shapes[0] != shapes[1]:
        return list(COMPARED)
    found = []
    steps = zip(here["start"], there["parameters"], here["parameters"], strict=True)
    if not all(_same_step(start, as_dtype(other, start.dtype), after) for start, other, after in steps):
        found.append("parameters")
    digits = math.sqrt(max(_epsilon(start.dtype) for start in here["start"]))
    for name in ("loss", "metrics"):
        pairs = zip(there[name], here[name], strict=True)
        if not all(np.allclose(other, value, rtol=digits, atol=0.0, equal_nan=True) for other, value in pairs):
            found.append(name)
    return found


def _same_step(start: np.ndarray, there: np.ndarray, here: np.ndarray) -> bool:
    """Whether two points reached from one start are the same up to rounding, in the norm over the array."""
    epsilon = _epsilon(start.dtype)
    start, there, here = (array.astype(float) for array in (start, there, here))
    finite = np.isfinite(here)
    if np.any(finite != np.isfinite(there)):
        return False

    def norm(array):
        return float(np.linalg.norm(array[finite]))

    return norm(there - here) <= math.sqrt(epsilon) * norm(here - start) + 4 * epsilon * norm(here)


def as_dtype(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values as they were saved: NumPy's file format has no bfloat16 and the like, it returns their bytes."""
    return values.view(dtype) if values.dtype.kind == "V" else values


def _epsilon(dtype: np.dtype) -> float:
    return float(jnp.finfo(dtype).eps)
