"""Streaming MLMC beside the other methods: who is where, what its pieces add up to, and losses at equal iterations.

The functions on losses take a record of ``sweeps.sweep_all``, of one problem and one optimiser.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PyTree

from dmlmc._internal.checks import integer
from dmlmc.calibration.interval import Interval, mean_interval
from dmlmc.estimators import GradientEstimator, mlmc, naive
from dmlmc.experiments.comparison import in_json
from dmlmc.experiments.tuned import RUN, common_target, least_costs, quartiles, ratios_to_mlmc
from dmlmc.schedule import MLMC, STREAMING, Plan
from dmlmc.sde import SDELoss
from dmlmc.streaming.estimator import streaming_mlmc
from dmlmc.theory.streaming import streaming_periods

FORWARD, BACK = "forward", "back"
STRIDE_2, STRIDE_4, CLIPPED = f"{STREAMING}, stride 2", f"{STREAMING}, stride 4", f"{STREAMING}, clipped"
LATE = 0.25  # of the evaluations


def whereabouts(max_level: int, steps: int, stride: int = 1) -> pd.DataFrame:
    """Who is where: for each level, step and way, at which point of its path a cohort begins and ends the step.

    The columns are ``level, step, way, cohort, begin, end``, the points as shares of the path. A level that is no
    longer than a chunk goes forward and back in one step. Nobody is on the way back before the first has come forward.

    >>> print(whereabouts(max_level=1, steps=3).query("level == 1").to_string(index=False))
     level  step     way  cohort  begin  end
         1     0 forward       0    0.0  0.5
         1     1 forward       0    0.5  1.0
         1     2 forward       1    0.0  0.5
         1     2    back       0    1.0  0.5
    """
    rows = []
    for level, period in enumerate(streaming_periods(max_level, stride=stride)):
        for step in range(integer("whereabouts: steps", steps, minimum=1)):
            cohort, chunk = divmod(step, period)
            begin, end = chunk / period, (chunk + 1) / period
            rows.append((level, step, FORWARD, cohort, begin, end))
            if period == 1 or cohort > 0:
                rows.append((level, step, BACK, cohort - (period > 1), 1 - begin, 1 - end))
    return pd.DataFrame(rows, columns=["level", "step", "way", "cohort", "begin", "end"])


class Frozen(NamedTuple):
    """Mean gradients with frozen parameters: of streaming MLMC for each of many periods, and of MLMC and level 0."""

    streaming: Float[np.ndarray, "periods numbers"]
    mlmc: Float[np.ndarray, "periods numbers"]
    level0: Float[np.ndarray, "periods numbers"]


def frozen_gradients(loss: SDELoss, plan: Plan, params: PyTree, key: Key[Array, ""], periods: int) -> Frozen:
    """The gradients that SGD of rate zero would use, averaged over each period of the finest level.

    Periods are independent: one cohort of the finest level comes back in each, and whole cohorts of the other levels.
    The first one is left out, because no cohort of the finest level is on its way back yet.
    """
    estimators = (streaming_mlmc(loss, plan), mlmc(loss, plan), naive(loss, 0, plan.samples[0]))
    found = (
        block_means(estimator, params, own, periods + 1, 2**plan.max_level)
        for estimator, own in zip(estimators, jr.split(key, len(estimators)), strict=True)
    )
    return Frozen(*(np.asarray(means, float)[1:] for means in found))


@eqx.filter_jit
def block_means(
    estimator: GradientEstimator, params: PyTree, key: Key[Array, ""], blocks: int, steps: int
) -> Float[Array, "{blocks} numbers"]:
    """The mean gradient of each of ``blocks`` blocks of ``steps`` steps with the same parameters, as flat arrays."""

    def one_step(state, step):
        gradient, state = estimator.estimate(params, state, step, key)
        return state, ravel_pytree(gradient)[0]

    def block(state, first):
        state, gradients = jax.lax.scan(one_step, state, first + jnp.arange(steps))
        return state, jnp.mean(gradients, axis=0)

    return jax.lax.scan(block, estimator.init(params), steps * jnp.arange(blocks))[1]


def running_distances(found: Frozen) -> pd.DataFrame:
    """How far the mean over the first periods is from MLMC's over all: columns ``periods, streaming, error, level0``.

    All are relative to the norm of MLMC's mean. ``error`` is the standard error of the distance, from the spread of the
    periods of both: if the two means are equal, the root mean square of the distance.
    """
    target, counts = found.mlmc.mean(axis=0), np.arange(1, len(found.streaming) + 1)
    norm = np.linalg.norm(target)

    def distance(means):
        return np.linalg.norm(np.cumsum(means, axis=0) / counts[:, None] - target, axis=1) / norm

    spread, of_target = (means.var(axis=0, ddof=1).sum() for means in (found.streaming, found.mlmc))
    error = np.sqrt(spread / counts + of_target / len(found.mlmc)) / norm
    columns = {"streaming": distance(found.streaming), "error": error, "level0": distance(found.level0)}
    return pd.DataFrame({"periods": counts, **columns})


def with_seconds(record: pd.DataFrame, per_step: Mapping[str, float]) -> pd.DataFrame:
    """The record with ``seconds``: those of a step of the method, measured for a run by itself, times the step.

    NaN for a method that is not in ``per_step``.
    """
    return record.assign(seconds=record.step * record.method.map(dict(per_step)))


def late_losses(record: pd.DataFrame) -> pd.DataFrame:
    """The loss of every run at the end: the geometric mean over the last quarter of its evaluations.

    A single evaluation of a noisy run says little. A run that diverged is infinite.

    >>> run = {"method": "MLMC", "learning_rate": 0.1, "seed": 0}
    >>> losses = enumerate([9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 4.0, 1.0])
    >>> late_losses(pd.DataFrame([{**run, "step": step, "loss": loss} for step, loss in losses])).loss.tolist()
    [2.0]
    """

    def of_run(losses: pd.Series) -> float:
        return float(np.exp(np.mean(np.log(losses.to_numpy()[-max(1, round(LATE * len(losses))) :]))))

    return record.groupby(RUN, sort=False).loss.apply(of_run).reset_index()


def best_rates(losses: pd.DataFrame) -> pd.Series:
    """By method, the learning rate with the least geometric mean of ``late_losses``. A lost run counts against it.

    >>> runs = [("MLMC", 0.1, 3.0), ("MLMC", 0.1, 3.0), ("MLMC", 0.2, 1.0), ("MLMC", 0.2, np.inf)]
    >>> best_rates(pd.DataFrame(runs, columns=["method", "learning_rate", "loss"])).to_dict()
    {'MLMC': 0.1}
    """
    means = np.log(losses.loss).groupby([losses.method, losses.learning_rate], sort=False).mean().reset_index()
    return means.loc[means.groupby("method", sort=False).loss.idxmin()].set_index("method").learning_rate


def late_loss_ratio(record: pd.DataFrame, over: str = STREAMING, under: str = MLMC) -> Interval:
    """The late loss of one method over that of another, each at its own best rate.

    The geometric mean of the ratios per seed, with the 95% t-interval of the logarithms.
    """
    losses = late_losses(record)
    best = best_rates(losses)
    runs = (losses[(losses.method == method) & (losses.learning_rate == best[method])] for method in (over, under))
    one, other = (run.set_index("seed").loss for run in runs)
    return Interval(*np.exp(mean_interval(np.log(one / other))).tolist())


def lost_runs(record: pd.DataFrame) -> pd.DataFrame:
    """The share of runs that learned nothing, by method (rows) and learning rate (columns).

    Those whose late loss is above half of the loss before training, diverged ones included.
    """
    first = record.groupby(RUN, sort=False).loss.first().reset_index()
    lost = late_losses(record).merge(first, on=RUN, suffixes=("", "_first"))
    lost = lost.assign(lost=~(lost.loss <= lost.loss_first / 2))
    return lost.pivot_table(index="method", columns="learning_rate", values="lost", sort=False)


def at_best_rates(record: pd.DataFrame) -> pd.DataFrame:
    """The runs of every method at the rate at which its late loss is least."""
    best = best_rates(late_losses(record))
    return record[record.learning_rate == record.method.map(best)]


def summary(record: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """By method: best rate and loss at equal iterations, seconds to a loss for good, span ratio to MLMC, in JSON types.

    ``record`` has ``seconds``. The loss to reach is ``tuned.common_target``, each method at the rate that needs least.
    Losses and seconds are medians over seeds with quartiles; the ratio is paired, with its 95% interval.
    ``at_the_edge``: the best rate is the least or largest tried, so a better one may lie beyond.
    """
    losses, target = late_losses(record), common_target(record)
    best = best_rates(losses)
    at_best = quartiles(losses[losses.learning_rate == losses.method.map(best)]).set_index("method")
    seconds, ratios = least_costs(record, target, "seconds"), ratios_to_mlmc(record, target, "span")
    unknown = {**in_json(mean_interval([np.nan])), "pairs": 0}
    found = {}
    for method in record.method.unique():
        tried = record[record.method == method].learning_rate
        needed = seconds[method].fillna(np.inf) if method in seconds else pd.Series([np.inf])
        if record.seconds[record.method == method].isna().all():
            needed = pd.Series([np.nan])  # it was not timed
        quarters = zip(("median", "low", "high"), (0.5, 0.25, 0.75), strict=True)
        found[method] = {
            "best_rate": float(best[method]),
            "at_the_edge": bool(best[method] in (tried.min(), tried.max())),
            "final_loss": at_best.loc[method, ["median", "low", "high"]].to_dict(),
            "seconds_to_target": {name: float(np.quantile(needed, q, method="nearest")) for name, q in quarters},
            "span_ratio_to_mlmc": ratios.get(method, unknown),
        }
    return found


def summary_table(summaries: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """``summary`` of several optimisers as a table to read."""

    def shown(value: Mapping[str, float], middle: str) -> str:
        if not np.isfinite(value[middle]):
            return "not reached"
        return f"{value[middle]:.3g} [{value['low']:.3g}, {value['high']:.3g}]"

    rows = []
    for optimiser, methods in summaries.items():
        for method, found in methods.items():
            row = {
                "optimiser": optimiser,
                "method": method,
                "best rate": f"{found['best_rate']:g}{', an edge' * found['at_the_edge']}",
            }
            row["loss at equal iterations"] = shown(found["final_loss"], "median")
            timed = not np.isnan(found["seconds_to_target"]["median"])
            row["seconds to a common loss"] = shown(found["seconds_to_target"], "median") if timed else "not timed"
            row["MLMC's span / its span"] = shown(found["span_ratio_to_mlmc"], "mean")
            row["pairs of seeds"] = found["span_ratio_to_mlmc"]["pairs"]
            rows.append(row)
    return pd.DataFrame(rows).set_index(["optimiser", "method"])
