"""How many samples each level gets, and how often it is refreshed: from rates to a plan. No JAX here."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmlmc._internal import checks
from dmlmc.rates import Rates
from dmlmc.schedule import ALLOCATIONS, HELD, Plan, pair_costs, round_down, round_up


def plan(
    rates: Rates,
    max_level: int,
    *,
    samples: float | Sequence[int] | None = None,
    level0_samples: int | None = None,
    periods: Sequence[int] | None = None,
    allocation: str = HELD,
    variances: Sequence[float] | None = None,
    costs: Sequence[float] | None = None,
    fine_paths: int = 1,
) -> Plan:
    """Allocate samples and refresh periods to the levels 0, ..., ``max_level`` by ``rates``. Give exactly one of

    - ``samples`` as a number: the paper's effective batch size N, shared out as ``M_l = N w_l / sum w`` with
      ``w_l = 2^(-(b + c) l / 2)``;
    - ``samples`` as a sequence: N_l itself, one int per level;
    - ``level0_samples``: ``M_l = level0_samples w_l``; 512 in the code of the paper's author.

    M_l is what MLMC would compute at every step. ``allocation`` says what delayed MLMC computes at a refresh:

    - "held", the default: ``N_l = p_l ceil(M_l)``, or ``ceil(p_l M_l)`` where M_l is below 1. A gradient that is held
      for p_l steps holds its noise, which then counts p_l times. These counts make up for it: the noise over many steps
      and the mean work are those of MLMC, see ``Plan.long_run_variance``.
    - "paper": ``N_l = ceil(M_l)``, as published. This is less work, and the noise of one step is that of MLMC, but over
      many steps it is larger.

    ``periods`` defaults to ``2^floor(d l)``, powers of two that nest: when a level is due, so are all below it, and the
    mean span is least. The paper's periods are ``floor(2^(d l))``, which is the same for an integer d, and
    ``allocation="paper"`` takes them.

    ``variances`` and ``costs`` are V_l of one sample and the cost of one path, as measured:
    ``report.table.variance`` and ``report.table.steps`` of ``dmlmc.calibrate``. Then ``w_l`` is ``sqrt(V_l / C_l)``,
    with C_l the cost of a pair. If they have fewer levels than the plan, the rates b and c continue them.
    ``fine_paths`` is that of the loss: 2 for an ``SDELoss`` with ``antithetic=True``, whose pairs cost more.

    >>> plan(Rates(b=1.8, c=1.0, d=1.0), max_level=3, level0_samples=100).samples
    (100, 76, 60, 48)
    >>> plan(Rates(b=1.8, c=1.0, d=1.5), max_level=3, samples=100, allocation="paper").periods
    (1, 2, 8, 22)
    >>> plan(Rates(b=1.8, c=1.0, d=1.0), max_level=2, samples=[40, 9, 2], periods=[1, 3, 5])
    Plan(rates=Rates(b=1.8, c=1.0, d=1.0), samples=(40, 9, 2), periods=(1, 3, 5), allocation='held')
    >>> plan(Rates(b=1.8, c=1.0, d=1.0), max_level=2, level0_samples=100, variances=[1.0, 0.08]).samples
    (100, 34, 28)
    """
    checks.instance("plan: rates", rates, Rates)
    max_level = checks.integer("plan: max_level", max_level, minimum=0)
    checks.one_of("plan: allocation", allocation, ALLOCATIONS)
    fine_paths = checks.integer("plan: fine_paths", fine_paths, minimum=1)
    if (samples is None) == (level0_samples is None):
        given = f"samples={samples!r} and level0_samples={level0_samples!r}"
        raise ValueError(f"plan: give exactly one of samples (N, or N_l per level) and level0_samples, got {given}.")
    every = _periods(rates, max_level, allocation) if periods is None else periods
    every = checks.positive_integers("plan: periods", every, length=max_level + 1)
    checks.power_of_two(f"plan: max_level = {max_level} and c = {rates.c:g}", rates.c * max_level)
    v = _continued("plan: variances", variances, max_level, -rates.b)
    path_costs = _continued("plan: costs", costs, max_level, rates.c)
    if variances is None and costs is None:
        weights = [2.0 ** (-(rates.b + rates.c) * level / 2) for level in range(max_level + 1)]
    else:
        weights = [math.sqrt(one / cost) for one, cost in zip(v, pair_costs(path_costs, fine_paths), strict=True)]
    if level0_samples is not None:
        scale = checks.integer("plan: level0_samples", level0_samples, minimum=1) / weights[0]
    elif not np.iterable(samples):
        scale = checks.positive("plan: samples", samples) / sum(weights)
    else:
        counts = checks.positive_integers("plan: samples", samples, length=max_level + 1)
        return Plan(rates, counts, every, allocation, v, path_costs, fine_paths)
    pairs = zip(weights, every, strict=True)
    counts = tuple(_count(scale * weight, period if allocation == HELD else 1) for weight, period in pairs)
    return Plan(rates, counts, every, allocation, v, path_costs, fine_paths)


def _periods(rates: Rates, max_level: int, allocation: str) -> list[int]:
    top = f"plan: max_level = {max_level} and d = {rates.d:g}"
    exact = [checks.power_of_two(top, rates.d * level) for level in range(max_level + 1)]
    if allocation == HELD:
        return [2 ** round_down(rates.d * level) for level in range(max_level + 1)]
    return [round_down(value) for value in exact]


def _count(per_step: float, period: int) -> int:
    """Samples at a refresh, for a number per step. If that is at least 1, MLMC's count times the period."""
    return period * round_up(per_step) if per_step >= 1 else round_up(period * per_step)


def _continued(name: str, given: Sequence[float] | None, max_level: int, rate: float) -> tuple[float, ...]:
    """One number per level: those given, then powers of two from the last one on."""
    known = [1.0] if given is None else checks.positive_reals(name, given).tolist()
    if len(known) > max_level + 1:
        raise ValueError(f"{name} needs at most {max_level + 1} numbers, one per level, got {given!r}.")
    further = range(1, max_level + 2 - len(known))
    tiny = np.finfo(float).tiny  # a variance may underflow
    return (*known, *(max(known[-1] * 2.0 ** (rate * level), tiny) for level in further))


class Allocation(NamedTuple):
    """Real-valued optimal sample counts, with the total cost and the variance they give. Round ``samples`` up.

    >>> found = optimal_allocation([4.0, 1.0], [1.0, 4.0], target_variance=0.3)
    >>> np.ceil(found.samples).astype(int).tolist(), round(found.cost, 1), round(found.variance, 3)
    ([27, 7], 53.3, 0.3)
    """

    samples: np.ndarray
    cost: float
    variance: float


def optimal_allocation(
    variances: Sequence[float],
    costs: Sequence[float],
    *,
    total_cost: float | None = None,
    target_variance: float | None = None,
) -> Allocation:
    """The sample counts of least variance for a total cost, or of least cost for a variance.

    For any per-sample variances V_l and costs C_l the optimum is ``N_l`` proportional to ``sqrt(V_l / C_l)``,
    and ``variance * cost = (sum sqrt(V_l C_l))^2`` (the paper's Appendix A).

    - ``variances``, ``costs``: V_l and C_l, one positive number per level.
    - ``total_cost`` or ``target_variance``: what is given; exactly one of them.

    >>> optimal_allocation([4.0, 1.0], [1.0, 4.0], total_cost=80.0)
    Allocation(samples=array([40., 10.]), cost=80.0, variance=0.2)
    """
    v = checks.positive_reals("optimal_allocation: variances", variances)
    k = checks.positive_reals("optimal_allocation: costs", costs, length=len(v))
    if (total_cost is None) == (target_variance is None):
        raise ValueError(
            "optimal_allocation: give exactly one of total_cost and target_variance, "
            f"got total_cost={total_cost!r} and target_variance={target_variance!r}."
        )
    product = float(np.sum(np.sqrt(v * k))) ** 2
    if total_cost is not None:
        cost = checks.positive("optimal_allocation: total_cost", total_cost)
    else:
        cost = product / checks.positive("optimal_allocation: target_variance", target_variance)
    samples = np.sqrt(v / k) / math.sqrt(product) * cost
    return Allocation(samples, cost, product / cost)
