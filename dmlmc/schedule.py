"""Who computes when, and what it costs: refresh periods, work, span and variance. No JAX here.

Work and span are counted in level-0 units: one path at level 0 has work 1 and span 1, one path at level l
has work and span ``2^(c l)``, unless measured costs are given. A coupled pair also simulates the coarse path, so its
work is that of both, 1.5 fine paths at c = 1. Both paths advance together, so its span is that of the fine path alone.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from dmlmc._internal import checks
from dmlmc.rates import Rates

NAIVE, MLMC, DELAYED = METHODS = ("naive", "MLMC", "delayed MLMC")  # their names in records, tables and figures
RANDOMISED, STREAMING = "randomised MLMC", "streaming MLMC"
HELD, PAPER = ALLOCATIONS = ("held", "paper")


def level_cost(level: int, c: float) -> float:
    """Work and span of one uncoupled path: ``2^(c level)``.

    >>> level_cost(6, 1.0)
    64.0
    """
    return checks.power_of_two(f"level_cost: level = {level} and c = {c:g}", c * level)


def pair_costs(costs: Sequence[float], fine_paths: int = 1) -> tuple[float, ...]:
    """Work of one sample of D_l for every level, from the costs of a path: one path at level 0, two above.

    An antithetic pair has two fine paths beside the coarse one.

    >>> pair_costs([1.0, 2.0, 4.0]), pair_costs([1.0, 2.0, 4.0], fine_paths=2)
    ((1.0, 3.0, 6.0), (1.0, 5.0, 10.0))
    """
    return costs[0], *(fine_paths * fine + coarse for coarse, fine in itertools.pairwise(costs))


@dataclass(frozen=True)
class Plan:
    """How many samples each level gets and how rarely it is refreshed. Usually made by ``dmlmc.plan``.

    - ``rates``; ``samples``: N_l, one int per level.
    - ``periods``: steps between two refreshes, one int per level. Level l is due at step t when t is a multiple of
      ``periods[l]``, so all levels are due at t = 0 and, with period 1, level 0 is due at every step.
    - ``allocation``: "held" or "paper", which decides the MLMC plan of the same noise, see ``without_delay``.
    - ``variances``: V_l of one sample of grad D_l, by default ``2^(-b l)``, Assumption 2 with M = 1.
    - ``costs``: of one path of each level, by default ``2^(c l)``; in units of level 0.
    - ``fine_paths``: how many a coupled pair has, 2 for an antithetic one. Estimators take it from the loss.

    >>> from dmlmc import plan
    >>> held = plan(Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=512)
    >>> held.samples
    (512, 390, 296, 224, 176, 128, 128)
    >>> held.periods
    (1, 2, 4, 8, 16, 32, 64)
    >>> held.due_levels(4), held.last_refresh(3, 13), held.span(4)
    ((0, 1, 2), 8, 4.0)
    >>> held.mean_span(), held.without_delay().mean_span()
    (4.0, 64.0)
    """

    rates: Rates
    samples: tuple[int, ...]
    periods: tuple[int, ...]
    allocation: str = HELD
    variances: tuple[float, ...] = field(default=(), repr=False)
    costs: tuple[float, ...] = field(default=(), repr=False)
    fine_paths: int = field(default=1, repr=False)

    def __post_init__(self):
        checks.instance("Plan: rates", self.rates, Rates)
        object.__setattr__(self, "samples", checks.positive_integers("Plan: samples", self.samples))
        periods = checks.positive_integers("Plan: periods", self.periods, length=len(self.samples))
        object.__setattr__(self, "periods", periods)
        fine_paths = checks.integer("Plan: fine_paths", self.fine_paths, minimum=1)
        object.__setattr__(self, "fine_paths", fine_paths)
        checks.one_of("Plan: allocation", self.allocation, ALLOCATIONS)
        levels, b, c = range(len(self.samples)), self.rates.b, self.rates.c
        checks.power_of_two(f"Plan: max_level = {self.max_level} and c = {c:g}", c * self.max_level)
        defaults = {"variances": [2.0 ** (-b * level) for level in levels], "costs": [level_cost(l, c) for l in levels]}
        for name, default in defaults.items():
            given = getattr(self, name)
            values = checks.positive_reals(f"Plan: {name}", given, length=len(levels)) if len(given) else default
            object.__setattr__(self, name, tuple(float(value) for value in values))
        object.__setattr__(self, "costs", tuple(cost / self.costs[0] for cost in self.costs))

    @property
    def max_level(self) -> int:
        """The finest level, the paper's l_max."""
        return len(self.samples) - 1

    def without_delay(self) -> "Plan":
        """The plan of MLMC with the same noise: every period 1, and ``N_l / p_l`` samples of a held plan, rounded up.

        Over many steps a held plan has the noise of these: its ``long_run_variance`` is their ``variance``, and its
        mean work theirs, wherever p_l divides N_l. A plan of the paper's allocation keeps its N_l, and with them the
        variance of one step.

        >>> from dmlmc import plan
        >>> plan(Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=512).without_delay().samples
        (512, 195, 74, 28, 11, 4, 2)
        """
        divisors = self.periods if self.allocation == HELD else (1,) * len(self.periods)
        samples = tuple(-(-n // divisor) for n, divisor in zip(self.samples, divisors, strict=True))
        return replace(self, samples=samples, periods=(1,) * len(self.periods))

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
        total = sum(_due(steps, p) * (n * pair) for n, p, pair in self._levels(pair_costs(self.costs, self.fine_paths)))
        return total if steps.ndim else float(total)

    def span(self, step):
        """Span of one step (a float), or of each of an array of steps: that of the highest level due."""
        steps = checks.step_or_steps("Plan.span: step", step)
        highest = np.max([_due(steps, p) * cost for _, p, cost in self._levels(self.costs)], axis=0)
        return highest if steps.ndim else float(highest)

    def cumulative_work(self, steps: int) -> np.ndarray:
        """Work spent after 0, 1, ..., ``steps`` steps (``steps + 1`` entries, the first is 0)."""
        return cumulative(self.work, steps)

    def cumulative_span(self, steps: int) -> np.ndarray:
        """Span spent after 0, 1, ..., ``steps`` steps (``steps + 1`` entries, the first is 0)."""
        return cumulative(self.span, steps)

    def mean_work(self) -> float:
        """Work per step averaged over a whole cycle (the least common multiple of the periods)."""
        return sum(n * pair / p for n, p, pair in self._levels(pair_costs(self.costs, self.fine_paths)))

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
            mean += self.costs[level] * float(density - density_above)
            density_above = density
        return mean

    def variance(self, variances: Sequence[float] | None = None) -> float:
        """Variance of one gradient, ``sum V_l / N_l``; V_l defaults to the plan's."""
        return float(np.sum(self._variances("Plan.variance", variances) / np.asarray(self.samples)))

    def long_run_variance(self, variances: Sequence[float] | None = None) -> float:
        """What SGD feels of the noise over many small steps, ``sum p_l V_l / N_l``.

        Level l is held for p_l steps, and its noise with it, so in an average over many steps it counts p_l times.
        Without delay this is ``variance``. V_l defaults to the plan's.

        >>> from dmlmc import plan
        >>> plans = [plan(Rates(b=1.8, c=1.0, d=1.0), 6, level0_samples=512, allocation=kind) for kind in ALLOCATIONS]
        >>> [round(one.long_run_variance() / one.without_delay().variance(), 1) for one in plans]
        [1.0, 8.8]
        """
        values = self._variances("Plan.long_run_variance", variances)
        return float(np.sum(values * np.asarray(self.periods, dtype=float) / np.asarray(self.samples)))

    def naive_samples(self, variances: Sequence[float] | None = None, naive_variance: float | None = None) -> int:
        """The naive batch with the noise of this plan, rounded up: its long-run variance (the paper's: its variance).

        ``naive_variance`` is that of one path at the finest level. By default it is taken equal to V_0: then
        the paper's plan is matched by 148 paths. That is a model, which measured variances can contradict.

        >>> from dmlmc import plan
        >>> plan(Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=512).naive_samples()
        148
        """
        noise = self.long_run_variance(variances) if self.allocation == HELD else self.variance(variances)
        given = self._variances("Plan.naive_samples", variances)[0] if naive_variance is None else naive_variance
        return round_up(checks.positive("Plan.naive_samples: naive_variance", given) / noise)

    def _variances(self, name: str, given: Sequence[float] | None) -> np.ndarray:
        if given is None:
            return np.asarray(self.variances)
        return checks.positive_reals(f"{name}: variances", given, length=len(self.samples))

    def _levels(self, costs: Sequence[float]):
        return zip(self.samples, self.periods, costs, strict=True)


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
