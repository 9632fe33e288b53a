"""The paper's theorem in numbers: admissible step sizes, the constants of the lemmas, the bounds. No JAX.

A bound limits the mean of ``E|grad F(x_t)|^2`` over t = 0, ..., T - 1. Lemmas and theorems have the names of the paper.
Constants that are wrong in print are corrected here, and the docstring says so.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from dmlmc._internal.checks import integer, one_of, positive
from dmlmc.allocation import plan
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, METHODS, NAIVE, PAPER, Plan


@dataclass(frozen=True)
class Problem:
    """The constants of a loss that the theorem uses: L, M, the rates, the finest level, and ``gap = F(x_0) - inf F``.

    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> problem.L_prime, round(problem.variance("MLMC", samples=1000), 5)
    (2.0, 0.00569)
    """

    L: float
    M: float
    rates: Rates
    max_level: int
    gap: float

    def __post_init__(self):
        for name in ("L", "M", "gap"):
            object.__setattr__(self, name, positive(f"Problem: {name}", getattr(self, name)))
        if not isinstance(self.rates, Rates):
            raise TypeError(f"Problem: rates must be a dmlmc.Rates, got {self.rates!r}.")
        if self.rates.d == 0:
            raise ValueError("Problem: rates.d must be positive, or L' = L / (1 - 2^(-d)) is infinite, got d = 0.0.")
        object.__setattr__(self, "max_level", integer("Problem: max_level", self.max_level, minimum=0))

    @property
    def smoothness_sum(self) -> float:
        """The sum over all l >= 0 of ``2^(-d l)``: L' in units of L."""
        return 1 / (1 - 2.0**-self.rates.d)

    @property
    def L_prime(self) -> float:
        """L', a smoothness constant of F for every l_max."""
        return self.L * self.smoothness_sum

    def variance(self, method: str, samples: float) -> float:
        """The bound by Assumption 2 on the variance of a gradient of effective batch size N = ``samples``.

        It is M' for MLMC, delayed or not. For naive it is ``(M / N) (sum 2^(-b l / 2))^2``, by Minkowski's inequality.
        This stays bounded as l_max grows. The paper's ``(l_max + 1) (M / N) sum 2^(-b l)`` does not, and is never
        smaller.
        """
        samples = positive("Problem.variance: samples", samples)
        if check_method("Problem.variance", method) == NAIVE:
            return self.M / samples * self._powers(-self.rates.b / 2) ** 2
        b, c = self.rates.b, self.rates.c
        return self.M / samples * self._powers(-(b + c) / 2) * self._powers(-(b - c) / 2)

    def printed_naive_variance(self, samples: float) -> float:
        """The paper's bound on the naive variance, with its factor l_max + 1."""
        samples = positive("Problem.printed_naive_variance: samples", samples)
        return (self.max_level + 1) * self.M / samples * self._powers(-self.rates.b)

    def plan(self, samples: float) -> Plan:
        """The paper's plan for an effective batch size N."""
        return plan(self.rates, self.max_level, samples=samples, allocation=PAPER)

    def _powers(self, exponent: float) -> float:
        return sum(2.0 ** (exponent * level) for level in range(self.max_level + 1))


class Bound(NamedTuple):
    """A bound on the average squared gradient norm: a term from the start and a term from the noise."""

    start: float
    noise: float

    @property
    def total(self) -> float:
        """The bound itself."""
        return self.start + self.noise


class LemmaConstants(NamedTuple):
    """The lemma "Bounded Bias 2" at step t: ``E|grad F - g|^2 <= K1 M' + K2 sum E|grad F(x_s)|^2 / (t - s)``."""

    C1: float
    C2: float
    K1: float
    K2: float


def largest_beta(problem: Problem, steps: int, *, factor: float = 12.0) -> float:
    """The largest beta that the theorem (``factor=12``) or the lemma "Bounded Bias 2" (``factor=4``) admits.

    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> round(1 / largest_beta(problem, steps=4000))
    1510
    """
    steps = integer("largest_beta: steps", steps, minimum=1)
    factor = positive("largest_beta: factor", factor)
    return 1 / (factor * (problem.max_level + 1) * problem.smoothness_sum * math.log(2 * steps + 1))


def theorem_step_size(problem: Problem, method: str, steps: int) -> float:
    """The largest constant step size that the paper's theorem admits.

    It is ``1 / L'`` for naive and MLMC, ``min(1 / (8 L'), beta / L)`` for delayed MLMC. The first member of that
    minimum is never the smaller one: ``12 (l_max + 1) log(2 T + 1)`` is at least ``12 log 3 > 8``. Our bound admits
    ``staleness.safe_step_size``. A run on a quadratic loss is stable up to ``quadratic.stability_limit``.
    """
    if check_method("theorem_step_size", method) != DELAYED:
        return 1 / problem.L_prime
    return min(1 / (8 * problem.L_prime), largest_beta(problem, steps) / problem.L)


def lemma_constants(problem: Problem, beta: float, steps: int) -> LemmaConstants:
    """The constants of the lemma "Bounded Bias 2", with ``K2 = C2 / (1 - 2 C2 log(2 T - 1))``.

    The paper prints two forms of K2. They differ, and this is the first. ``beta`` may be any value that makes both
    denominators positive.

    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> constants = lemma_constants(problem, largest_beta(problem, 4000), 4000)
    >>> round(constants.K1, 2), round(constants.K2, 4)
    (7.65, 0.0111)
    """
    beta = positive("lemma_constants: beta", beta)
    steps = integer("lemma_constants: steps", steps, minimum=1)
    C1 = (2 * beta + 1) * (problem.max_level + 1)
    C2 = beta * C1 * problem.smoothness_sum
    left1, left2 = 1 - C2 * math.log(2 * steps + 1), 1 - 2 * C2 * math.log(2 * steps - 1)
    if min(left1, left2) <= 0:
        raise ValueError(
            f"lemma_constants: beta must leave 1 - 2 C2 log(2 T - 1) positive, got beta = {beta}; "
            f"the lemma admits {largest_beta(problem, steps, factor=4)}."
        )
    return LemmaConstants(C1, C2, C1 / left1, C2 / left2)


def bound(problem: Problem, method: str, samples: float, steps: int, step_size: float | None = None) -> Bound:
    """The bound after ``steps`` steps, by default at the largest step size a that the theorem admits.

    Naive and MLMC: Theorem "Stochastic Gradient Descent" divided by ``T a (1 - L' a / 2)``. Delayed MLMC:
    ``8 gap / (a T) + (24 l_max + 49 / 2) M'``.

    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> [f"{bound(problem, method, 10**6, 4000).total:.2g}" for method in METHODS]
    ['0.001', '0.001', '3']
    """
    steps = integer("bound: steps", steps, minimum=1)
    admissible = theorem_step_size(problem, method, steps)
    step_size = admissible if step_size is None else positive("bound: step_size", step_size)
    if step_size > admissible * (1 + 1e-12):
        raise ValueError(f"bound: step_size must be at most {admissible} for {method}, got {step_size}.")
    variance = problem.variance(method, samples)
    if method == DELAYED:
        return Bound(8 * problem.gap / (step_size * steps), (24 * problem.max_level + 24.5) * variance)
    share = step_size * (1 - problem.L_prime * step_size / 2)
    return Bound(problem.gap / (share * steps), problem.L_prime * step_size**2 / 2 * variance / share)


def check_method(name: str, method: str) -> str:
    """Return ``method`` if it is one of the paper's three methods, else raise ValueError."""
    return one_of(f"{name}: method", method, METHODS)
