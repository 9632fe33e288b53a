"""How many samples each level gets, and how often it is refreshed: from rates to a plan. No JAX here."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmlmc._internal import checks
from dmlmc.rates import Rates
from dmlmc.schedule import Plan, round_down, round_up


def plan(
    rates: Rates,
    max_level: int,
    *,
    samples: float | Sequence[int] | None = None,
    level0_samples: int | None = None,
    periods: Sequence[int] | None = None,
) -> Plan:
    """Allocate samples and refresh periods to the levels 0, ..., ``max_level`` by ``rates``. Give exactly one of

    - ``samples`` as a number: the paper's effective batch size N, shared out as
      ``N_l = ceil(N w_l / sum w)`` with ``w_l = 2^(-(b + c) l / 2)``;
    - ``samples`` as a sequence: N_l itself, one int per level;
    - ``level0_samples``: the count at level 0, ``N_l = ceil(level0_samples w_l)``; 512 in the code of the
      paper's author.

    ``periods`` defaults to the paper's ``floor(2^(d l))``; an explicit sequence overrides it.

    >>> plan(Rates(b=1.8, c=1.0, d=1.5), max_level=3, samples=100).periods
    (1, 2, 8, 22)
    >>> plan(Rates(b=1.8, c=1.0, d=1.0), max_level=2, samples=[40, 9, 2], periods=[1, 3, 5])
    Plan(rates=Rates(b=1.8, c=1.0, d=1.0), samples=(40, 9, 2), periods=(1, 3, 5))
    """
    checks.instance("plan: rates", rates, Rates)
    max_level = checks.integer("plan: max_level", max_level, minimum=0)
    if (samples is None) == (level0_samples is None):
        given = f"samples={samples!r} and level0_samples={level0_samples!r}"
        raise ValueError(f"plan: give exactly one of samples (N, or N_l per level) and level0_samples, got {given}.")
    weights = [2.0 ** (-(rates.b + rates.c) * level / 2) for level in range(max_level + 1)]
    if level0_samples is not None:
        level0_samples = checks.integer("plan: level0_samples", level0_samples, minimum=1)
        counts = tuple(round_up(level0_samples * weight) for weight in weights)
    elif not np.iterable(samples):
        effective = checks.positive("plan: samples", samples)
        counts = tuple(round_up(effective * weight / sum(weights)) for weight in weights)
    else:
        counts = checks.positive_integers("plan: samples", samples, length=max_level + 1)
    if periods is None:
        top = f"plan: max_level = {max_level} and d = {rates.d:g}"
        exact = (checks.power_of_two(top, rates.d * level) for level in range(max_level + 1))
        periods = [round_down(value) for value in exact]
    return Plan(rates, counts, checks.positive_integers("plan: periods", periods, length=max_level + 1))


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
