"""The optimal number of samples per level for measured variances and costs."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmlmc._internal.checks import positive, positive_reals


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
    v = positive_reals("optimal_allocation: variances", variances)
    k = positive_reals("optimal_allocation: costs", costs, length=len(v))
    if (total_cost is None) == (target_variance is None):
        raise ValueError(
            "optimal_allocation: give exactly one of total_cost and target_variance, "
            f"got total_cost={total_cost!r} and target_variance={target_variance!r}."
        )
    product = float(np.sum(np.sqrt(v * k))) ** 2
    if total_cost is not None:
        cost = positive("optimal_allocation: total_cost", total_cost)
    else:
        cost = product / positive("optimal_allocation: target_variance", target_variance)
    samples = np.sqrt(v / k) / math.sqrt(product) * cost
    return Allocation(samples, cost, product / cost)
