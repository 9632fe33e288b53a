"""Every method at its best learning rate: losses at equal cost, and costs to reach an equal loss for good.

The functions take a record of ``dmlmc.sweep``, or several concatenated ones of one problem and one optimiser.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Key, PyTree

from dmlmc._internal.checks import positive
from dmlmc.calibration.interval import Interval, mean_interval
from dmlmc.estimators import GradientEstimator
from dmlmc.experiments.comparison import cost_to_reach, in_json
from dmlmc.experiments.sweeps import sweep_all
from dmlmc.schedule import DELAYED, MLMC, NAIVE, cumulative
from dmlmc.training.sweep import Optimisers

DELAYED_PAPER, DELAYED_HELD = f"{DELAYED}, paper's counts", f"{DELAYED}, held counts"
SHORTER = f"{DELAYED}, held counts, shorter periods"
COSTS = ("span", "work")
MOST = 0.75  # of the seeds
RUN = ["method", "learning_rate", "seed"]


def spent(estimator: GradientEstimator, steps: int) -> dict[str, float]:
    """The span and the work of a number of steps: budgets for the other methods.

    >>> from dmlmc import QuadraticLoss, Rates, mlmc, plan
    >>> rates = Rates(b=1.8, c=1.0, d=1.0)
    >>> estimator = mlmc(QuadraticLoss(2, 1.0, 1.0, rates), plan(rates, max_level=1, samples=[2, 1], periods=[1, 1]))
    >>> spent(estimator, 10), steps_to_spend(estimator, {"span": 20.0, "work": 51.0})
    ({'span': 20.0, 'work': 50.0}, 11)
    """
    return {cost: float(cumulative(getattr(estimator, cost), steps)[-1]) for cost in COSTS}


def steps_to_spend(estimator: GradientEstimator, budgets: Mapping[str, float]) -> int:
    """The number of steps after which all budgets are spent."""
    steps = 1
    while any(spent(estimator, steps)[cost] < budget for cost, budget in budgets.items()):
        steps *= 2
    costs = {cost: cumulative(getattr(estimator, cost), steps) for cost in budgets}
    return max(int(np.searchsorted(costs[cost], budget)) for cost, budget in budgets.items())


def sweep_methods(
    estimators: Sequence[GradientEstimator],
    optimisers: Optimisers,
    params: PyTree,
    keys: Key[Array, " seeds"],
    budgets: Mapping[str, float],
    *,
    validation: Callable[[PyTree], Float[Array, ""]],
    evaluations: int,
    seeds_at_once: int | None = None,
    progress: bool = True,
) -> tuple[dict[str, PyTree], pd.DataFrame]:
    """``dmlmc.sweep`` for several methods, each until all budgets are spent: trained parameters by method, one record.

    Every run is evaluated ``evaluations`` times or a few more.
    """
    runs = [(estimator, steps_to_spend(estimator, budgets)) for estimator in estimators]
    settings: dict[str, Any] = {"validation": validation, "evaluations": evaluations, "progress": progress}
    return sweep_all(runs, optimisers, params, keys, seeds_at_once=seeds_at_once, **settings)


def losses_at(record: pd.DataFrame, cost: str, budget: float) -> pd.DataFrame:
    """The loss of every run when it has spent ``budget`` of a cost: one row per method, learning rate and seed.

    Between two evaluations the logarithm of the loss is interpolated linearly. A run that diverges is infinite.

    >>> run = {"method": "MLMC", "learning_rate": 0.1, "seed": 0}
    >>> record = pd.DataFrame([{**run, "span": span, "loss": loss} for span, loss in ((0.0, 4.0), (64.0, 1.0))])
    >>> losses_at(record, "span", 32.0).loss.tolist()
    [2.0]
    """
    budget = positive("losses_at: budget", budget)
    longest = record.groupby("method")[cost].max()
    if budget > longest.min() * (1 + 1e-9):
        short = f"{longest.idxmin()} ends at {longest.min():g}"
        raise ValueError(f"losses_at: budget must be within every run, but {short}, got {budget:g}.")

    def of_run(run: pd.DataFrame) -> float:
        costs, losses = run[cost].to_numpy(), run.loss.to_numpy()
        after = min(int(np.searchsorted(costs, budget * (1 - 1e-9))), len(costs) - 1)
        if not np.isfinite(losses[max(after - 1, 0) : after + 1]).all():
            return np.inf
        return float(np.exp(np.interp(budget, costs[: after + 1], np.log(losses[: after + 1]))))

    found = record.groupby(RUN, sort=False)[[cost, "loss"]].apply(of_run)
    return found.rename("loss").reset_index()


def quartiles(losses: pd.DataFrame) -> pd.DataFrame:
    """Median and quartiles over seeds by method and learning rate, of ``losses_at``.

    >>> one = {"method": "MLMC", "learning_rate": 0.1}
    >>> quartiles(pd.DataFrame([{**one, "seed": i, "loss": float(i)} for i in range(5)])).to_dict("records")
    [{'method': 'MLMC', 'learning_rate': 0.1, 'median': 2.0, 'low': 1.0, 'high': 3.0}]
    """
    rows = []
    for (method, rate), runs in losses.groupby(["method", "learning_rate"], sort=False):
        low, median, high = (float(np.quantile(runs.loss, share, method="nearest")) for share in (0.25, 0.5, 0.75))
        rows.append((method, rate, median, low, high))
    return pd.DataFrame(rows, columns=["method", "learning_rate", "median", "low", "high"])


def best_losses(losses: pd.DataFrame) -> pd.DataFrame:
    """The rows of ``quartiles`` with the least median, one per method: each at its own best learning rate."""
    table = quartiles(losses)
    return table.loc[table.groupby("method", sort=False)["median"].idxmin()].set_index("method")


def common_target(record: pd.DataFrame) -> float:
    """The least loss that three quarters of the seeds of every method reach for good, at some rate of its own.

    Three quarters, because now and then a run with a small batch loses all it has learned; asking for all seeds was
    tried first, and single lost runs decided the target. Naive, which the others are to beat, does not count.

    >>> run = {"method": "MLMC", "learning_rate": 0.1, "step": 9}
    >>> common_target(pd.DataFrame([{**run, "seed": seed, "loss": loss} for seed, loss in enumerate([1, 2, 3, 4, 5])]))
    4.0
    """
    last = record[record.method != NAIVE].groupby(RUN).loss.last()
    return float(last.groupby(["method", "learning_rate"]).agg(_reached_by_most).groupby("method").min().max())


def _reached_by_most(losses: pd.Series) -> float:
    return float(np.quantile(losses, MOST, method="inverted_cdf"))


def least_costs(record: pd.DataFrame, target: float, cost: str) -> pd.DataFrame:
    """The cost to reach a loss for good, by method (columns) and seed, each method at the rate of the least median.

    Rates at which fewer than three quarters of the seeds reach the loss do not count. A method without such a rate is
    left out. NaN for a seed that does not reach it. The rates are in ``attrs["learning_rate"]``.
    """
    best: dict[Any, pd.Series] = {}
    for (method, rate), runs in record.groupby(["method", "learning_rate"], sort=False):
        needed = cost_to_reach(runs, target, cost)[method]
        middle = needed.fillna(np.inf).median()
        if needed.notna().mean() >= MOST and (method not in best or middle < best[method].fillna(np.inf).median()):
            best[method] = needed.rename(rate)
    table = pd.DataFrame(best)
    table.attrs["learning_rate"] = {method: float(needed.name) for method, needed in best.items()}
    return table


def ratios_to_mlmc(record: pd.DataFrame, target: float, cost: str) -> dict[str, dict[str, float]]:
    """Cost of MLMC over cost of each method to reach a loss for good: mean of the ratios per seed, 95% interval.

    It is the geometric mean, with the t-interval of the logarithms. ``pairs`` is the number of seeds with which both
    reach the loss, and over which the mean is taken.
    """
    needed = least_costs(record, target, cost)
    return {str(method): _paired(needed[MLMC], needed[method]) for method in needed}


def _paired(over: pd.Series, under: pd.Series) -> dict[str, float]:
    logarithms = np.log((over / under).dropna().to_numpy(dtype=float))
    return {**in_json(Interval(*np.exp(mean_interval(logarithms)).tolist())), "pairs": len(logarithms)}


def ratios_by_rate(record: pd.DataFrame, method: str, cost: str = "span") -> pd.DataFrame:
    """Cost of MLMC over cost of ``method`` at the *same* rate, to the least loss that most runs of both reach for good.

    ``relative`` is the learning rate over the one at which MLMC ends best. NaN if that loss is more than half of the
    loss before training: too many runs have learned nothing, or lost it again.
    """
    pair = record[record.method.isin([MLMC, method])]
    last = pair.groupby(RUN).loss.last().groupby(["method", "learning_rate"])
    best = float(last.median()[MLMC].idxmin())
    rows = []
    for rate, runs in pair.groupby("learning_rate"):
        target = float(last.agg(_reached_by_most)[:, rate].max())
        found = {"mean": np.nan, "low": np.nan, "high": np.nan, "pairs": 0}
        if target < runs.groupby(["method", "seed"]).loss.first().min() / 2:
            needed = cost_to_reach(runs, target, cost)
            found = _paired(needed[MLMC], needed[method])
        rows.append({"learning_rate": rate, "relative": rate / best, "target": target, **found})
    return pd.DataFrame(rows)


def tuned_summary(record: pd.DataFrame, budgets: dict[str, float]) -> dict[str, Any]:
    """By method: best rate and loss at equal span, the same at equal work, and ratios to MLMC, in JSON types."""
    equal = {cost: best_losses(losses_at(record, cost, budget)) for cost, budget in budgets.items()}
    target = common_target(record)
    ratios = {cost: ratios_to_mlmc(record, target, cost) for cost in budgets}
    unknown = {**in_json(mean_interval([np.nan])), "pairs": 0}
    found = {}
    for method in record.method.unique():
        span, work = equal["span"].loc[method], equal["work"].loc[method]
        found[method] = {
            "best_rate": float(span.learning_rate),
            "final_loss": span[["median", "low", "high"]].to_dict(),
            "best_rate_at_equal_work": float(work.learning_rate),
            "final_loss_at_equal_work": work[["median", "low", "high"]].to_dict(),
            "span_ratio_to_mlmc": ratios["span"].get(method, unknown),
            "work_ratio_to_mlmc": ratios["work"].get(method, unknown),
            "target": target,
        }
    return found


def summary_table(summary: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """``tuned_summary`` of several optimisers as a table to read: medians with quartiles, ratios with intervals."""

    def shown(value: Mapping[str, float], middle: str) -> str:
        return f"{value[middle]:.3g} [{value['low']:.3g}, {value['high']:.3g}]"

    rows = []
    for optimiser, methods in summary.items():
        for method, found in methods.items():
            row = {"optimiser": optimiser, "method": method, "best rate": found["best_rate"]}
            row |= {"loss at equal span": shown(found["final_loss"], "median")}
            row |= {"loss at equal work": shown(found["final_loss_at_equal_work"], "median")}
            row |= {"to a loss of": f"{found['target']:.2g}", "pairs of seeds": found["span_ratio_to_mlmc"]["pairs"]}
            for cost in COSTS:
                ratio = found[f"{cost}_ratio_to_mlmc"]
                known = np.isfinite(ratio["mean"])
                row[f"MLMC's {cost} / its {cost}"] = shown(ratio, "mean") if known else "not reached"
            rows.append(row)
    return pd.DataFrame(rows).set_index(["optimiser", "method"])


def gains(records: Mapping[str, pd.DataFrame], methods: Sequence[str]) -> pd.DataFrame:
    """MLMC's span and work over those of each method: at the smallest rate, both at that rate, and each at its best.

    ``records`` maps an optimiser to the record of its runs.
    """
    rows = []
    for optimiser, record in records.items():
        small, best = {"regime": f"{optimiser}, small rate"}, {"regime": f"{optimiser}, best rates"}
        for cost in COSTS:
            ratios = ratios_to_mlmc(record, common_target(record), cost)
            for method in methods:
                at_one_rate = ratios_by_rate(record, method, cost).iloc[0]
                small[f"{cost}: {method}"] = f"{at_one_rate['mean']:.2g}"
                best[f"{cost}: {method}"] = f"{ratios[method]['mean']:.2g}" if method in ratios else "not reached"
        rows += [small, best]
    return pd.DataFrame(rows).set_index("regime")
