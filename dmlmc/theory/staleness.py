"""A sharper guarantee for delayed MLMC, with its proof. It is from this project, not from the paper. No JAX.

Let level l have smoothness ``lambda_l = 2^(-d l) L`` and period p_l, and call ``S = sum of lambda_l (p_l - 1)`` the
staleness of a plan. With a constant step size a, ``g_t`` the gradient used and ``V = sum V_l / N_l``:

1. F is L'-smooth and ``<u, v> = (|u|^2 + |v|^2 - |u - v|^2) / 2``, so every step satisfies
   ``F(x_(t+1)) <= F(x_t) - (a/2) |grad F|^2 + (a/2) |grad F - g|^2 - (a/2) (1 - L' a) |g|^2``.
2. ``grad F(x_t) - g_t = A_t - n_t``. The noise ``n_t`` has one term per level. Of any two terms, the one drawn later
   has conditional mean zero given the other, so all are orthogonal and ``E|n_t|^2 <= V``: no factor l_max + 1.
3. ``|A_t| <= sum_l lambda_l |x_t - x_tau_l(t)| <= a sum_l lambda_l sum_(tau_l(t) <= s < t) |g_s|``, with weights
   that add up to at most ``a S``. By Cauchy-Schwarz, and since level l counts step s at most p_l - 1 times,
   ``sum_t E|A_t|^2 <= a^2 S^2 sum_t E|g_t|^2``. The sum over all t avoids the log T that an induction over t costs.
4. With ``|A - n|^2 <= 2 |A|^2 + 2 |n|^2`` the terms in ``|g|^2`` cancel as soon as ``2 a^2 S^2 + L' a <= 1``, and
   the mean of ``E|grad F(x_t)|^2`` is at most ``2 gap / (a T) + 2 V``.

This holds for any periods. Without delay S = 0, and the condition is that of plain SGD.
"""

import math

from dmlmc._internal.checks import integer, positive
from dmlmc.schedule import Plan
from dmlmc.theory.theorem import Bound, Problem


def staleness(problem: Problem, plan: Plan) -> float:
    """S, the sum over levels of ``2^(-d l) L (period - 1)``; below ``L l_max`` with the paper's periods.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> staleness(problem, problem.plan(1000))
    5.015625
    """
    check_plan("staleness", problem, plan)
    return problem.L * sum(2.0 ** (-problem.rates.d * level) * (p - 1) for level, p in enumerate(plan.periods))


def exact_staleness(problem: Problem, plan: Plan) -> float:
    """A smaller number that may stand for S in step 3: ``2^(-d l) L / (2 sin(pi / (4 p - 2)))`` over periods p > 1.

    Within a period ``x_t - x_tau`` is a times a sum of the gradients since the refresh: the vector of these differences
    is the strictly lower triangle of ones, p by p, applied to the vector of gradients. The norm of that matrix is
    ``1 / (2 sin(pi / (4 p - 2)))``, at most p - 1. Minkowski's inequality adds up the levels.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(exact_staleness(problem, problem.plan(1000)), 2)
    3.54
    """
    check_plan("exact_staleness", problem, plan)
    norms = [0.0 if p == 1 else 1 / (2 * math.sin(math.pi / (4 * p - 2))) for p in plan.periods]
    return problem.L * sum(2.0 ** (-problem.rates.d * level) * norm for level, norm in enumerate(norms))


def safe_step_size(problem: Problem, plan: Plan) -> float:
    """The largest step size that the bound of this module admits: a with ``2 a^2 S^2 + L' a = 1``.

    Without delay it is ``1 / L'``. The paper's theorem admits ``theorem.theorem_step_size``. A run on a quadratic loss
    is stable up to ``quadratic.stability_limit``.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(1 / safe_step_size(problem, problem.plan(1000)), 2)
    8.16
    """
    return largest_root(problem, 2 * staleness(problem, plan) ** 2)


def sharper_bound(problem: Problem, plan: Plan, steps: int, step_size: float | None = None) -> Bound:
    """``2 gap / (a T) + 2 V`` with the variance V of the plan, by default at the safe step size.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(sharper_bound(problem, problem.plan(10**6), steps=4000).total, 4)
    0.0041
    """
    steps = integer("sharper_bound: steps", steps, minimum=1)
    step_size = admitted("sharper_bound", safe_step_size(problem, plan), step_size)
    return Bound(2 * problem.gap / (step_size * steps), 2 * problem.M * plan.variance())


def largest_root(problem: Problem, quadratic: float) -> float:
    """The largest step size a with ``quadratic a^2 + L' a <= 1``."""
    # This form of the root also works for quadratic = 0.
    return 2 / (problem.L_prime + math.sqrt(problem.L_prime**2 + 4 * quadratic))


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
