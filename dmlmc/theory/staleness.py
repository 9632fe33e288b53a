"""A sharper guarantee for delayed MLMC, with its proof. It is from this project, not from the paper. No JAX.

Let level l have smoothness ``lambda_l = 2^(-d l) L`` and period p_l. Put ``r(p) = 1 / (2 sin(pi / (4 p - 2)))`` for
p > 1 and ``r(1) = 0``, and call ``S = sum of lambda_l r(p_l)`` the staleness of a plan. With a constant step size a,
``g_t`` the gradient used and ``V = sum V_l / N_l``:

1. F is L'-smooth and ``<u, v> = (|u|^2 + |v|^2 - |u - v|^2) / 2``, so every step satisfies
   ``F(x_(t+1)) <= F(x_t) - (a/2) |grad F|^2 + (a/2) |grad F - g|^2 - (a/2) (1 - L' a) |g|^2``.
2. ``grad F(x_t) - g_t = A_t - n_t``. The noise ``n_t`` has one term per level. Of two terms drawn at different steps,
   the later has conditional mean zero given the earlier. Two terms drawn at the same step have conditional mean zero
   given the past and, since levels are independent, are uncorrelated. So all terms are orthogonal and
   ``E|n_t|^2 <= V``: no factor l_max + 1.
3. ``|A_t| <= sum_l lambda_l |x_t - x_tau_l(t)|``, and ``x_t - x_tau_l(t)`` is -a times the sum of the gradients used
   since the refresh. Over one period these p_l differences are -a times a strictly lower triangular p_l by p_l matrix
   of ones, applied to the p_l gradients. The norm of this matrix is exactly ``r(p_l)``. A last, incomplete period has a
   leading block of it, whose norm is not larger. Minkowski's inequality, in the space of sequences with the norm
   ``sqrt(sum_t E|.|^2)``, adds up the levels: ``sum_t E|A_t|^2 <= a^2 S^2 sum_t E|g_t|^2``. The sum over all t avoids
   the log T that an induction over t costs.
4. With ``|A - n|^2 <= 2 |A|^2 + 2 |n|^2`` the terms in ``|g|^2`` cancel as soon as ``2 a^2 S^2 + L' a <= 1``, and
   the mean of ``E|grad F(x_t)|^2`` is at most ``2 gap / (a T) + 2 V``.

This holds for any periods. Without delay S = 0 and the condition, ``a <= 1 / L'``, is that of plain SGD. The bound is
not: its noise term 2 V does not shrink with the step size, as that of plain SGD does. ``held_noise`` has one that does.

**Latency.** The same holds if a gradient is ready only q_l steps after the step whose parameters it uses: level l uses
``x_tau`` at the steps ``tau + q_l, ..., tau + q_l + p_l - 1``. Then ``x_t - x_tau`` is ``x_t - x_(t - q)`` plus
``x_(t - q) - x_tau``. The first is -a times a matrix with q ones in each row and each column, of norm at most q. The
second is that of step 3, q steps later. So the level counts ``q_l + r(p_l)`` in S. More generally, delays that are
at most D_l and fixed in advance give a matrix with at most D_l ones in a row, and in a column, since step s counts only
at t with ``s < t <= s + D_l``. Its norm is at most D_l, and ``S_D = sum lambda_l D_l``. This is the case ``q_l = D_l``,
``p_l = 1``. Steps before 0 have x_0, so a run starts with all gradients at x_0.

The norm in step 3: without its zero row and column the matrix is the full lower triangle of ones of size p - 1, whose
inverse has 1 on the diagonal and -1 below it. Its norm is known, and a test compares it with singular values. From
``sin z <= z`` and, for z up to pi / 6, ``1 / sin z <= 1 / z + z / 5`` follows ``(2 p - 1) / pi <= r(p) <= 2 p / pi``.
Hence ``S <= (2 / pi) L l_max`` with the paper's periods.
"""

import math
from collections.abc import Sequence

import numpy as np

from dmlmc._internal.checks import integer, numbers, positive, positive_integers, positive_reals
from dmlmc.schedule import Plan
from dmlmc.theory.theorem import Bound, Problem


def staleness(problem: Problem, plan: Plan, latencies: Sequence[float] | None = None) -> float:
    """S, the sum over levels of ``2^(-d l) L (q_l + r(p_l))``, with latencies q_l that are zero by default.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(staleness(problem, problem.plan(1000)), 2)
    3.54
    >>> round(staleness(problem, problem.plan(1000), latencies=[0, 2, 4, 8, 16, 32, 64]), 2)
    9.54
    """
    check_plan("staleness", problem, plan)
    smoothness = [problem.L * 2.0 ** (-problem.rates.d * level) for level in range(problem.max_level + 1)]
    return total_staleness("staleness", smoothness, plan.periods, latencies)


def safe_step_size(problem: Problem, plan: Plan, latencies: Sequence[float] | None = None) -> float:
    """The largest step size that the bound of this module admits: a with ``2 a^2 S^2 + L' a = 1``.

    Without delay it is ``1 / L'``. The paper's theorem admits ``theorem.theorem_step_size``. A run on a quadratic loss
    is stable up to ``quadratic.stability_limit``. For smoothness constants that follow no power of two, such as
    measured ones, use ``largest_safe_step``.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(1 / safe_step_size(problem, problem.plan(1000)), 2)
    6.1
    """
    return largest_root(problem.L_prime, 2 * staleness(problem, plan, latencies) ** 2)


def largest_safe_step(
    smoothness: Sequence[float], periods: Sequence[int], latencies: Sequence[float] | None = None
) -> float:
    """The largest step size that the bound admits, for levels with these smoothness constants, periods and latencies.

    It is a with ``2 a^2 S^2 + L' a = 1``, where L' is the sum of the smoothness constants. ``safe_step_size`` is the
    same for the constants ``2^(-d l) L`` of a problem, except that its L' is the sum over all l, as in the paper. For
    delays of at most D_l that are fixed in advance, give period 1 and latency D_l.

    >>> largest_safe_step([1.0, 0.5, 0.25], periods=[1, 1, 1]) == 1 / 1.75
    True
    >>> round(largest_safe_step([1.0, 0.5, 0.25], periods=[1, 2, 4]), 3)
    0.383
    >>> round(largest_safe_step([1.0, 0.5, 0.25], periods=[1, 1, 1], latencies=[0, 2, 5]), 3)
    0.24
    """
    checked = positive_reals("largest_safe_step: smoothness", smoothness).tolist()
    periods = positive_integers("largest_safe_step: periods", periods, length=len(checked))
    return largest_root(sum(checked), 2 * total_staleness("largest_safe_step", checked, periods, latencies) ** 2)


def sharper_bound(
    problem: Problem,
    plan: Plan,
    steps: int,
    step_size: float | None = None,
    latencies: Sequence[float] | None = None,
) -> Bound:
    """``2 gap / (a T) + 2 V`` with the variance V of the plan, by default at the safe step size.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(sharper_bound(problem, problem.plan(10**6), steps=4000).total, 4)
    0.0031
    """
    steps = integer("sharper_bound: steps", steps, minimum=1)
    step_size = admitted("sharper_bound", safe_step_size(problem, plan, latencies), step_size)
    return Bound(2 * problem.gap / (step_size * steps), 2 * problem.M * plan.variance())


def largest_root(linear: float, quadratic: float) -> float:
    """The largest step size a with ``quadratic a^2 + linear a <= 1``."""
    # This form of the root also works for quadratic = 0.
    return 2 / (linear + math.sqrt(linear**2 + 4 * quadratic))


def admitted(name: str, largest: float, step_size: float | None) -> float:
    """The step size, if a bound admits it, or the largest one by default."""
    step_size = largest if step_size is None else positive(f"{name}: step_size", step_size)
    if step_size > largest * (1 + 1e-12):
        raise ValueError(f"{name}: step_size must be at most {largest} for this plan, got {step_size}.")
    return step_size


def check_plan(name: str, problem: Problem, plan: Plan) -> None:
    """A plan for the levels and rates of a problem."""
    if not isinstance(plan, Plan):
        raise TypeError(f"{name}: plan must be a dmlmc.Plan, made by dmlmc.plan(...), got {plan!r}.")
    if plan.max_level != problem.max_level or plan.rates != problem.rates:
        raise ValueError(
            f"{name}: plan must be for max_level {problem.max_level} and {problem.rates}, "
            f"got max_level {plan.max_level} and {plan.rates}."
        )


def period_factor(period: int) -> float:
    """r(p): the norm of the strictly lower triangular p by p matrix of ones.

    >>> period_factor(1), round(period_factor(2), 6)
    (0.0, 1.0)
    """
    return 1 / (2 * math.sin(math.pi / (4 * period - 2))) if period > 1 else 0.0


def total_staleness(
    name: str, smoothness: Sequence[float], periods: Sequence[int], latencies: Sequence[float] | None
) -> float:
    """``sum of smoothness_l (q_l + r(p_l))``."""
    waits = np.zeros(len(smoothness)) if latencies is None else numbers(f"{name}: latencies", latencies)
    if waits.size != len(smoothness) or not np.all(np.isfinite(waits) & (waits >= 0)):
        wanted = f"{len(smoothness)} finite numbers of at least 0, one per level"
        raise ValueError(f"{name}: latencies needs {wanted}, got {latencies!r}.")
    levels = zip(smoothness, periods, waits.tolist(), strict=True)
    return sum((value * (wait + period_factor(period)) for value, period, wait in levels), 0.0)
