"""Plain and antithetic coupling side by side: methods with the same noise, and what each needs to reach a loss."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Key, PyTree

from dmlmc.allocation import optimal_allocation, plan
from dmlmc.calibration.checklist import CheckList, calibrate
from dmlmc.calibration.interval import Interval
from dmlmc.estimators import GradientEstimator, delayed_mlmc, mlmc, naive
from dmlmc.experiments.tuned import COSTS, RUN, best_losses, common_target, least_costs, ratios_to_mlmc
from dmlmc.losses import MultilevelLoss
from dmlmc.schedule import DELAYED, MLMC, Plan, pair_costs

MLMC_ANTITHETIC, DELAYED_ANTITHETIC = f"{MLMC}, antithetic", f"{DELAYED}, antithetic"


def nearby(params: PyTree) -> PyTree:
    """All parameters times 1.01: a second point, for the smoothness."""
    return jax.tree.map(lambda leaf: leaf * 1.01 if eqx.is_inexact_array(leaf) else leaf, params)


def calibrated(
    groups: Sequence[Mapping[str, MultilevelLoss]],
    points: Mapping[str, PyTree],
    key: Key[Array, ""],
    budget: float,
    max_level: int,
) -> dict[str, dict[str, CheckList]]:
    """By point and loss: the check list of ``dmlmc.calibrate``.

    The losses of a group share compiled programs, so they take turns. Groups run at once, in a thread each.
    """

    def of_group(group: Mapping[str, MultilevelLoss]) -> dict[tuple[str, str], CheckList]:
        return {
            (point, name): calibrate(loss, params, key, budget, max_level=max_level, other=nearby(params))[1]
            for name, loss in group.items()
            for point, params in points.items()
        }

    found: dict[tuple[str, str], CheckList] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for reports in pool.map(of_group, groups):
            found |= reports
    return {point: {name: found[point, name] for group in groups for name in group} for point in points}


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


def variance_ratio(plain: CheckList, antithetic: CheckList) -> list[Interval]:
    """From level 1 on: the plain variance over the antithetic one.

    The interval takes their errors for independent. They share their noise, so it is too wide, if anything.
    """
    over, under = plain.table[1:], antithetic.table[1:]
    ratio = over.variance / under.variance
    errors = ((over.variance_error / over.variance) ** 2 + (under.variance_error / under.variance) ** 2) ** 0.5
    ends = zip(ratio, ratio * np.exp(-2 * errors), ratio * np.exp(2 * errors), strict=True)
    return [Interval(*map(float, one)) for one in ends]


def variance_ratios(reports: Mapping[str, Mapping[str, CheckList]]) -> pd.DataFrame:
    """``variance_ratio`` by level, as a table with a column per point."""
    columns = {}
    for point, found in reports.items():
        of_levels = enumerate(variance_ratio(found["plain"], found["antithetic"]), start=1)
        columns[point] = {level: "{:.2g} [{:.2g}, {:.2g}]".format(*one) for level, one in of_levels}
    return pd.DataFrame(columns).rename_axis("level")


def excess_rate(plain: CheckList, antithetic: CheckList) -> float:
    """The rate at which the variance that the antithetic twin removes falls, from level 1 to the finest one.

    With fine losses F and F' of twins, exchangeable given the coarse path, ``F = (F + F') / 2 + (F - F') / 2`` and the
    two parts are uncorrelated. So plain minus antithetic variance is that of the second: the missing Levy areas.
    """
    excess = plain.table.variance.to_numpy()[1:] - antithetic.table.variance.to_numpy()[1:]
    return float(np.log2(excess[0] / excess[-1]) / (len(excess) - 1))


def excess_table(reports: Mapping[str, Mapping[str, CheckList]]) -> pd.DataFrame:
    """By point: the variance at level 0, that at the finest level in the two parts of ``excess_rate``, and the rate."""
    rows = {}
    for point, found in reports.items():
        plain, twins = found["plain"], found["antithetic"]
        first, (whole, left) = plain.table.variance[0], (one.table.variance.iloc[-1] for one in (plain, twins))
        row = {"variance, level 0": f"{first:.2g}", "finest level: left by the twin": f"{left:.2g}"}
        row |= {"finest level: removed by the twin": f"{whole - left:.2g}"}
        rows[point] = row | {"rate of what the twin removes": f"{excess_rate(plain, twins):.2f}"}
    return pd.DataFrame(rows).T.rename_axis("network")


def ratios(record: pd.DataFrame) -> dict[str, Any]:
    """The loss that all methods reach for good, and MLMC's work and span over those of each, at its best rate."""
    target = common_target(record)
    found: dict[str, Any] = {cost: ratios_to_mlmc(record, target, cost) for cost in COSTS}
    return {"loss": target, **found}


def best_rates(record: pd.DataFrame, target: float, cost: str) -> dict[str, float]:
    """By method: the learning rate at which it reaches a loss for good with the least cost, or else ends best."""
    return _end_best(record) | least_costs(record, target, cost).attrs["learning_rate"]


def _end_best(record: pd.DataFrame) -> dict[str, float]:
    last = record.groupby(RUN, sort=False).loss.last().reset_index()
    return best_losses(last).learning_rate.to_dict()


def best_runs(record: pd.DataFrame, method: str) -> pd.DataFrame:
    """The runs of a method at the learning rate with the least median loss at the end."""
    return record[(record.method == method) & (record.learning_rate == _end_best(record)[method])]


def shown_rate(record: pd.DataFrame, method: str, rate: float) -> str:
    """A learning rate, with a mark if it is the least or largest of those tried, and so not known to be the best."""
    tried = record[record.method == method].learning_rate
    return f"{rate:g}{' (at the edge)' if rate in (tried.min(), tried.max()) else ''}"


def ratios_table(record: pd.DataFrame, found: Mapping[str, Any]) -> pd.DataFrame:
    """``ratios`` as a table: for each cost the best rate, MLMC's cost over the method's, and the pairs of seeds."""
    table: dict[str, dict[str, Any]] = {method: {} for method in record.method.unique()}
    for cost in COSTS:
        best = best_rates(record, found["loss"], cost)
        for method, row in table.items():
            one = found[cost].get(method)
            row[f"best rate, {cost}"] = shown_rate(record, method, best[method])
            shown = "not reached" if one is None else "{mean:.2g} [{low:.2g}, {high:.2g}]".format(**one)
            row[f"MLMC's {cost} / its {cost}"] = shown
            row[f"pairs, {cost}"] = 0 if one is None else one["pairs"]
    return pd.DataFrame(table).T
