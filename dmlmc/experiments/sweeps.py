"""Sweep several methods by ``dmlmc.sweep``, and compare the runs: final losses, best learning rates, ratios of span."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Key, PyTree

from dmlmc._internal.checks import integer
from dmlmc._internal.progress import progress_bar
from dmlmc.calibration.interval import mean_interval
from dmlmc.estimators import GradientEstimator
from dmlmc.experiments.comparison import common_targets, in_json, ratio_to_reach
from dmlmc.schedule import DELAYED, MLMC
from dmlmc.training.divergence import SILENT
from dmlmc.training.driver import checked_settings
from dmlmc.training.sweep import Optimisers, PreparedSweep, prepared_sweep

# Of a record, what results are made of and what is saved: no seconds, which are never the same twice.
CURVES = ["method", "run", "optimiser", "learning_rate", "seed", "work", "span", "step", "loss"]


def sweep_all(
    runs: Sequence[tuple[GradientEstimator, int]],
    optimisers: Optimisers,
    params: PyTree,
    keys: Key[Array, " seeds"],
    *,
    validation: Callable[[PyTree], Float[Array, ""]],
    evaluations: int,
    seeds_at_once: int | None = None,
    progress: bool = True,
) -> tuple[dict[str, PyTree], pd.DataFrame]:
    """``dmlmc.sweep`` for several pairs of estimator and steps: trained parameters by method, and one record.

    ``params`` has one start per key. Every run is evaluated ``evaluations`` times or a few more. As
    many programs are compiled at once as there are cores.
    """
    evaluations = integer("sweep_all: evaluations", evaluations, minimum=1)
    prepared = []
    for estimator, steps in runs:
        settings = checked_settings(
            "sweep_all", 0, steps, validation=validation, metrics=None, callback=None,
            evaluate_every=max(1, steps // evaluations), directory=None, checkpoint_every=None, chunk_steps=None,
            progress=False, on_divergence=SILENT, one_seed=False, seeds_at_once=seeds_at_once,
        )  # fmt: skip
        prepared.append(prepared_sweep(estimator, optimisers, params, keys, settings))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = pool.map(PreparedSweep.compile, prepared)
        list(progress_bar(compiled, desc="compiling", total=len(prepared), shown=progress))
    trained, records = {}, []
    for one in progress_bar(prepared, desc="methods", shown=progress):
        trained[one.driver.estimator.method], record = one.run()
        records.append(record[CURVES])
    return trained, pd.concat(records, ignore_index=True)


def params_of(trained: PyTree, run: int) -> PyTree:
    """The parameters of one run, copied off the devices of the sweep."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[run]) if eqx.is_array(leaf) else leaf, trained)


def after_training(record: pd.DataFrame) -> pd.DataFrame:
    """The last loss by method, optimiser and learning rate: mean over seeds and its 95% t-interval.

    The mean is infinite if a run diverged.

    >>> last = {"method": "MLMC", "optimiser": "SGD", "learning_rate": 0.1, "step": 9}
    >>> after_training(pd.DataFrame([{**last, "seed": seed, "loss": loss} for seed, loss in enumerate([1.0, 3.0])]))
      method optimiser  learning_rate  loss        low       high
    0   MLMC       SGD            0.1   2.0 -10.706205  14.706205
    """
    last = record[record.step == record.step.max()]
    rows = []
    for names, runs in last.groupby(["method", "optimiser", "learning_rate"], sort=False):
        finite = np.all(np.isfinite(runs.loss))
        found = mean_interval(runs.loss) if finite else (np.inf, np.nan, np.nan)
        rows.append((*names, *found))
    return pd.DataFrame(rows, columns=["method", "optimiser", "learning_rate", "loss", "low", "high"])


def best_rates(record: pd.DataFrame) -> pd.DataFrame:
    """The rows of ``after_training`` with the smallest loss for each method and optimiser."""
    table = after_training(record)
    return table.loc[table.groupby(["optimiser", "method"], sort=False).loss.idxmin()].reset_index(drop=True)


def span_ratios(record: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Span of MLMC over span of delayed MLMC, to losses that all their runs reach for good.

    ``record`` is of one optimiser and learning rate. The result is empty if there is no such loss.
    """
    pair = record[record.method.isin([MLMC, DELAYED])]
    try:
        targets = common_targets(pair)
    except ValueError:
        return {}
    return {f"{target:g}": in_json(ratio_to_reach(pair, target, "span")) for target in targets}
