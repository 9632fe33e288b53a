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

The norm in step 3: without its zero row and column the matrix is the full lower triangle of ones of size p - 1, whose
inverse has 1 on the diagonal and -1 below it. Its norm is known, and a test compares it with singular values. From
``sin z <= z`` and, for z up to pi / 6, ``1 / sin z <= 1 / z + z / 5`` follows ``(2 p - 1) / pi <= r(p) <= 2 p / pi``.
Hence ``S <= (2 / pi) L l_max`` with the paper's periods.
"""

import math
from collections.abc import Sequence

from dmlmc._internal.checks import integer, positive, positive_integers, positive_reals
from dmlmc.schedule import Plan
from dmlmc.theory.theorem import Bound, Problem


def staleness(problem: Problem, plan: Plan) -> float:
    """S, the sum over levels with period p > 1 of ``2^(-d l) L / (2 sin(pi / (4 p - 2)))``.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(staleness(problem, problem.plan(1000)), 2)
    3.54
    """
    check_plan("staleness", problem, plan)
    smoothness = [problem.L * 2.0 ** (-problem.rates.d * level) for level in range(problem.max_level + 1)]
    return _staleness(smoothness, plan.periods)


def safe_step_size(problem: Problem, plan: Plan) -> float:
    """The largest step size that the bound of this module admits: a with ``2 a^2 S^2 + L' a = 1``.

    Without delay it is ``1 / L'``. The paper's theorem admits ``theorem.theorem_step_size``. A run on a quadratic loss
    is stable up to ``quadratic.stability_limit``. For smoothness constants that follow no power of two, such as
    measured ones, use ``largest_safe_step``.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(1 / safe_step_size(problem, problem.plan(1000)), 2)
    6.1
    """
    return largest_root(problem.L_prime, 2 * staleness(problem, plan) ** 2)


def largest_safe_step(smoothness: Sequence[float], periods: Sequence[int]) -> float:
    """The largest step size that the bound admits, for levels with these smoothness constants and periods.

    It is a with ``2 a^2 S^2 + L' a = 1``, where L' is the sum of the smoothness constants. ``safe_step_size`` is the
    same for the constants ``2^(-d l) L`` of a problem, except that its L' is the sum over all l, as in the paper.

    >>> largest_safe_step([1.0, 0.5, 0.25], periods=[1, 1, 1]) == 1 / 1.75
    True
    >>> round(largest_safe_step([1.0, 0.5, 0.25], periods=[1, 2, 4]), 3)
    0.383
    """
    checked = positive_reals("largest_safe_step: smoothness", smoothness).tolist()
    periods = positive_integers("largest_safe_step: periods", periods, length=len(checked))
    return largest_root(sum(checked), 2 * _staleness(checked, periods) ** 2)


def sharper_bound(problem: Problem, plan: Plan, steps: int, step_size: float | None = None) -> Bound:
    """``2 gap / (a T) + 2 V`` with the variance V of the plan, by default at the safe step size.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(sharper_bound(problem, problem.plan(10**6), steps=4000).total, 4)
    0.0031
    """
    steps = integer("sharper_bound: steps", steps, minimum=1)
    step_size = admitted("sharper_bound", safe_step_size(problem, plan), step_size)
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


def _staleness(smoothness: Sequence[float], periods: Sequence[int]) -> float:
    """``sum of smoothness_l r(p_l)``, with r(p) the norm of the strictly lower triangular p by p matrix of ones."""
    levels = zip(smoothness, periods, strict=True)
    return sum(value / (2 * math.sin(math.pi / (4 * period - 2))) for value, period in levels if period > 1)
