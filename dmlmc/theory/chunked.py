"""Quadratic losses whose gradients are used in pieces, of parameters of any age, as in streaming MLMC. No JAX.

Level l has the mean loss ``h/2 (x - c)^2`` and period p. At a step t with ``k = t mod p`` it adds p times its piece k,
``h sum_j W[k, j] (x_(t-j) - c) + o_k + noise``, to the gradient. The weights W sum to 1 and the offsets o to 0, so at
fixed parameters the pieces of a period add up to p times the gradient ``h (x - c)``, plus noise. The noises of the
pieces of one period, a cohort, have any covariance. Cohorts and levels are independent. Before step 0 all is x_0.

Held gradients are a special case: ``held_weights``, and the same noise in all pieces. All coordinates of a problem in
more dimensions follow such recursions independently.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from dmlmc._internal.checks import integer, numbers, real


@dataclass(frozen=True, eq=False)
class ChunkedLevel:
    """A level used in pieces: h, W (pieces by ages), the centre c, the offsets o, and the covariance of the noise.

    >>> level = ChunkedLevel(0.5, piece_weights([0.7, 0.3], ages=[1, 3]), centre=2.0, offsets=[0.1, -0.1])
    >>> level.period, level.ages, level.fluctuations(0.0).round(2).tolist()  # 2 * piece - gradient, at x = 0
    (2, 4, [-0.2, 0.2])
    """

    curvature: float
    weights: Any  # these three: array-likes, arrays once checked
    centre: float = 0.0
    offsets: Any = None
    covariance: Any = None

    def __post_init__(self):
        for name in ("curvature", "centre"):
            object.__setattr__(self, name, real(f"ChunkedLevel: {name}", getattr(self, name)))
        weights = np.asarray(self.weights, dtype=float)
        if weights.ndim != 2 or weights.size == 0 or not abs(weights.sum() - 1) < 1e-9:
            raise ValueError(f"ChunkedLevel: weights must be a pieces by ages array of sum 1, got {self.weights!r}.")
        period = len(weights)
        offsets = np.zeros(period) if self.offsets is None else numbers("ChunkedLevel: offsets", self.offsets)
        if len(offsets) != period or not abs(offsets.sum()) <= 1e-9 * np.abs(offsets).sum():
            raise ValueError(f"ChunkedLevel: offsets must be {period} numbers of sum 0, got {self.offsets!r}.")
        covariance = np.zeros((period, period)) if self.covariance is None else np.asarray(self.covariance, dtype=float)
        if covariance.shape != (period, period):
            raise ValueError(f"ChunkedLevel: covariance must be {period} by {period}, got shape {covariance.shape}.")
        for name, value in (("weights", weights), ("offsets", offsets), ("covariance", covariance)):
            object.__setattr__(self, name, value)

    @property
    def period(self) -> int:
        """The number of pieces."""
        return len(self.weights)

    @property
    def ages(self) -> int:
        """The number of steps whose parameters count, the current one included."""
        return self.weights.shape[1]

    @property
    def smoothness(self) -> float:
        """The root mean square over the pieces of the Lipschitz constants of p times a piece, as in ``pieces``."""
        return abs(self.curvature) * math.sqrt(self.period * np.sum(np.abs(self.weights).sum(axis=1) ** 2))

    def fluctuations(self, x: float) -> Float[np.ndarray, " pieces"]:
        """p times each mean piece, minus the gradient, with all parameters at x. They sum to 0."""
        slope = self.period * self.weights.sum(axis=1) - 1
        return slope * self.curvature * (x - self.centre) + self.period * self.offsets


def piece_weights(weights: ArrayLike, ages: Sequence[int]) -> Float[np.ndarray, "pieces ages"]:
    """W for pieces with these shares of the gradient, piece k with parameters of age ``ages[k]``.

    >>> piece_weights([0.75, 0.25], ages=[0, 2]).tolist()
    [[0.75, 0.0, 0.0], [0.0, 0.0, 0.25]]
    """
    shares = numbers("piece_weights: weights", weights)
    if len(ages) != len(shares):
        raise ValueError(f"piece_weights: ages needs {len(shares)} entries, one per piece, got {ages!r}.")
    checked = [integer(f"piece_weights: ages[{piece}]", age, minimum=0) for piece, age in enumerate(ages)]
    matrix = np.zeros((len(shares), max(checked) + 1))
    matrix[np.arange(len(shares)), checked] = shares
    return matrix


def held_weights(period: int, latency: int = 0) -> Float[np.ndarray, "pieces ages"]:
    """W for a gradient that is ready ``latency`` steps after its parameters and then held for ``period`` steps.

    >>> held_weights(2, latency=1).tolist()
    [[0.0, 0.5, 0.0], [0.0, 0.0, 0.5]]
    """
    return piece_weights(np.full(period, 1 / period), [latency + k for k in range(period)])


def gathered_weights(shares: ArrayLike, slots: Sequence[int]) -> Float[np.ndarray, "pieces ages"]:
    """W for a cohort whose pieces are gathered in steps r to r + p - 1, and used as a held gradient from r + p on.

    Piece k has the share ``shares[k]`` of the gradient and the parameters of step ``r + slots[k]``, from -p to p - 1.

    >>> gathered_weights([0.5, 0.5], slots=[-2, 1]).tolist()
    [[0.0, 0.25, 0.0, 0.0, 0.25, 0.0], [0.0, 0.0, 0.25, 0.0, 0.0, 0.25]]
    """
    gathered = numbers("gathered_weights: shares", shares)
    period = len(gathered)
    matrix = np.zeros((period, 3 * period))
    for piece, (share, slot) in enumerate(zip(gathered, slots, strict=True)):
        slot = integer(f"gathered_weights: slots[{piece}]", slot, minimum=-period, maximum=period - 1)
        matrix[np.arange(period), period + np.arange(period) - slot] += share / period
    return matrix


def piece_noise(variance: float, period: int, *, shared: bool) -> Float[np.ndarray, "pieces pieces"]:
    """The covariance of the pieces of a gradient of this variance: one noise that all share, or independent noises.

    >>> piece_noise(4.0, 2, shared=True).tolist(), piece_noise(4.0, 2, shared=False).tolist()
    ([[1.0, 1.0], [1.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]])
    """
    return np.full((period, period), variance / period**2) if shared else np.eye(period) * (variance / period)


def optimum(levels: Sequence[ChunkedLevel]) -> tuple[float, float]:
    """The curvature of the mean loss, and the point where its gradient is zero.

    >>> optimum([ChunkedLevel(1.0, [[1.0]], centre=3.0), ChunkedLevel(0.5, [[1.0]])])
    (1.5, 2.0)
    """
    total = sum(level.curvature for level in levels)
    if total <= 0:
        raise ValueError(f"optimum: the levels must have positive total curvature, got {total}.")
    return total, sum(level.curvature * level.centre for level in levels) / total
