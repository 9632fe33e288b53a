"""Calibrate again in the middle of a run and go on with a new plan, beside going on with the old one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import optax
import pandas as pd
from jaxtyping import Array, Float, Key, PyTree

from dmlmc.calibration.checklist import CheckList, calibrate
from dmlmc.calibration.interval import mean_interval
from dmlmc.estimators import delayed_mlmc
from dmlmc.losses import MultilevelLoss
from dmlmc.schedule import Plan
from dmlmc.training.evaluation import Evaluation
from dmlmc.training.loop import train

OLD, NEW = "old plan", "new plan"
COSTS = ("step", "span", "work")


class Replanned(NamedTuple):
    """Both runs from the step at which the plan was changed on, with a column ``plan``, and how it was made."""

    record: pd.DataFrame
    report: CheckList
    plan: Plan


def replan(
    loss: MultilevelLoss,
    first: Plan,
    make_plan: Callable[[Any], Plan],
    optimiser: optax.GradientTransformation,
    starts: PyTree,
    keys: Key[Array, " seeds"],
    *,
    change_at: int,
    steps: int,
    budget: float,
    validation: Callable[[PyTree], Float[Array, ""]],
) -> Replanned:
    """Train with delayed MLMC from ``starts``, one per seed. At step ``change_at`` calibrate, plan anew and go on.

    ``make_plan(rates)`` makes the new plan of the rates that ``budget`` paths measure at the parameters of seed 0. The
    run with the old plan goes on too, with the same noise, so that the seeds are pairs.
    """
    settings: dict[str, Any] = {"steps": steps, "validation": validation, "progress": False}
    settings["evaluate_every"] = max(1, change_at // 20)
    met: list[Evaluation] = []
    _, whole = train(
        delayed_mlmc(loss, first), optimiser, starts, key=keys, params_per_seed=True,
        callback=lambda info: met.append(info) if info.step == change_at else None, **settings,
    )  # fmt: skip
    if not met:
        raise ValueError(
            f"replan: change_at must be at most steps and a multiple of {settings['evaluate_every']}, the steps "
            f"between evaluations, got {change_at} of {steps}."
        )
    of_seed_0 = jax.tree.map(lambda leaf: leaf[0] if eqx.is_inexact_array(leaf) else leaf, met[0].params)
    rates, report = calibrate(loss, of_seed_0, jr.key(0), budget, max_level=len(first.periods) - 1)
    second = make_plan(rates)
    _, changed = train(delayed_mlmc(loss, second), optimiser, met[0], key=keys, **settings)
    frames = [whole[whole.step >= change_at].assign(plan=OLD), changed.assign(plan=NEW)]
    return Replanned(pd.concat(frames, ignore_index=True), report, second)


def gains(record: pd.DataFrame) -> pd.DataFrame:
    """The loss with the old plan over that with the new one, when both have spent as much: above 1 the new one gains.

    One row per cost, with the geometric mean over pairs of seeds and its 95% interval. Between evaluations the
    logarithm of the loss is interpolated. "As much" is all that the run which spends less has spent.

    >>> rows = [
    ...     {"plan": plan, "seed": seed, "step": step, "span": step, "work": step, "loss": (1 + seed) * rate**-step}
    ...     for plan, rate in ((OLD, 2.0), (NEW, 4.0)) for seed in (0, 1) for step in (0, 1, 2)
    ... ]
    >>> gains(pd.DataFrame(rows)).round(3).to_dict("records")[0]
    {'cost': 'step', 'spent': 2, 'gain': 4.0, 'low': 4.0, 'high': 4.0}
    """
    rows = []
    for cost in COSTS:
        spent = record.groupby("plan")[cost].max().min()
        logs = {
            plan: [np.interp(spent, seed[cost], np.log(seed.loss)) for _, seed in runs.groupby("seed")]
            for plan, runs in record.groupby("plan")
        }
        found = np.exp(mean_interval(np.subtract(logs[OLD], logs[NEW])))
        rows.append((cost, spent, *found))
    return pd.DataFrame(rows, columns=["cost", "spent", "gain", "low", "high"])
