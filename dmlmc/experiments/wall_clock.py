"""What ``make bench`` measured, as tables: seconds of steps, ratios with bootstrap intervals, one run after another."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dmlmc._internal.files import write
from dmlmc.calibration.interval import Interval, median_interval, median_ratio
from dmlmc.calibration.timing import seconds_ratio
from dmlmc.experiments.streaming_costs import LEVEL0
from dmlmc.schedule import DELAYED, MLMC, NAIVE, Plan

OURS, AS_TRAINED = "dmlmc, any SDE", "dmlmc"
ENGINES = ("diffrax.diffeqsolve", "lax.scan")
# Settings of the environment, and what is measured under them beside gradients, as benchmarks.json names them.
AS_IT_IS, ONE_THREAD, LESS_OPTIMISED = "as it is", "NPROC=1", "XLA_FLAGS=--xla_backend_optimization_level=1"
STEP_OF_NEURAL_SDE, COMPILATION = "step of a neural SDE", "compilation of its steps by delayed MLMC"
Bench = Mapping[str, Any]  # the contents of benchmarks.json


def step_table(entries: Bench) -> tuple[pd.DataFrame, Interval]:
    """Seconds of a step of each method for several finest levels, and those of a step at level 0.

    Level 0 is the same program for all of them, so it has one median, of all its repeats. The column ``predicted`` is
    the mean span times this median.
    """
    table = pd.concat([pd.DataFrame(entry["methods"]) for entry in entries.values()], ignore_index=True)
    level0 = table[table.method == LEVEL0].set_index("max_level")
    seconds = median_interval(np.concatenate(level0.repeats.tolist()))
    spans = table.predicted / table.max_level.map(level0.seconds)
    table = table.assign(predicted=spans * seconds.estimate)
    return table[table.method != LEVEL0].reset_index(drop=True), seconds


def step_ratios(entries: Bench, label: str) -> pd.DataFrame:
    """Ratios of seconds per step with their intervals, beside those of the spans. The index, ``label``, is the key."""
    rows = {}
    for key, entry in sorted(entries.items(), key=lambda item: int(item[0])):
        table = pd.DataFrame(entry["methods"])
        spans = table.set_index("method").predicted
        row = {}
        for over, under in ((MLMC, DELAYED), (NAIVE, DELAYED), (DELAYED, LEVEL0)):
            row[f"{over} / {under}"] = in_words(seconds_ratio(table, over, under))
            row[f"{over} / {under}, by span"] = f"{spans[over] / spans[under]:.3g}"
        rows[int(key)] = row
    return pd.DataFrame(rows).T.rename_axis(label)


def ratios_beside_counts(table: pd.DataFrame, planned: Plan) -> pd.DataFrame:
    """Seconds, span and work of a step by naive and MLMC over those by delayed MLMC, for a plan that was timed.

    ``table`` is that of ``dmlmc.calibration.timing.method_seconds``.
    """
    undelayed, top = planned.without_delay(), planned.costs[-1]
    counted = {
        MLMC: (undelayed.mean_span(), undelayed.mean_work()),
        NAIVE: (top, top * planned.naive_samples()),
    }
    rows = {
        f"{over} / {DELAYED}": {
            "seconds": in_words(seconds_ratio(table, over, DELAYED)),
            "span": f"{span / planned.mean_span():.3g}",
            "work": f"{work / planned.mean_work():.3g}",
        }
        for over, (span, work) in counted.items()
    }
    return pd.DataFrame(rows).T


def engine_ratios(bench: Bench, ours: str = OURS) -> pd.DataFrame:
    """Seconds of other implementations of a gradient over ``ours``: columns ``gradient, way, ratio, low, high``."""
    rows = []
    for way in ENGINES:
        for gradient, entry in bench["gradients"].items():
            found = median_ratio(entry[way]["repeats"], entry[ours]["repeats"])
            rows.append((gradient, way, *found))
    return pd.DataFrame(rows, columns=["gradient", "way", "ratio", "low", "high"])


def gains(bench: Bench, setting: str) -> dict[str, Interval]:
    """How many times as long our programs take with the environment as it is as with a setting. Empty for a GPU."""
    return {
        name: median_ratio(entry[f"{OURS}, {AS_IT_IS}"]["repeats"], entry[f"{OURS}, {setting}"]["repeats"])
        for name, entry in bench.get("environments", {}).items()
    }


def environment_table(bench: Bench) -> pd.DataFrame:
    """What each setting of the environment gains, and how our gradients compare with diffrax's under it."""
    found = {setting: gains(bench, setting) for setting in (ONE_THREAD, LESS_OPTIMISED)}
    rows = {}
    for name, entry in bench.get("environments", {}).items():
        row = {f"dmlmc, {AS_IT_IS} / {setting}": in_words(ratios[name]) for setting, ratios in found.items()}
        for setting in (AS_IT_IS, *found):
            theirs, ours = (entry.get(f"{way}, {setting}") for way in (ENGINES[0], OURS))
            ratio = in_words(median_ratio(theirs["repeats"], ours["repeats"])) if theirs and ours else ""
            row[f"diffrax / dmlmc, {setting}"] = ratio
        rows[name] = row
    return pd.DataFrame(rows).T


def run_of(bench: Bench) -> dict[str, Any]:
    """What is kept of a run of ``make bench`` when the next one replaces it: the machine and some ratios."""
    machine, naive = bench["machine"], bench["gradients"]["naive"]
    few, many = (pd.DataFrame(bench[regime]["6"]["methods"]) for regime in ("latency_bound", "compute_bound"))
    ratios = {
        "MLMC / delayed MLMC, four paths": seconds_ratio(few, MLMC, DELAYED),
        "MLMC / delayed MLMC, many paths": seconds_ratio(many, MLMC, DELAYED),
        "naive / delayed MLMC, many paths": seconds_ratio(many, NAIVE, DELAYED),
        "diffrax / dmlmc, naive gradient": median_ratio(naive[ENGINES[0]]["repeats"], naive[OURS]["repeats"]),
    }
    facts = {"jax": machine["versions"]["jax"], **{name: machine[name] for name in ("device", "cores", "scale")}}
    return {**facts, "ratios": {name: found._asdict() for name, found in ratios.items()}}


def append_run(path: Path, bench: Bench) -> None:
    """Add a run of ``make bench`` to a file that has one entry per run."""
    runs = json.loads(path.read_text()) if path.exists() else []
    write(path, json.dumps([*runs, {"run": len(runs) + 1, **run_of(bench)}], indent=1) + "\n")


def run_table(runs: list[dict[str, Any]]) -> pd.DataFrame:
    """The runs of such a file, a row each."""
    rows = [
        {name: value for name, value in run.items() if name != "ratios"}
        | {name: in_words(Interval(**found)) for name, found in run["ratios"].items()}
        for run in runs
    ]
    return pd.DataFrame(rows).set_index("run")


def in_words(found: Interval) -> str:
    """A ratio with its interval, as the cell of a table.

    >>> in_words(Interval(12.57, 12.24, 12.86))
    '12.6 [12.2, 12.9]'
    """
    return "{:.3g} [{:.3g}, {:.3g}]".format(*found)
