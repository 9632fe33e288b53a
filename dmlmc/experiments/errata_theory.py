"""Errata of the paper's theorem and its proof: computations that return numbers, and whether they confirm the row.

A computation here can come out otherwise: if the formula were right as printed, ``confirmed`` would be False. If no
setting is given, it is the paper's: b = 1.8, c = d = 1, l_max = 6, with L = M = F(x_0) - inf F = 1.
"""

import math
from itertools import product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.integrate import quad

from dmlmc.losses import QuadraticLoss
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, NAIVE
from dmlmc.theory.quadratic import delayed_model, exact_moments, linear_model, stability_limit
from dmlmc.theory.theorem import Problem, largest_beta, lemma_constants, theorem_step_size

Numbers = dict[str, float]
RATES = Rates(b=1.8, c=1.0, d=1.0)


def setting(max_level: int = 6) -> Problem:
    """The paper's rates, and 1 for L, M and the gap."""
    return Problem(1.0, 1.0, RATES, max_level, 1.0)


def second_inequality() -> Numbers:
    """Exact averages over the second bound of the theorem without its constant, and the average with one level.

    The step size is 0.01 / T, which the theorem admits. If the second inequality held for all admitted step sizes, the
    ratio would stay bounded as T grows.
    """
    problem, samples, ratios, admitted = setting(), 1e9, {}, True
    for name, steps in (("short", 100), ("longer", 1000), ("longest", 10_000)):
        rate = (math.log(steps) / steps + problem.M / samples) * problem.max_level
        ratios[name] = _exact_average(problem, samples, 0.01 / steps, steps) / rate
        admitted = admitted and 0.01 / steps <= theorem_step_size(problem, DELAYED, steps)
    growing = ratios["longer"] > 3 * ratios["short"] and ratios["longest"] > 3 * ratios["longer"]
    single = _exact_average(setting(0), 1000, theorem_step_size(setting(0), DELAYED, 4000), 4000)
    return ratios | {"single": single, "confirmed": admitted and growing and single > 0}


def second_moment(samples: int = 20_000) -> Numbers:
    """Second moment and variance of sampled level-0 gradients of ``QuadraticLoss`` at |x| = 2, where M is 1."""
    loss, point = QuadraticLoss(4, 1.0, 1.0, RATES), jnp.ones(4)

    def gradient(key):
        return jax.grad(loss.difference)(point, loss.sample(key, 0), 0)

    drawn = np.asarray(jax.jit(jax.vmap(gradient))(jr.split(jr.key(0), samples)), dtype=float)
    moment, variance = np.mean(np.sum(drawn**2, axis=1)), np.sum(np.var(drawn, axis=0))
    return {"moment": moment, "variance": variance, "confirmed": moment > 2 * loss.M and variance < 1.1 * loss.M}


def sign_in_the_lemma(pairs: int = 1000) -> Numbers:
    """``|u|^2 - |v|^2`` for random u = E g and v = grad F, against plus and minus the printed inner product."""
    u, v = np.random.default_rng(0).normal(size=(2, pairs, 3))
    difference, inner = np.sum(u**2 - v**2, axis=1), np.sum((v + u) * (v - u), axis=1)
    plus, minus = np.max(np.abs(difference - inner)), np.max(np.abs(difference + inner))
    return {"plus": plus, "minus": minus, "confirmed": minus < 1e-12 < plus}


def missing_expectation(outcomes: int = 10_000) -> Numbers:
    """How often ``|grad F - E g|^2 <= |grad F - g|^2`` fails for one outcome of g, and whether it does in the mean.

    g is normal: its mean is off by 1, and its standard deviation is 1.
    """
    errors = 1.0 + np.random.default_rng(0).normal(size=outcomes)
    left, right = 1.0, errors**2
    share = np.mean(right < left)
    return {"share": share, "left": left, "right": right.mean(), "confirmed": share > 0 and right.mean() >= left}


def cauchy_schwarz(vectors: int = 10_000) -> Numbers:
    """How many random pairs of vectors violate the inequality as printed, with ``(sum u)^2``, and with ``sum u^2``."""
    u, v = np.random.default_rng(0).normal(size=(2, vectors, 3))
    left, squares = np.sum(u * v, axis=1) ** 2, np.sum(v**2, axis=1)
    printed = np.mean(left > np.sum(u, axis=1) ** 2 * squares * (1 + 1e-12))
    right = np.mean(left > np.sum(u**2, axis=1) * squares * (1 + 1e-12))
    return {"printed": printed, "right": right, "confirmed": right == 0 < printed}


def extended_sums(steps: int = 128) -> Numbers:
    """Both sides of two printed equalities: a sum that begins earlier, and a harmonic sum that becomes a logarithm."""
    periods = setting().plan(1.0).periods
    weights = [2.0 ** (-RATES.d * level) for level in range(len(periods))]
    both = [(weights, [t % p for p in periods], [min(t, p) for p in periods]) for t in range(steps)]
    left, right = ([float(np.dot(w, terms[side])) for w, *terms in both] for side in (0, 1))
    unequal = sum(a < b for a, b in zip(left, right, strict=True))
    never_above = all(a <= b for a, b in zip(left, right, strict=True))
    harmonic, logarithm = sum(1 / k for k in range(1, 10)), math.log(2 * 10 + 1)
    found = {"left": left[64], "right": right[64], "unequal": unequal, "steps": steps}
    confirmed = never_above and unequal > 0 and harmonic < logarithm
    return found | {"harmonic": harmonic, "logarithm": logarithm, "confirmed": confirmed}


def two_forms_of_k2(steps: int = 10) -> Numbers:
    """Both printed forms of K2 for one level, at the lemma's largest beta and at a hundredth of it."""
    largest = largest_beta(setting(0), steps, factor=4)
    found: Numbers = {}
    for name, beta in (("", largest), ("_small", largest / 100)):
        C1, C2, _, K2 = lemma_constants(setting(0), beta, steps)
        found |= {f"first{name}": K2, f"second{name}": C1 / (1 - C2 * math.log(2 * steps - 1))}
    shrinks = found["first_small"] < found["first"] / 50 and found["second_small"] > found["second"] / 2
    return found | {"confirmed": shrinks}


def remark_on_k2(steps: int = 10) -> Numbers:
    """K2 / C2 for one level, which the remark bounds by 2, at the largest beta of the lemma and of the theorem.

    ``used`` is K2 over the bound that the theorem takes from the remark. ``induction`` is ``C2 (1 + 2 K2 log(2T - 1))``
    over K2, with the denominator of the remark in K2: the induction needs at most 1.
    """
    problem, log = setting(0), math.log(2 * steps - 1)
    beta, small = (largest_beta(problem, steps, factor=factor) for factor in (4.0, 12.0))
    _, C2, _, K2 = lemma_constants(problem, beta, steps)
    theorem = lemma_constants(problem, small, steps)
    remark = C2 / (1 - C2 * log)
    found = {"lemma": K2 / C2, "theorem": theorem.K2 / theorem.C2, "used": K2 / (4 * beta * problem.smoothness_sum)}
    found["induction"] = C2 * (1 + 2 * remark * log) / remark
    confirmed = found["lemma"] > 2 >= found["theorem"] and found["used"] <= 1 < found["induction"]
    return found | {"confirmed": confirmed}


def end_of_the_integral(steps: int = 10) -> Numbers:
    """The sum over t = 1, ..., T - 1 of the integrals of 1/x from t - 1/2 to t + 1/2, by quadrature, and as printed."""
    integral = sum(quad(lambda x: 1 / x, t - 0.5, t + 0.5)[0] for t in range(1, steps))
    right, printed = math.log(2 * steps - 1), math.log(2 * steps + 1)
    confirmed = abs(integral - right) < 1e-9 < abs(integral - printed)
    return {"integral": integral, "right": right, "printed": printed, "confirmed": confirmed}


def stable_over_admitted(steps: int = 4000) -> Numbers:
    """The largest stable step size on the quadratic loss, and the theorem's."""
    problem = setting()
    stable = stability_limit(delayed_model(problem, problem.plan(1000)), points=60)
    admitted = theorem_step_size(problem, DELAYED, steps)
    found = {"stable": stable, "admitted": admitted, "ratio": stable / admitted}
    return found | {"confirmed": stable > 100 * admitted}


def first_member_of_the_minimum() -> Numbers:
    """The least ``(1 / (8 L')) / (beta / L)`` at the largest beta, over many problems and numbers of steps."""
    ratios = [problem.L / (8 * problem.L_prime * largest_beta(problem, steps)) for problem, steps in _many_problems()]
    return {"least": min(ratios), "cases": len(ratios), "confirmed": min(ratios) > 1}


def naive_variance() -> Numbers:
    """The printed bound on the naive variance at N = 1 and that of Minkowski's inequality, for more and more levels."""
    found: Numbers = {}
    for name, level in (("six", 6), ("twelve", 12), ("many", 24)):
        found |= {name: setting(level).printed_naive_variance(1), f"{name}_ours": setting(level).variance(NAIVE, 1)}
    confirmed = found["many"] > 1.5 * found["twelve"] and found["many_ours"] < 1.01 * found["twelve_ours"]
    return found | {"confirmed": confirmed}


def largest_beta_of_all() -> Numbers:
    """The largest beta that the lemma admits, over many problems and every T from 1 on."""
    betas = [largest_beta(problem, steps, factor=4) for problem, steps in _many_problems()]
    return {"largest": max(betas), "cases": len(betas), "confirmed": max(betas) <= 0.5}


def _exact_average(problem: Problem, samples: float, step_size: float, steps: int) -> float:
    """The exact average of ``|grad F|^2`` over a run of delayed MLMC on the quadratic loss."""
    return float(exact_moments(linear_model(problem, DELAYED, samples), problem.gap, step_size, steps)[0].mean())


def _many_problems() -> list[tuple[Problem, int]]:
    """Problems with few and many levels and small and large d, each with few and many steps."""
    cases = product(range(13), (0.25, 0.5, 1.0, 2.0, 50.0), (1, 2, 3, 10, 100, 10_000))
    return [(Problem(1.0, 1.0, Rates(1.8, 1.0, d), level, 1.0), steps) for level, d, steps in cases]
