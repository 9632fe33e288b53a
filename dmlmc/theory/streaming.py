"""Streaming MLMC: what its latencies cost in a guarantee, and where it becomes unstable. No JAX.

Level l has a new cohort of pairs every p_l steps. A cohort goes forward for p_l steps, a chunk of one level-0 length
at a step, turns round, and goes back for p_l steps. The span of every step is that of one chunk. With a path of
cost ``2^(c l)`` level-0 lengths, p_l is ``2^(c l)``, rounded up. With a ``stride``, the number of level-0 lengths in a
chunk, it is ``2^(c l) / stride``, and the levels with p_l = 1 are synchronous. Staleness then grows with
``sum 2^((c - d) l)``, where the span per step of delayed MLMC does. Three variants are covered, all with constants
lambda_l and with the first gradients at x_0:

- "copies": a cohort keeps the parameters of its start. Its gradient is ready after ``2 p_l`` steps and held for p_l.
  ``staleness`` has the theorem, with latencies ``q_l = 2 p_l``. Its constants are those of the mean gradient.
- "gathered": each chunk has the parameters of its step. The pieces are gathered and the sum held for p_l steps, from
  ``r + p_l`` on, r the turn of the cohort. Proof: let lambda_l bound the gradient of each sample by parameter paths,
  as (b) in ``pieces``. Freeze the parameters at x_r, on which the randomness of the cohort does not depend. The frozen
  gradient is one of latency p_l, with noise as in ``staleness``. The difference e from it is at most lambda_l times the
  largest ``|x_u - x_r|``, u from ``r - p_l`` to ``r + p_l - 1``. The square of that is at most a^2 times p_l times the
  sum of ``|g|^2`` over the p_l steps before r, plus ``p_l - 1`` times that over the ``p_l - 1`` steps since r. It
  counts at p_l steps, and each step is in one window of each kind. So ``sum_t E|e_t|^2`` is at most
  ``a^2 lambda_l^2 p_l (2 p_l - 1) sum_t E|g_t|^2``.
  By Minkowski's inequality it adds ``sqrt(p_l (2 p_l - 1))`` to the latency. The theorem of ``staleness`` holds, with
  ``q_l = p_l + sqrt(p_l (2 p_l - 1))``: its other steps use of the noise only that ``E|n_t|^2 <= V``.
- "pieces": each piece is used as it comes. ``pieces`` has the theorem, with ``q_l = sqrt(p_l (2 p_l - 1))``.
"""

import math
from collections.abc import Sequence

from dmlmc._internal.checks import integer, one_of, positive_integers, positive_reals
from dmlmc.allocation import plan
from dmlmc.schedule import DELAYED, MLMC, PAPER, Plan, level_cost, round_up
from dmlmc.theory.chunked import ChunkedLevel, held_weights, piece_noise, piece_weights
from dmlmc.theory.chunked_runs import chunked_stability_limit
from dmlmc.theory.quadratic import delayed_model
from dmlmc.theory.staleness import largest_root, safe_step_size, sharper_bound, staleness, total_staleness
from dmlmc.theory.theorem import Bound, Problem

COPIES, GATHERED, PIECES = VARIANTS = ("copies", "gathered", "pieces")
TODAY, CHUNK, COHORT = AGES = ("today", "chunk", "cohort")


def streaming_periods(max_level: int, c: float = 1.0, stride: int = 1) -> tuple[int, ...]:
    """The chunks of a path at each level: ``2^(c l) / stride``, rounded up.

    >>> streaming_periods(4), streaming_periods(4, stride=4), streaming_periods(3, c=1.5)
    ((1, 2, 4, 8, 16), (1, 1, 1, 2, 4), (1, 3, 8, 23))
    """
    stride = integer("streaming_periods: stride", stride, minimum=1)
    levels = range(integer("streaming_periods: max_level", max_level, minimum=0) + 1)
    return tuple(round_up(level_cost(level, c) / stride) for level in levels)


def streaming_plan(problem: Problem, samples: float, stride: int = 1) -> Plan:
    """The paper's sample counts for an effective batch size N, with the periods of streaming MLMC.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=2.0, c=1.0, d=0.5), max_level=3, gap=1.0)
    >>> streaming_plan(problem, 100).periods, problem.plan(100).periods
    ((1, 2, 4, 8), (1, 1, 2, 2))
    """
    periods = streaming_periods(problem.max_level, problem.rates.c, stride)
    return plan(problem.rates, problem.max_level, samples=samples, periods=periods, allocation=PAPER)


def latencies(periods: Sequence[int], variant: str) -> tuple[float, ...]:
    """q_l of a variant: the latency by which it counts in the staleness. Zero where the period is 1.

    >>> [round(latencies([1, 4], variant)[1], 2) for variant in VARIANTS]
    [8, 9.29, 5.29]
    """
    one_of("latencies: variant", variant, VARIANTS)
    periods = positive_integers("latencies: periods", periods)
    if variant == COPIES:
        return tuple(2 * p if p > 1 else 0 for p in periods)
    held = 1 if variant == GATHERED else 0
    return tuple(held * p + math.sqrt(p * (2 * p - 1)) if p > 1 else 0 for p in periods)


def streaming_staleness(smoothness: Sequence[float], periods: Sequence[int], variant: str) -> float:
    """S of a variant: ``sum lambda_l (q_l + r(p_l))``.

    >>> [round(streaming_staleness([1.0, 0.5, 0.25], [1, 2, 4], variant), 2) for variant in VARIANTS]
    [5.06, 5.61, 3.61]
    """
    checked = positive_reals("streaming_staleness: smoothness", smoothness).tolist()
    periods = positive_integers("streaming_staleness: periods", periods, length=len(checked))
    return total_staleness("streaming_staleness", checked, periods, latencies(periods, variant))


def streaming_bound(
    problem: Problem,
    samples: float,
    steps: int,
    step_size: float | None = None,
    *,
    variant: str = GATHERED,
    stride: int = 1,
) -> Bound:
    """``2 gap / (a T) + 2 V`` for the variants that hold a gradient, by default at their largest safe step size.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(streaming_bound(problem, 10**6, steps=4000).total, 4)
    0.013
    """
    one_of("streaming_bound: variant", variant, (COPIES, GATHERED))
    streamed = streaming_plan(problem, samples, stride)
    return sharper_bound(problem, streamed, steps, step_size, latencies(streamed.periods, variant))


def streaming_step_size(problem: Problem, *, variant: str = GATHERED, stride: int = 1) -> float:
    """The largest step size that the theorem for a variant admits.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> [round(1 / streaming_step_size(problem, variant=variant), 2) for variant in VARIANTS]
    [22.99, 25.99, 18.6]
    """
    streamed = streaming_plan(problem, 1.0, stride)
    total = staleness(problem, streamed, latencies(streamed.periods, variant))
    return largest_root(problem.L_prime * (2 if variant == PIECES else 1), 2 * total**2)


def relative_spans(problem: Problem, stride: int = 1) -> dict[str, float]:
    """Span per step over step size: the span to a guaranteed accuracy, in units of ``2 gap / accuracy``, without noise.

    The bound for pieces has ``4 gap / (a T)`` in place of ``2 gap / (a T)``, so it counts twice.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> {name: round(span, 1) for name, span in relative_spans(problem).items()}
    {'MLMC': 128.0, 'delayed MLMC': 24.4, 'copies': 23.0, 'gathered': 26.0, 'pieces': 37.2}
    """
    delayed = problem.plan(1.0)
    spans = {
        MLMC: level_cost(problem.max_level, problem.rates.c) * problem.L_prime,
        DELAYED: delayed.mean_span() / safe_step_size(problem, delayed),
    }
    for variant in VARIANTS:
        counted = stride * (2 if variant == PIECES else 1)
        spans[variant] = counted / streaming_step_size(problem, variant=variant, stride=stride)
    return spans


def held_limit(period: int, latency: int = 0) -> float:
    """The limit of stability on ``a lambda`` of a lone level, whose gradient is ready after q steps and held for p.

    If ``q = m p``, x at the refreshes follows ``y_(k+1) = y_k - z y_(k-m)`` with ``z = a lambda p``. A root
    ``e^(i w)`` has ``z = 2 sin(w / 2) e^(i ((m + 1/2) w - pi / 2))``, which is real first at ``w = pi / (2 m + 1)``. So
    the limit is ``2 sin(pi / (2 (2 m + 1))) / p``. A delay of D steps is ``held_limit(1, D)``. For other q the limit
    is that of ``chunked_stability_limit``.

    >>> [round(period * held_limit(period, q), 3) for period, q in [(8, 0), (8, 8), (8, 16), (1, 1), (8, 15)]]
    [2.0, 1.0, 0.618, 1.0, 0.663]
    """
    period = integer("held_limit: period", period, minimum=1)
    latency = integer("held_limit: latency", latency, minimum=0)
    if latency % period:
        return chunked_stability_limit([ChunkedLevel(1.0, held_weights(period, latency))])
    return 2 * math.sin(math.pi / (2 * (2 * latency // period + 1))) / period


def pieces_limit(weights: Sequence[float], ages: Sequence[int]) -> float:
    """The limit of stability on ``a lambda`` of a lone level whose pieces are used as they come.

    Piece k has the share ``weights[k]`` of the gradient, with parameters of age ``ages[k]``. The limit
    of "cohort" ages is ``1 / p``, for any shares: x at the turns follows ``y_(k+1) = y_k - z y_(k-1)``. A search over
    positive shares and ages found no lower one, which is not proved.

    >>> [round(pieces_limit([0.25] * 4, piece_ages(4, ages)), 3) for ages in AGES]
    [2.0, 0.416, 0.25]
    """
    return chunked_stability_limit([ChunkedLevel(1.0, piece_weights(weights, ages))])


def piece_ages(period: int, ages: str = CHUNK) -> tuple[int, ...]:
    """The age of the parameters of each piece, if all of its parameters were of one step.

    A piece depends on parameters from the start of its cohort ("cohort") to the step of its use ("today"). In between
    is the step at which its own chunk went forward ("chunk").

    >>> [piece_ages(4, ages) for ages in AGES]
    [(0, 0, 0, 0), (1, 3, 5, 7), (4, 5, 6, 7)]
    """
    one_of("piece_ages: ages", ages, AGES)
    period = integer("piece_ages: period", period, minimum=1)
    if ages == TODAY or period == 1:
        return (0,) * period
    return tuple(2 * k + 1 if ages == CHUNK else period + k for k in range(period))


def streaming_levels(problem: Problem, plan: Plan, ages: str = CHUNK) -> list[ChunkedLevel]:
    """``dmlmc.QuadraticLoss`` with the constants of a problem, under a plan: even pieces with independent noises.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=4, gap=1.0)
    >>> round(chunked_stability_limit(streaming_levels(problem, problem.plan(100))), 2)
    1.06
    """
    model = delayed_model(problem, plan)
    return [
        ChunkedLevel(h, piece_weights([1 / p] * p, piece_ages(p, ages)), covariance=piece_noise(v, p, shared=False))
        for h, v, p in zip(model.curvatures, model.variances, model.periods, strict=True)
    ]
