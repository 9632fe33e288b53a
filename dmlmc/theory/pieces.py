"""Streaming MLMC with pieces used as they come: a guarantee, with its proof. It is from this project. No JAX.

Level l with p = p_l > 1 has a cohort that turns round at every multiple r of p. Its forward chunks use the parameters
of the steps r - p, ..., r - 1, its backward chunks those of r, ..., r + p - 1. At step r + k its piece k, weighted p,
is a part of the gradient. Levels with p_l = 1 are synchronous. Steps before 0 have the parameters x_0.

**Assumptions.** For each level, with indices l left out:

(a) The randomness w of a cohort is independent of all else, and nothing computed from it is used before its turn r.
(b) Piece k is a function ``P_k(y_(r-p), ..., y_(r+k); w)`` of a path of parameters. For every w,
    ``p |P_k(y; w) - P_k(x, ..., x; w)| <= sum_u K_(k,u) |y_u - x|``. Let ``K_k = sum_u K_(k,u)`` and lambda the root
    mean square of K_0, ..., K_(p-1). This is Assumption 3 for paths of parameters, and for each sample instead of the
    mean: a cohort's later pieces use parameters that its earlier pieces have moved. If the gradient has the constant K
    and is split evenly, lambda is K. If one chunk has all of it, lambda is ``sqrt(p) K``. It is always a Lipschitz
    constant of ``grad D_l F``, the mean of p P_k over k, and ``L' = sum lambda_l`` is one of ``grad F``.
(c) With all parameters at x the mean of ``p P_k`` is ``grad D_l F(x) + f_k(x)``, and ``sum_k f_k(x) = 0``. The sum of
    ``f_k(x_r)`` over consecutive k has a mean square of at most ``b^2``, at every turn r. If ``|f_k| <= beta``,
    then ``b <= p beta / 2``: such a sum and that over the other k are opposite, and one has at most p / 2 terms.
(d) With all parameters at x, the sum of the pieces of a cohort has variance at most v, and a sum of consecutive ones at
    most ``s >= v``. (``s = v`` if no two pieces are negatively correlated.)
(e) Every period divides T.

**Theorem.** Sums are over the levels, those with b and s over levels with p_l > 1. Let ``S = sum lambda_l (r(p_l) +
sqrt(p_l (2 p_l - 1)))`` over p_l > 1, with r(p) as in ``staleness``, ``B = sum b_l``, ``W = sum p_l v_l`` and
``R^2 = sum p_l^2 s_l``. If ``2 a^2 S^2 + 2 L' a <= 1``, the mean of ``E|grad F(x_t)|^2`` over t < T is at most
``4 gap / (a T) + 304 (a L' B)^2 + 24 a L' W + 180 (a L' R)^2``. The second term is at most
``76 (a L' sum p_l beta_l)^2``.

**Proof.** ``|.|`` of a sequence is ``sqrt(sum_t E|.|^2)``, and r = r_l(t) the last turn of level l.

1. Freeze a cohort's parameters at x_r, which is independent of its w. Then ``g_t = u_t + f_t + h_t``, with
   ``u_t = sum_l (grad D_l F(x_r) + e_(l,t))``. Here e is p times the difference of the piece from the frozen one,
   ``f_t = sum_l f_(l,k)(x_r)`` and h_t the noise of the frozen pieces. Given all randomness but w, the noise of a
   cohort has mean zero. Of two cohorts, the one that turns later (at ties, either) has a w that neither x_r nor the
   other noise depends on. So noises of different cohorts are uncorrelated.
2. Let ``y_t`` be x_t plus a times the f already used in the passes that t is in, minus a times the h still to come of
   cohorts with r < t. As f sums to zero over a pass, ``y_(t+1) = y_t - a (u_t + n_t)``, where n_t is the sum of p_l
   times the noise of the frozen gradient over the levels that turn at t. n_t has mean zero given y_t, and the mean
   over t of ``E|n_t|^2`` is at most W. ``sqrt(E|y_t - x_t|^2) <= a (B + R)``. Also y_0 = x_0.
3. Descent at y_t, with ``|u + n|^2 <= 2 |u|^2 + 2 |n|^2``, since e may be correlated with n:
   ``E F(y_(t+1)) <= E F(y_t) - (a/2) E|grad F(y_t)|^2 - (a/2) (1 - 2 L' a) E|u_t|^2 + (a/2) E|grad F(y_t) - u_t|^2 +
   L' a^2 E|n_t|^2``.
4. ``|grad F(y_t) - u_t| <= L' |y_t - x_t| + sum_l (lambda_l |x_t - x_r| + sum_u K_(k,u) |x_u - x_r|)``, the last sum
   over p_l > 1. Differences of x are -a times sums of u + f + h over less than p_l steps after r or p_l before it.
   - u: the first kind has norm ``a lambda r(p) |u|``, as in ``staleness``. For the second, ``max_u |sum u|^2`` is at
     most p times the sum of ``|u|^2`` over the p steps before r, plus p - 1 times that over those since r. Each step is
     in one window of each kind and ``sum_k K_k^2 = p lambda^2``, so the norm is at most
     ``a lambda sqrt(p (2 p - 1)) |u|``. All levels: ``a S |u|``.
   - f: in a window, each level has complete passes, which sum to zero, and at most two parts of a pass. So the mean
     square of the sum is at most ``(2 B)^2``, and all levels and both kinds add up to ``a sqrt(T) 4 L' B``.
   - h: each level has at most p_k / p_l complete passes in a window of level k, and at most two parts. So the mean
     square is at most ``p_k W + 2 R^2``, and all levels and both kinds add up to at most
     ``a sqrt(T) (sum_k 2 lambda_k sqrt(p_k W) + 2 sqrt(2) L' R)``. By Cauchy-Schwarz ``(sum_k lambda_k sqrt(p_k))^2``
     is at most ``L' sum_k lambda_k p_k <= L' S / 1.7``, as ``r(p) >= (2 p - 1) / pi`` and p >= 2.
5. Hence ``|grad F(y) - u| <= a S |u| + a sqrt(T) Z``, ``Z = sqrt(4 L' S W / 1.7) + 5 L' B + (1 + 2 sqrt(2)) L' R``.
   Square it, with ``(. + .)^2 <= 2 (.)^2 + 2 (.)^2`` and ``Z^2 <= 3 (...)``. The condition cancels the terms in
   ``|u|^2``, and ``a S <= 1 / sqrt(2)``. So the mean of ``E|grad F(y_t)|^2`` is at most ``2 gap / (a T) +
   (2 + 24 / (1.7 sqrt(2))) a L' W + 150 (a L' B)^2 + 6 (1 + 2 sqrt(2))^2 (a L' R)^2``. The constants of W and R^2 are
   below 12 and 88.
6. ``|grad F(x)|^2 <= 2 |grad F(y)|^2 + 2 L'^2 |x - y|^2`` and ``(B + R)^2 <= 2 B^2 + 2 R^2``.

If pieces are gathered and then used as a held gradient, f does not matter: see ``streaming``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dmlmc._internal.checks import integer, positive, positive_integers, positive_reals
from dmlmc.theory.chunked import ChunkedLevel, optimum
from dmlmc.theory.chunked_runs import exact_run
from dmlmc.theory.staleness import admitted, largest_root
from dmlmc.theory.streaming import PIECES, streaming_staleness


class PiecesBound(NamedTuple):
    """The terms of the bound: of the start, of the fluctuation of the pieces, and of the noise."""

    start: float
    fluctuation: float
    noise: float

    @property
    def total(self) -> float:
        """The bound itself."""
        return self.start + self.fluctuation + self.noise


def pieces_step_size(smoothness: Sequence[float], periods: Sequence[int]) -> float:
    """The largest step size a that the theorem of this module admits: ``2 a^2 S^2 + 2 L' a = 1``.

    >>> round(1 / pieces_step_size([2.0**-l for l in range(7)], [2**l for l in range(7)]), 2)
    18.59
    """
    checked = positive_reals("pieces_step_size: smoothness", smoothness).tolist()
    staleness = streaming_staleness(checked, periods, PIECES)
    return largest_root(2 * sum(checked), 2 * staleness**2)


def pieces_bound(
    gap: float,
    smoothness: Sequence[float],
    periods: Sequence[int],
    fluctuations: Sequence[float],
    variances: Sequence[float],
    run_variances: Sequence[float],
    steps: int,
    step_size: float | None = None,
) -> PiecesBound:
    """The bound of this module from lambda_l, p_l, b_l, v_l and s_l, by default at the largest step size it admits.

    >>> levels = dict(smoothness=[1.0, 0.5], periods=[1, 2], variances=[0.1, 0.02], run_variances=[0.1, 0.02])
    >>> bound = pieces_bound(gap=1.0, fluctuations=[0.0, 0.3], steps=1000, step_size=0.01, **levels)
    >>> [round(term, 5) for term in bound]
    [0.4, 0.00616, 0.05364]
    """
    periods = positive_integers("pieces_bound: periods", periods, length=len(smoothness))
    steps = integer("pieces_bound: steps", steps, minimum=1)
    if any(steps % period for period in periods):
        raise ValueError(f"pieces_bound: steps must be a multiple of every period, {periods}, got {steps}.")
    step_size = admitted("pieces_bound", pieces_step_size(smoothness, periods), step_size)
    sizes, held, runs = (np.asarray(values, dtype=float) for values in (fluctuations, variances, run_variances))
    if not sizes.shape == held.shape == runs.shape == (len(periods),) or np.min([sizes, held, runs]) < 0:
        raise ValueError("pieces_bound: fluctuations, variances and run_variances need a number >= 0 for each level.")
    lengths, streamed, scaled = np.array(periods), np.array(periods) > 1, step_size * sum(smoothness)
    noise = 24 * scaled * np.sum(lengths * held) + 180 * scaled**2 * np.sum((lengths**2 * runs)[streamed])
    fluctuation = 304 * (scaled * np.sum(sizes[streamed])) ** 2
    return PiecesBound(4 * positive("pieces_bound: gap", gap) / (step_size * steps), float(fluctuation), float(noise))


def truth_and_bound(
    levels: Sequence[ChunkedLevel], start: float, step_size: float, steps: int
) -> tuple[float, PiecesBound]:
    """The exact mean of ``E|grad F(x_t)|^2`` on a chunked quadratic, and its bound, with b_l as large as in this run.

    >>> from dmlmc.theory.chunked import piece_weights
    >>> levels = [ChunkedLevel(1.0, [[1.0]]), ChunkedLevel(0.5, piece_weights([0.8, 0.2], ages=[1, 3]), centre=1.0)]
    >>> truth, bound = truth_and_bound(levels, start=3.0, step_size=0.1, steps=20)
    >>> round(truth, 3), round(bound.total, 1)
    (2.686, 13.4)
    """
    for level in levels:
        allowed = level.period * (level.period > 1) + np.arange(level.period)
        if np.any(level.weights[np.arange(level.ages) > allowed[:, None]]):
            raise ValueError(f"truth_and_bound: piece k has parameters of age {allowed} at most, got {level.weights}.")
    curvature, best = optimum(levels)
    mean, square = exact_run(levels, start, step_size, steps)
    bound = pieces_bound(
        positive("truth_and_bound: gap", curvature * (start - best) ** 2 / 2),
        [level.smoothness for level in levels],
        [level.period for level in levels],
        [fluctuation_size(level, mean[:: level.period], square[:: level.period]) for level in levels],
        [float(level.covariance.sum()) for level in levels],
        [run_variance(level) for level in levels],
        steps,
        step_size,
    )
    return float(curvature**2 * np.mean(square - 2 * best * mean + best**2)), bound


def fluctuation_size(
    level: ChunkedLevel, mean: Float[np.ndarray, " turns"], square: Float[np.ndarray, " turns"]
) -> float:
    """b_l of a level from the mean and mean square of x at its turns.

    >>> from dmlmc.theory.chunked import held_weights
    >>> fluctuation_size(ChunkedLevel(1.0, held_weights(2), offsets=[0.5, -0.5]), np.zeros(1), np.zeros(1))
    1.0
    """
    constant = _runs(level.fluctuations(level.centre))[:, None]
    slope = _runs(level.fluctuations(level.centre + 1))[:, None] - constant
    away = square - 2 * level.centre * mean + level.centre**2
    squares = slope**2 * away + 2 * slope * constant * (mean - level.centre) + constant**2
    return float(np.sqrt(max(squares.max(), 0.0)))


def run_variance(level: ChunkedLevel) -> float:
    """s_l of a level: the largest variance of a sum of consecutive pieces.

    >>> run_variance(ChunkedLevel(1.0, [[0.5], [0.5]], covariance=[[1.0, -1.0], [-1.0, 1.0]]))
    1.0
    """
    ends = range(level.period + 1)
    return float(max(level.covariance[i:j, i:j].sum() for j in ends for i in range(j)))


def _runs(values: Float[np.ndarray, " pieces"]) -> Float[np.ndarray, " runs"]:
    """The sums of consecutive values, one for each run of them."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return (sums[None, :] - sums[:, None])[np.triu_indices(len(sums), 1)]
