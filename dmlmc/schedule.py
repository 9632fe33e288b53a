"""Who computes when, and what it costs: refresh periods, work, span and variance. No JAX here.

Work and span are counted in level-0 units: one path at level 0 has work 1 and span 1, one path at level l
has work and span ``2^(c l)``. A coupled pair also simulates the coarse path, so its work is ``1 + 2^(-c)`` fine
paths (1.5 at c = 1). Both paths advance together, so its span is that of the fine path alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dmlmc._internal import checks
from dmlmc.rates import Rates

NAIVE, MLMC, DELAYED = METHODS = ("naive", "MLMC", "delayed MLMC")  # their names in records, tables and figures


def level_cost(level: int, c: float) -> float:
    """Work and span of one uncoupled path: ``2^(c level)``.

    >>> level_cost(6, 1.0)
    64.0
    """
    return checks.power_of_two(f"level_cost: level = {level} and c = {c:g}", c * level)


def pair_cost(level: int, c: float) -> float:
    """Work of one sample of the coupled difference D_l: one path at level 0, a fine and a coarse one above.

    >>> [pair_cost(level, 1.0) for level in (0, 1, 2)]
    [1.0, 3.0, 6.0]
    """
    return level_cost(level, c) + (level_cost(level - 1, c) if level > 0 else 0.0)


@dataclass(frozen=True)
class Plan:
    """How many samples each level gets and how rarely it is refreshed. Usually made by ``dmlmc.plan``.

    Attributes: ``rates``, ``samples`` (N_l, one int per level), ``periods`` (steps between two refreshes, one
    int per level) and ``max_level``. Level l is due at step t when t is a multiple of ``periods[l]``, so all
    levels are due at t = 0 and, with the paper's periods, level 0 is due at every step.

    >>> from dmlmc import plan
    >>> paper = plan(Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=512)
    >>> paper.samples
    (512, 195, 74, 28, 11, 4, 2)
    >>> paper.periods
    (1, 2, 4, 8, 16, 32, 64)
    >>> paper.due_levels(4), paper.last_refresh(3, 13), paper.span(4)
    ((0, 1, 2), 8, 4.0)
    >>> paper.mean_span(), paper.without_delay().mean_span()
    (4.0, 64.0)
    """

    rates: Rates
    samples: tuple[int, ...]
    periods: tuple[int, ...]

    def __post_init__(self):
        checks.instance("Plan: rates", self.rates, Rates)
        object.__setattr__(self, "samples", checks.positive_integers("Plan: samples", self.samples))
        periods = checks.positive_integers("Plan: periods", self.periods, length=len(self.samples))
        object.__setattr__(self, "periods", periods)
        c, top = self.rates.c, self.max_level
        checks.power_of_two(f"Plan: max_level = {top} and c = {c:g}", c * top)

    @property
    def max_level(self) -> int:
        """The finest level, the paper's l_max."""
        return len(self.samples) - 1

    def without_delay(self) -> "Plan":
        """The same samples with every period 1: the plan of plain MLMC."""
        return Plan(self.rates, self.samples, (1,) * len(self.samples))

    def due_levels(self, step: int) -> tuple[int, ...]:
        """The levels refreshed at a step, coarsest first."""
        step = checks.integer("Plan.due_levels: step", step, minimum=0)
        return tuple(level for level, period in enumerate(self.periods) if step % period == 0)

    def last_refresh(self, level: int, step: int) -> int:
        """The paper's tau_l(t): the latest step, at most ``step``, at which ``level`` was refreshed."""
        level = checks.integer("Plan.last_refresh: level", level, minimum=0, maximum=self.max_level)
        step = checks.integer("Plan.last_refresh: step", step, minimum=0)
        return step - step % self.periods[level]

    def work(self, step):
        """Work of one step (a float), or of each of an array of steps: that of all samples of all levels due."""
        steps = checks.step_or_steps("Plan.work: step", step)
        total = sum(_due(steps, p) * (n * pair_cost(l, self.rates.c)) for l, n, p in self._levels())
        return total if steps.ndim else float(total)

    def span(self, step):
        """Span of one step (a float), or of each of an array of steps: that of the highest level due."""
        steps = checks.step_or_steps("Plan.span: step", step)
        highest = np.max([_due(steps, p) * level_cost(l, self.rates.c) for l, _, p in self._levels()], axis=0)
        return highest if steps.ndim else float(highest)

    def cumulative_work(self, steps: int) -> np.ndarray:
        """Work spent after 0, 1, ..., ``steps`` steps (``steps + 1`` entries, the first is 0)."""
        return cumulative(self.work, steps)

    def cumulative_span(self, steps: int) -> np.ndarray:
        """Span spent after 0, 1, ..., ``steps`` steps (``steps + 1`` entries, the first is 0)."""
        return cumulative(self.span, steps)

    def mean_work(self) -> float:
        """Work per step averaged over a whole cycle (the least common multiple of the periods)."""
        return sum(n * pair_cost(l, self.rates.c) / p for l, n, p in self._levels())

    def mean_span(self) -> float:
        """Span per step averaged over a whole cycle. It is exact for periods that do not nest, too.

        Their cycle can be too long to enumerate. With U_l the share of steps at which some level >= l is due, level l
        is the highest one due in a share U_l - U_(l+1) of the steps.
        """
        # Inclusion and exclusion over the levels from the top: density = sum of coefficient / multiple.
        coefficients: dict[int, int] = {}
        mean, density_above = 0.0, Fraction(0)
        for level in reversed(range(len(self.periods))):
            period = self.periods[level]
            for multiple, coefficient in [(1, -1), *coefficients.items()]:
                joint = math.lcm(multiple, period)
                coefficients[joint] = coefficients.get(joint, 0) - coefficient
            coefficients = {m: k for m, k in coefficients.items() if k}
            density = sum((Fraction(k, m) for m, k in coefficients.items()), Fraction(0))
            mean += level_cost(level, self.rates.c) * float(density - density_above)
            density_above = density
        return mean

    def variance(self, variances: Sequence[float] | None = None) -> float:
        """Variance of the MLMC gradient, ``sum V_l / N_l``; V_l defaults to ``2^(-b l)``, Assumption 2 with M = 1."""
        return float(np.sum(self._variances("Plan.variance", variances) / np.asarray(self.samples)))

    def long_run_variance(self, variances: Sequence[float] | None = None) -> float:
        """What SGD feels of the noise over many small steps, ``sum p_l V_l / N_l``.

        Level l is held for p_l steps, and its noise with it, so in an average over many steps it counts p_l times.
        Without delay this is ``variance``. V_l defaults to ``2^(-b l)``.

        >>> from dmlmc import plan
        >>> paper = plan(Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=512)
        >>> round(paper.long_run_variance() / paper.variance(), 1)
        8.8
        """
        values = self._variances("Plan.long_run_variance", variances)
        return float(np.sum(values * np.asarray(self.periods, dtype=float) / np.asarray(self.samples)))

    def naive_samples(self, variances: Sequence[float] | None = None, naive_variance: float | None = None) -> int:
        """The naive batch whose gradient variance matches this plan's, rounded up.

        ``naive_variance`` is that of one path at the finest level. By default it is taken equal to V_0: then
        the paper's plan is matched by 148 paths. That is a model, which measured variances can contradict.

        >>> from dmlmc import plan
        >>> plan(Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=512).naive_samples()
        148
        """
        variance = self.variance(variances)
        given = (1.0 if variances is None else variances[0]) if naive_variance is None else naive_variance
        return round_up(checks.positive("Plan.naive_samples: naive_variance", given) / variance)

    def _variances(self, name: str, given: Sequence[float] | None) -> np.ndarray:
        if given is None:
            return 2.0 ** (-self.rates.b * np.arange(len(self.samples)))
        return checks.positive_reals(f"{name}: variances", given, length=len(self.samples))

    def _levels(self):
        return zip(range(len(self.samples)), self.samples, self.periods, strict=True)


def cumulative(per_step, steps: int) -> np.ndarray:
    """Running total of a per-step cost such as ``plan.span`` after 0, 1, ..., ``steps`` steps."""
    every = np.arange(checks.integer("cumulative: steps", steps, minimum=0))
    return np.concatenate([[0.0], np.cumsum(np.broadcast_to(per_step(every), every.shape))])


def _due(steps: np.ndarray, period: int) -> np.ndarray:
    return steps % min(period, 2**62) == 0  # NumPy cannot hold longer periods, and no run reaches them


def round_up(value: float) -> int:
    """A sample count: the integer at or above a value, at least 1. An integer off by a rounding error stays itself."""
    return max(1, math.ceil(_snapped(value)))


def round_down(value: float) -> int:
    """A period: the integer at or below a value. An integer off by a rounding error stays itself.

    >>> round_down(7.99), round_down(8 - 1e-13), round_down(2.0**40)
    (7, 8, 1099511627776)
    """
    return math.floor(_snapped(value))


def _snapped(value: float) -> float:
    nearest = round(value)
    return nearest if abs(value - nearest) <= 1e-12 * value else value
