"""The noise of a held gradient: what it does to SGD in the long run, and a guarantee that knows the step size. No JAX.

Delayed MLMC uses the gradient of level l for p_l steps, and its noise with it. Over many small steps this noise counts
p_l times. ``Plan.long_run_variance`` is ``sum p_l v_l``, where ``v_l = V_l / N_l``. Both results of this module are
from this project, not from the paper.

**Stationary error.** Near the optimum of a loss with curvature h, SGD with a small step size a follows
``x' = -h x - noise`` in the time ``a t``, with noise that is constant for a time ``a p_l``. Put ``z = a h p_l`` and
``q = e^(-z)``. From one refresh to the next ``h x`` becomes ``q h x - (1 - q) noise``. Its stationary variance at a
refresh is therefore ``v_l (1 - q) / (1 + q)``, and its mean over a period is ``v_l phi(z)``, where
``phi(z) = 1 - (1 - q) / z``. This is ``z / 2`` for small z and 1 for large z. Levels are independent, so
``E|grad F|^2`` is near ``sum v_l phi(a h p_l)``.

Randomised MLMC computes level l with probability ``1/p_l`` and weight p_l. On a quadratic loss with curvatures h_l its
second moment goes from ``E x^2`` to ``((1 - a h)^2 + a^2 sum (p_l - 1) h_l^2) E x^2 + a^2 sum p_l v_l``. It has the
noise of a held gradient, and a smaller limit of stability instead of staleness.

**Guarantee.** Let S be the ``staleness``. If ``6 a^2 S^2 + L' a <= 1`` and every period divides T, then the mean
of ``E|grad F(x_t)|^2`` over t < T is at most ``4 gap / (a T) + 15 sum v_l min(1, a L' p_l)``. Proof:

1. Let J be the levels with ``a L' p_l <= 1``. Write ``g_t = u_t + h_t``, where ``h_t`` is the noise of the levels in J
   and ``u_t`` all the rest: the stale means, and the held noise ``m_t`` of the other levels.
2. Let ``y_t`` be x_t minus a times the uses still to come of the noise of J that is drawn already. Then
   ``y_(t+1) = y_t - a (u_t + n_t)``, where ``n_t`` is the sum of ``p_l`` times the fresh noise over the levels of J due
   at t. ``n_t`` is centred and uncorrelated with ``u_t`` and ``y_t``. (If a level outside of J is due at the same step,
   this uses that levels are independent.) Its mean square, averaged over t, is ``sum_J p_l v_l``.
3. ``E|y_t - x_t|^2 <= a^2 sum_J (p_l - 1)^2 v_l``, since the noises in it are uncorrelated.
4. Descent at y_t: ``E F(y_(t+1)) <= E F(y_t) - (a/2) E|grad F(y_t)|^2 - (a/2) (1 - L' a) E|u_t|^2 +
   (a/2) E|grad F(y_t) - u_t|^2 + (L' a^2 / 2) E|n_t|^2``.
5. ``grad F(y_t) - u_t = (grad F(y_t) - grad F(x_t)) + A_t - m_t`` with ``|A_t| <= sum_k lambda_k |x_t - x_tau_k(t)|``.
   The part of A_t that comes from u has ``sum_t E|.|^2 <= a^2 S^2 sum_t E|u_t|^2``. The part from h: in a window of w
   steps a noise of level l is used at most p_l times, so ``E|sum of h|^2 <= w sum_J p_l v_l``. By Cauchy-Schwarz the
   mean over t of ``(sum_k lambda_k sqrt(w_k))^2`` is at most ``L' sum_k lambda_k (p_k - 1) / 2 <= L' S``. The last
   inequality holds since ``1 / (2 sin z) >= 1 / (2 z)``, so that S has a factor of at least
   ``(2 p_k - 1) / pi > (p_k - 1) / 2`` for every level with ``p_k > 1``.
6. Collect with ``|a + b + c|^2 <= 3 (...)`` and ``|A|^2 <= 2 (...)``. The condition cancels the terms in
   ``E|u_t|^2``, and ``a S <= 1 / sqrt(6)``. So the mean of ``E|grad F(y_t)|^2`` is at most ``2 gap / (a T) +
   (3 + sqrt(6) + 1) a L' sum_J p_l v_l + 3 sum v_l`` over the levels outside of J.
7. Back to x: ``|grad F(x)|^2 <= 2 |grad F(y)|^2 + 2 L'^2 |x - y|^2``. The factor of J is ``2 (4 + sqrt(6)) + 2 < 15``.
"""

import math

import numpy as np

from dmlmc._internal.checks import integer, positive
from dmlmc.schedule import Plan
from dmlmc.theory.quadratic import LinearModel, cycle_maps, delayed_model, growth_factor, stationary_squares
from dmlmc.theory.staleness import admitted, check_plan, largest_root, staleness
from dmlmc.theory.theorem import Bound, Problem


def held_factor(z: float) -> float:
    """``phi(z) = 1 - (1 - e^(-z)) / z``: the share of a held noise that the iterates feel.

    >>> round(held_factor(0.02), 5), round(held_factor(100.0), 5)
    (0.00993, 0.99)
    """
    return 1 + math.expm1(-z) / z if z > 1e-8 else z / 2


def stationary_formula(model: LinearModel, step_size: float) -> float:
    """The stationary ``E|grad F|^2`` for small step sizes, ``sum v_l phi(a h p_l)``, h the curvature of the mean loss.

    >>> round(stationary_formula(LinearModel((1.0, 0.0), (1e-9, 1.0), (1, 8)), 0.01), 4)
    0.039
    """
    step_size = positive("stationary_formula: step_size", step_size)
    pairs = zip(model.variances, model.periods, strict=True)
    return sum(variance * held_factor(step_size * model.curvature * period) for variance, period in pairs)


def stationary_error(model: LinearModel, step_size: float) -> float:
    """The exact stationary ``E|grad F|^2``, averaged over a cycle of the periods; infinite if the run is unstable.

    >>> round(stationary_error(LinearModel((1.0,), (0.5,), (1,)), 0.1), 6)  # a h v / (2 - a h)
    0.026316
    """
    step_size = positive("stationary_error: step_size", step_size)
    if growth_factor(model, step_size) >= 1:
        return math.inf
    squares = stationary_squares(list(cycle_maps(model, step_size)))
    return float(model.curvature**2 * np.mean(squares))


def randomised_error(model: LinearModel, step_size: float) -> float:
    """The exact stationary ``E|grad F|^2`` of randomised MLMC; infinite if the run is unstable.

    >>> plain = LinearModel((1.0,), (0.5,), (1,))  # without delay it is MLMC
    >>> round(randomised_error(plain, 0.1), 6) == round(stationary_error(plain, 0.1), 6)
    True
    """
    step_size, h = positive("randomised_error: step_size", step_size), model.curvature
    extra = sum((p - 1) * curvature**2 for p, curvature in zip(model.periods, model.curvatures, strict=True))
    noise = sum(p * variance for p, variance in zip(model.periods, model.variances, strict=True))
    contraction = 2 * h - step_size * (h**2 + extra)
    return h**2 * step_size * noise / contraction if contraction > 0 else math.inf


def held_step_size(problem: Problem, plan: Plan) -> float:
    """The largest step size a that the guarantee of this module admits: ``6 a^2 S^2 + L' a = 1``.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(1 / held_step_size(problem, problem.plan(1000)), 2)
    9.72
    """
    return largest_root(problem.L_prime, 6 * staleness(problem, plan) ** 2)


def held_bound(problem: Problem, plan: Plan, steps: int, step_size: float | None = None) -> Bound:
    """``4 gap / (a T) + 15 sum v_l min(1, a L' p_l)``, by default at the largest step size it admits.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> small, large = (held_bound(problem, problem.plan(1000), 6400, a).noise for a in (0.001, 0.1))
    >>> round(large / small, 1)
    32.9
    """
    check_plan("held_bound", problem, plan)
    steps = integer("held_bound: steps", steps, minimum=1)
    if any(steps % period for period in plan.periods):
        raise ValueError(f"held_bound: steps must be a multiple of every period, {plan.periods}, got {steps}.")
    step_size = admitted("held_bound", held_step_size(problem, plan), step_size)
    levels = zip(delayed_model(problem, plan).variances, plan.periods, strict=True)
    noise = sum(variance * min(1.0, step_size * problem.L_prime * period) for variance, period in levels)
    return Bound(4 * problem.gap / (step_size * steps), 15 * noise)
