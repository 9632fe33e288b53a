"""Plain and antithetic coupling side by side: methods with the same noise, and what each needs to reach a loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dmlmc.allocation import optimal_allocation, plan
from dmlmc.calibration.checklist import CheckList
from dmlmc.estimators import GradientEstimator, delayed_mlmc, mlmc, naive
from dmlmc.experiments.tuned import COSTS, RUN, best_losses, common_target, least_costs, ratios_to_mlmc
from dmlmc.losses import MultilevelLoss
from dmlmc.schedule import DELAYED, MLMC, Plan, pair_costs

MLMC_ANTITHETIC, DELAYED_ANTITHETIC = f"{MLMC}, antithetic", f"{DELAYED}, antithetic"


def planned(report: CheckList, max_level: int, level0_samples: int, *, fine_paths: int) -> Plan:
    """The held plan of a coupling from its measured variances, continued by its rates if there are more levels."""
    table = report.table[: max_level + 1]
    measured: dict[str, Any] = {"variances": table.variance.tolist(), "costs": table.steps.tolist()}
    rates = report.fitted.rates()
    return plan(rates, max_level, level0_samples=level0_samples, fine_paths=fine_paths, **measured)


def plans_of_equal_noise(
    plain: CheckList, antithetic: CheckList, max_level: int, level0_samples: int
) -> tuple[Plan, Plan]:
    """A plan for each coupling. ``level0_samples`` is that of the antithetic plan; the plain one has its noise."""
    wanted = planned(antithetic, max_level, level0_samples, fine_paths=2)
    noise = planned(plain, max_level, level0_samples, fine_paths=1).long_run_variance() / wanted.long_run_variance()
    return planned(plain, max_level, max(round(level0_samples * noise), 1), fine_paths=1), wanted


def gains_in_work(
    plain: CheckList, antithetic: CheckList, naive_variance: float, levels: Sequence[int]
) -> pd.DataFrame:
    """By finest level: the naive work over that of MLMC at equal noise, with counts that need not be whole numbers."""
    rows = {}
    for top in levels:
        row = {}
        for name, report, fine_paths in (("plain", plain, 1), ("antithetic", antithetic, 2)):
            follows = planned(report, top, 1, fine_paths=fine_paths)
            costs = pair_costs(follows.costs, fine_paths)
            mlmc_work = optimal_allocation(follows.variances, costs, target_variance=1.0).cost
            row[name] = naive_variance * follows.costs[-1] / mlmc_work
        rows[top] = row
    return pd.DataFrame(rows).T.rename_axis("l_max")


def methods(
    losses: tuple[MultilevelLoss, MultilevelLoss], plans: tuple[Plan, Plan], naive_variance: float
) -> list[GradientEstimator]:
    """Naive, MLMC and delayed MLMC, with the plain and the antithetic loss, by their plans.

    ``naive_variance`` is that of one path at the finest level.
    """
    (plain, antithetic), (of_plain, of_antithetic) = losses, plans
    batch = of_antithetic.naive_samples(naive_variance=naive_variance)
    return [
        naive(plain, of_plain.max_level, batch),
        mlmc(plain, of_plain),
        mlmc(antithetic, of_antithetic)._replace(method=MLMC_ANTITHETIC),
        delayed_mlmc(plain, of_plain),
        delayed_mlmc(antithetic, of_antithetic)._replace(method=DELAYED_ANTITHETIC),
    ]


def rates_table(reports: Mapping[str, CheckList]) -> pd.DataFrame:
    """By coupling: b and d with intervals, b from each level to the next, whether MLMC is worth it, delay possible."""
    rows = {}
    for name, report in reports.items():
        answers = [line.partition("?")[2].partition(";")[0].strip() for line in report.verdict()[:2]]
        falls = -np.diff(np.log2(report.table.variance.to_numpy()[1:]))
        row = {"b": str(report.fitted.b), "level to level": ", ".join(f"{fall:.1f}" for fall in falls)}
        row["d"] = str(report.fitted.d)
        rows[name] = row | {"MLMC worth it?": answers[0], "delay possible?": answers[1]}
    return pd.DataFrame(rows).T


def excess_rate(plain: CheckList, antithetic: CheckList) -> float:
    """The rate at which the variance that the antithetic twin removes falls, from level 1 to the finest one.

    With fine losses F and F' of twins, exchangeable given the coarse path, ``F = (F + F') / 2 + (F - F') / 2`` and the
    two parts are uncorrelated. So plain minus antithetic variance is that of the second: the missing Levy areas.
    """
    excess = plain.table.variance.to_numpy()[1:] - antithetic.table.variance.to_numpy()[1:]
    return float(np.log2(excess[0] / excess[-1]) / (len(excess) - 1))


def ratios(record: pd.DataFrame) -> dict[str, Any]:
    """The loss that all methods reach for good, and MLMC's work and span over those of each, at its best rate."""
    target = common_target(record)
    found: dict[str, Any] = {cost: ratios_to_mlmc(record, target, cost) for cost in COSTS}
    return {"loss": target, **found}


def best_rates(record: pd.DataFrame, target: float, cost: str) -> dict[str, float]:
    """By method: the learning rate at which it reaches a loss for good with the least cost, or else ends best."""
    last = record.groupby(RUN, sort=False).loss.last().reset_index()
    ends_best = best_losses(last).learning_rate.to_dict()
    return ends_best | least_costs(record, target, cost).attrs["learning_rate"]


def ratios_table(record: pd.DataFrame, found: Mapping[str, Any]) -> pd.DataFrame:
    """``ratios`` as a table: for each cost the best rate, MLMC's cost over the method's, and the pairs of seeds."""
    table: dict[str, dict[str, Any]] = {method: {} for method in record.method.unique()}
    for cost in COSTS:
        best = best_rates(record, found["loss"], cost)
        for method, row in table.items():
            one = found[cost].get(method)
            row[f"best rate, {cost}"] = f"{best[method]:g}"
            shown = "not reached" if one is None else "{mean:.2g} [{low:.2g}, {high:.2g}]".format(**one)
            row[f"MLMC's {cost} / its {cost}"] = shown
            row[f"pairs, {cost}"] = 0 if one is None else one["pairs"]
    return pd.DataFrame(table).T
