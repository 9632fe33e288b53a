"""SGD on the quadratic losses of ``chunked``, without sampling: exact moments and limits of stability. No JAX."""

import functools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from dmlmc._internal.checks import integer, positive, real
from dmlmc.theory.chunked import ChunkedLevel, optimum
from dmlmc.theory.quadratic import end_of_stability, stationary_squares

LONGEST_CYCLE = 100_000


def exact_run(
    levels: Sequence[ChunkedLevel], start: float, step_size: float, steps: int
) -> tuple[Float[np.ndarray, " {steps}"], Float[np.ndarray, " {steps}"]]:
    """``E x_t`` and ``E x_t^2`` for t = 0, ..., ``steps - 1`` of SGD from ``start``.

    Steps before 0 have the parameters of the start.

    >>> exact_run([ChunkedLevel(1.0, [[1.0]], centre=2.0, covariance=[[0.5]])], start=0.0, step_size=0.5, steps=3)
    (array([0. , 1. , 1.5]), array([0.     , 1.125  , 2.40625]))
    """
    maps = _cycle(levels, positive("exact_run: step_size", step_size))
    steps, state = integer("exact_run: steps", steps, minimum=0), np.zeros(len(maps[0][0]))
    state[: _ages(levels)], state[-1] = real("exact_run: start", start), 1.0
    moments, mean, square = np.outer(state, state), np.empty(steps), np.empty(steps)
    for step in range(steps):
        mean[step], square[step] = moments[0, -1], moments[0, 0]
        matrix, added = maps[step % len(maps)]
        moments = matrix @ moments @ matrix.T + added
    return mean, square


def squared_gradients(
    levels: Sequence[ChunkedLevel], start: float, step_size: float, steps: int
) -> Float[np.ndarray, " {steps}"]:
    """``E|grad F(x_t)|^2`` for t = 0, ..., ``steps - 1`` of SGD from ``start``.

    >>> squared_gradients([ChunkedLevel(1.0, [[1.0]], covariance=[[0.5]])], start=2.0, step_size=0.5, steps=3)
    array([4.     , 1.125  , 0.40625])
    """
    curvature, best = optimum(levels)
    mean, square = exact_run(levels, start, step_size, steps)
    return curvature**2 * (square - 2 * best * mean + best**2)


def chunked_growth(levels: Sequence[ChunkedLevel], step_size: ArrayLike) -> Float[np.ndarray, " *sizes"] | np.float64:
    """The factor by which a deviation grows per step in the long run: the spectral radius over a cycle of periods.

    >>> from dmlmc.theory.chunked import held_weights
    >>> round(float(chunked_growth([ChunkedLevel(1.0, held_weights(4))], 0.75) ** 4), 6)  # 1 - 4 * 0.75
    2.0
    """
    sizes, ages = np.asarray(step_size, dtype=float), _ages(levels)
    rows = np.broadcast_to(np.eye(ages), (*sizes.shape, ages, ages))  # of x_t, x_(t-1), ... by those at the start
    log_scale, cycle = np.zeros(sizes.shape), _cycle_length(levels)
    for step in range(cycle):
        new = rows[..., 0, :] - sizes[..., None] * np.einsum("j,...ji->...i", _slopes(levels, step), rows)
        rows = np.concatenate([new[..., None, :], rows[..., :-1, :]], axis=-2)
        largest = np.max(np.abs(rows), axis=(-1, -2))
        largest = np.where(largest > 0, largest, 1.0)  # rescaled, because a long unstable cycle would overflow
        rows, log_scale = rows / largest[..., None, None], log_scale + np.log(largest)
    radius = np.max(np.abs(np.linalg.eigvals(rows)), axis=-1)
    with np.errstate(divide="ignore"):
        return np.exp((np.log(radius) + log_scale) / cycle)


def chunked_stability_limit(levels: Sequence[ChunkedLevel], *, points: int = 200) -> float:
    """The step size at which a run becomes unstable: the end of the first stable interval, by a scan and bisection.

    >>> from dmlmc.theory.chunked import held_weights
    >>> round(chunked_stability_limit([ChunkedLevel(1.0, held_weights(4, latency=4))]), 6)
    0.25
    """
    steepest = sum(abs(level.curvature) * level.period * np.abs(level.weights).sum() for level in levels)
    sizes = np.geomspace(0.02 / steepest, 8 / sum(abs(level.curvature) for level in levels), points)
    return end_of_stability(lambda step_size: chunked_growth(levels, step_size), sizes)


def chunked_stationary_error(levels: Sequence[ChunkedLevel], step_size: float) -> float:
    """The exact ``E|grad F|^2`` in the long run, averaged over a cycle; infinite if the run is unstable.

    It has the variance, and the square of a mean that moves with the fluctuations of the pieces.

    >>> round(chunked_stationary_error([ChunkedLevel(1.0, [[1.0]], covariance=[[0.5]])], 0.1), 6)  # a h v / (2 - a h)
    0.026316
    """
    if chunked_growth(levels, step_size) >= 1:
        return math.inf
    curvature, best = optimum(levels)
    maps = _cycle(levels, positive("chunked_stationary_error: step_size", step_size))
    whole = functools.reduce(lambda product, step: step[0] @ product, maps, np.eye(len(maps[0][0])))
    state = np.append(np.linalg.solve(np.eye(len(whole) - 1) - whole[:-1, :-1], whole[:-1, -1]), 1.0)
    means = []
    for matrix, _ in maps:
        means.append(state[0])
        state = matrix @ state
    variances = stationary_squares([(matrix[:-1, :-1], added[:-1, :-1]) for matrix, added in maps])
    return float(curvature**2 * np.mean(variances + (np.array(means) - best) ** 2))


def _ages(levels: Sequence[ChunkedLevel]) -> int:
    return max(level.ages for level in levels)


def _cycle_length(levels: Sequence[ChunkedLevel]) -> int:
    cycle = math.lcm(*(level.period for level in levels))
    if cycle > LONGEST_CYCLE:
        raise ValueError(f"levels: periods must repeat within {LONGEST_CYCLE} steps, got {cycle} steps.")
    return cycle


def _slopes(levels: Sequence[ChunkedLevel], step: int) -> Float[np.ndarray, " ages"]:
    """The gradient used at a step, as a combination of x_t, x_(t-1), ..."""
    slopes = np.zeros(_ages(levels))
    for level in levels:
        slopes[: level.ages] += level.curvature * level.period * level.weights[step % level.period]
    return slopes


def _cycle(levels: Sequence[ChunkedLevel], step_size: float):
    """For each step of a cycle, A and B of ``moments -> A moments A' + B``.

    The state is x_t, x_(t-1), ..., then the noises of the current cohort of each level, then 1.
    """
    ages, periods = _ages(levels), [level.period for level in levels]
    first = ages + np.concatenate([[0], np.cumsum(periods)[:-1]])
    size, maps = ages + sum(periods) + 1, []
    for step in range(_cycle_length(levels)):
        draw, fresh, update = np.eye(size), np.zeros((size, size)), np.eye(size)
        update[1:ages, :ages] = np.eye(ages)[:-1]
        update[0, :ages] -= step_size * _slopes(levels, step)
        for level, at in zip(levels, first, strict=True):
            piece, block = step % level.period, slice(at, at + level.period)
            if piece == 0:
                draw[block] = 0.0
                fresh[block, block] = level.covariance
            constant = level.offsets[piece] - level.curvature * level.centre * level.weights[piece].sum()
            update[0, at + piece] -= step_size * level.period
            update[0, -1] -= step_size * level.period * constant
        maps.append((update @ draw, update @ fresh @ update.T))
    return maps
