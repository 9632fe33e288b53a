"""Train with several methods from the same starts, and compare their costs to reach the same loss."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
import pandas as pd
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key, PyTree

from dmlmc._internal.checks import positive
from dmlmc.calibration.interval import Interval, mean_interval
from dmlmc.calibration.levels import measure_levels
from dmlmc.estimators import GradientEstimator
from dmlmc.losses import MultilevelLoss
from dmlmc.schedule import DELAYED, MLMC, Plan
from dmlmc.training.divergence import RAISE
from dmlmc.training.evaluation import Evaluation
from dmlmc.training.loop import train


def compare(
    runs: Sequence[tuple[GradientEstimator, int]],
    optimiser: optax.GradientTransformation,
    params: PyTree,
    keys: Key[Array, " seeds"],
    *,
    validation: Callable[[PyTree], Float[Array, ""]],
    evaluate_every: int,
    metrics: Callable[[PyTree], dict[str, Array]] | None = None,
    keep_step: int | None = None,
    mesh: Mesh | None = None,
    seeds_at_once: int | None = None,
    progress: bool = True,
) -> tuple[dict[str, PyTree], pd.DataFrame]:
    """Train with each ``(estimator, steps)`` of ``runs``, all from ``params`` (one start per seed) and with ``keys``.

    Returns parameters by method and one record of all runs, with the ``metrics`` of ``dmlmc.train``. Seed i has the
    same start and the same key for every method, so methods can be compared seed by seed. The parameters are those
    after ``keep_step`` steps, at which every run must be evaluated, or those at the end of each run.
    """
    trained, records = {}, []
    for estimator, steps in runs:
        kept: dict[int, PyTree] = {}

        def keep(info: Evaluation, kept: dict[int, PyTree] = kept) -> None:
            if info.step == keep_step:
                kept[info.step] = info.params

        last, record = train(
            estimator,
            optimiser,
            params,
            steps,
            keys,
            params_per_seed=True,
            validation=validation,
            metrics=metrics,
            callback=keep,
            evaluate_every=evaluate_every,
            on_divergence=RAISE,
            mesh=mesh,
            seeds_at_once=seeds_at_once,
            progress=progress,
        )
        if keep_step is not None and keep_step not in kept:
            raise ValueError(
                f"compare: keep_step must be a step at which {estimator.method} is evaluated, "
                f"{sorted(record.step.unique().tolist())}, got {keep_step}."
            )
        trained[estimator.method] = last if keep_step is None else kept[keep_step]
        records.append(record.drop(columns="diverged_at"))  # none did
    return trained, pd.concat(records, ignore_index=True)


def variance_check(
    plan: Plan,
    loss: MultilevelLoss,
    finest: MultilevelLoss,
    params: PyTree,
    key: Key[Array, ""],
    *,
    samples: int,
) -> pd.DataFrame:
    """Has the naive batch the variance of MLMC? What the plan models, beside what ``samples`` measure at ``params``.

    ``finest`` is ``loss`` with the plan's finest level as its level 0. The rows are the variances of the coupled
    gradients over that of level 0, the variance of one naive path over the same, and the naive batch whose gradient has
    the variance of the plan's. The columns are ``modelled``, ``measured`` and ``error``: the standard error, found by
    leaving out one block of samples after the other. All variances are measured on the same noise, so their ratios vary
    less than they do. With heavy tails the error is itself a rough guess.

    >>> import dmlmc
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=dmlmc.Rates(b=1.8, c=1.0, d=1.0))
    >>> plan = dmlmc.plan(loss.rates, max_level=0, samples=[8])  # without finer levels MLMC is the naive method
    >>> variance_check(plan, loss, loss, jax.numpy.ones(2), jax.random.key(0), samples=64).round(6).loc["naive batch"]
    modelled    8.0
    measured    8.0
    error       0.0
    Name: naive batch, dtype: float64
    """
    plan = plan.without_delay()  # the plan of MLMC
    other = jax.tree.map(lambda leaf: leaf + 1e-3 if eqx.is_inexact_array(leaf) else leaf, params)
    coupled = measure_levels(loss, params, other, key, max_level=plan.max_level, samples=samples).blocks
    naive = measure_levels(finest, params, other, key, max_level=0, samples=samples).blocks
    variances = coupled.pivot(index="block", columns="level", values="variance").assign(naive=naive.variance).to_numpy()

    def figures(means: Float[np.ndarray, " _"]) -> Float[np.ndarray, " _"]:
        return np.array([*(means[1:] / means[0]), means[-1] / plan.variance(means[:-1].tolist())])

    means, blocks = variances.mean(axis=0), len(variances)
    without = np.stack([figures(np.delete(variances, block, axis=0).mean(axis=0)) for block in range(blocks)])
    error = np.sqrt((blocks - 1) / blocks * np.sum((without - without.mean(axis=0)) ** 2, axis=0))
    modelled = [*(2.0 ** (-plan.rates.b * level) for level in range(1, plan.max_level + 1)), 1.0, plan.naive_samples()]
    measured = [*figures(means)[:-1], plan.naive_samples(means[:-1].tolist(), float(means[-1]))]
    names = [*(f"V_{level} / V_0" for level in range(1, plan.max_level + 1)), "V_naive / V_0", "naive batch"]
    return pd.DataFrame({"modelled": modelled, "measured": measured, "error": error}, index=names)


def cost_to_reach(record: pd.DataFrame, target: float, cost: str) -> pd.Series:
    """The cumulative cost (``"span"``, ``"work"``, ``"step"``, ``"seconds"``) at which runs reach a loss for good.

    For good: at no later evaluation is the loss above ``target``. A run that dips below the loss and comes back has
    not reached it yet, so noise does not count as progress. Between the last evaluation above the target and the next
    one the logarithm of the loss is interpolated linearly in the cost. If it has none, as that of an infinite loss, the
    cost is that of the next evaluation.

    The cost of a run that ends above the target is NaN, and that of a run that never is above is its first one. The
    result is indexed by method and seed.

    >>> losses = [4.0, 0.25, 1.0, 0.25]  # below 0.5 twice, the second time for good
    >>> record = pd.DataFrame({"method": "MLMC", "seed": 0, "span": [0.0, 64.0, 128.0, 192.0], "loss": losses})
    >>> float(cost_to_reach(record, 0.5, "span").loc["MLMC", 0])
    160.0
    """
    positive("cost_to_reach: target", target)
    if cost not in record.columns:
        raise ValueError(f"cost_to_reach: cost must be a column of the record, {list(record.columns)}, got {cost!r}.")

    def of_run(run: pd.DataFrame) -> float:
        losses, costs = run.loss.to_numpy(), run[cost].to_numpy()
        above = np.flatnonzero(~(losses <= target))  # NaN counts as above
        if above.size == 0:
            return float(costs[0])
        last = above[-1]
        if last == len(losses) - 1:
            return math.nan
        before, after = float(losses[last]), float(losses[last + 1])
        if not (before < math.inf and after > 0):
            return float(costs[last + 1])
        share = (math.log(before) - math.log(target)) / (math.log(before) - math.log(after))
        return float(costs[last] + share * (costs[last + 1] - costs[last]))

    return record.groupby(["method", "seed"], sort=False)[["loss", cost]].apply(of_run)


def ratio_to_reach(
    record: pd.DataFrame, target: float, cost: str, *, over: str = MLMC, under: str = DELAYED
) -> Interval:
    """Cost of ``over`` by cost of ``under`` to reach a loss for good: mean of the ratios per seed, and t-interval."""
    needed = cost_to_reach(record, target, cost)
    return mean_interval((needed[over] / needed[under]).to_numpy())


def common_targets(record: pd.DataFrame, count: int = 4) -> list[float]:
    """Losses that every run reaches for good after its second evaluation, evenly spaced on a log scale.

    They lie between the least loss at a second evaluation and the largest at a last one, rounded to two digits, or to
    as many as keep them there and apart.

    >>> losses = [9.0, 8.0, 0.5, 1.0]  # the run was at 0.5, but did not stay there
    >>> common_targets(pd.DataFrame({"method": "MLMC", "seed": 0, "step": range(4), "loss": losses}), count=2)
    [4.0, 2.0]
    """
    runs = record.groupby(["method", "seed"]).loss
    highest, lowest = runs.nth(1).min(), runs.nth(-1).max(skipna=False)  # a run that ends with NaN reaches nothing
    if not 0 < lowest < highest < math.inf:
        raise ValueError(
            "common_targets: record must have a positive loss that every run reaches for good after its second "
            "evaluation, got none; train longer or evaluate more often."
        )
    exact = np.geomspace(highest, lowest, count + 2)[1:-1]
    for digits in range(2, 18):  # 17 digits are all that a float has
        targets = [float(f"{target:.{digits}g}") for target in exact]
        if len(set(targets)) == count and all(lowest <= target <= highest for target in targets):
            break
    return targets


def summarise(record: pd.DataFrame, targets: Sequence[float], **facts: Any) -> dict[str, Any]:
    """The results in JSON types: the given facts, and for each target loss the mean costs and paired ratios."""
    found = []
    for target in targets:
        costs = {cost: cost_to_reach(record, target, cost) for cost in ("span", "work", "seconds")}
        needed = {cost: values.groupby(level="method").mean().to_dict() for cost, values in costs.items()}
        ratios = {f"{cost}_ratio": in_json(ratio_to_reach(record, target, cost)) for cost in costs}
        found.append({"loss": target, **ratios, **needed})
    return {**facts, "targets": found}


def in_json(mean: Interval) -> dict[str, float]:
    """A mean over seeds and its interval, in the format of ``figures/data``."""
    return {"mean": mean.estimate, "low": mean.low, "high": mean.high}


def comparison_table(summary: dict[str, Any]) -> pd.DataFrame:
    """A summary as a table, one row per target loss: each method's costs, and the ratios with their intervals."""
    rows = []
    for target in summary["targets"]:
        row: dict[str, Any] = {"loss": target["loss"]}
        for cost in ("span", "work", "seconds"):
            row |= {f"{cost}, {method}": f"{needed:.3g}" for method, needed in target[cost].items()}
            row[f"{cost} ratio"] = "{mean:.3g} [{low:.3g}, {high:.3g}]".format(**target[f"{cost}_ratio"])
        rows.append(row)
    return pd.DataFrame(rows).set_index("loss")
