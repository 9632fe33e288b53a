"""What a step of streaming MLMC costs: measured seconds beside other methods, and exact limits on quadratic losses."""

import os
from collections.abc import Mapping, Sequence

import pandas as pd
from jaxtyping import PyTree

from dmlmc._internal.checks import one_of
from dmlmc.allocation import plan
from dmlmc.calibration.timing import seconds_ratio, step_seconds
from dmlmc.estimators import GradientEstimator, delayed_mlmc, mlmc, naive
from dmlmc.experiments.streaming import STRIDE_2, STRIDE_4
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, MLMC, NAIVE, STREAMING, Plan
from dmlmc.sde import SDELoss
from dmlmc.streaming.estimator import streamed_plan, streaming_mlmc
from dmlmc.theory.chunked_runs import chunked_stability_limit, chunked_stationary_error
from dmlmc.theory.held_noise import stationary_error
from dmlmc.theory.quadratic import delayed_model, stability_limit
from dmlmc.theory.streaming import streaming_levels
from dmlmc.theory.theorem import Problem

LEVEL0 = "level 0"
KEYS = {NAIVE: "naive", MLMC: "mlmc", DELAYED: "delayed", STREAMING: "streaming", LEVEL0: "level0"}
LARGE = 2**20  # samples at level 0, so that no count is rounded up to one
STRIDES = {STREAMING: 1, STRIDE_2: 2, STRIDE_4: 4}


def estimator_of(method: str, loss: SDELoss, planned: Plan) -> GradientEstimator:
    """The estimator of a method for a plan: one of the four, with its noise over many steps, or level 0 alone."""
    one_of("estimator_of: method", method, tuple(KEYS))
    if method == NAIVE:
        return naive(loss, planned.max_level, planned.naive_samples())
    if method == LEVEL0:
        return naive(loss, 0, planned.samples[0])
    if method == STREAMING:
        return streaming_mlmc(loss, planned)
    return mlmc(loss, planned) if method == MLMC else delayed_mlmc(loss, planned)


Group = tuple[Mapping[int, Plan], Mapping[str, Sequence[int]]]  # plans, and which of them are timed for each method


def seconds_tables(loss: SDELoss, params: PyTree, groups: Sequence[Group], *, repeats: int) -> list[pd.DataFrame]:
    """Seconds of a step of SGD for groups of plans and methods, all of them in turn, one table for each group.

    The columns are ``plan`` (its key in the group), ``method, seconds, low, high, repeats``. What several rows have in
    common is timed once: equal plans, and level 0 with the same number of samples.
    """
    rows = [[(key, method) for method, keys in methods.items() for key in keys] for _, methods in groups]
    estimators, steps = {}, {}
    for (plans, _), pairs in zip(groups, rows, strict=True):
        for key, method in pairs:
            name = _name(method, plans[key])
            estimators[name], steps[name] = estimator_of(method, loss, plans[key]), _steps(method, plans[key])
    found = step_seconds(estimators, params, steps, repeats=repeats, compile_at_once=os.cpu_count() or 1)
    found = found.drop(columns="compile_seconds")  # two programs at a time: not those of one by itself
    return [
        pd.DataFrame([{"plan": key, "method": method, **found.loc[_name(method, plans[key])]} for key, method in pairs])
        for (plans, _), pairs in zip(groups, rows, strict=True)
    ]


def _name(method: str, planned: Plan) -> str:
    return f"{method}, {planned.samples[0] if method == LEVEL0 else planned}"


def _steps(method: str, planned: Plan) -> int:
    """Long enough for the clock, and for what a call costs beside its steps; a whole cycle of delayed MLMC."""
    if method in (NAIVE, MLMC):
        return max(1, 64 >> planned.max_level)
    return max(64, planned.periods[-1]) if method == DELAYED else max(16, 1024 // planned.samples[0])


def seconds_ratios(table: pd.DataFrame, over: str, under: str) -> dict[str, dict[str, float]]:
    """By plan, the ratio of the medians of two methods with its bootstrap interval, in JSON types."""
    found = {}
    for key, rows in table.groupby("plan"):
        if {over, under} <= set(rows.method):
            found[str(key)] = seconds_ratio(rows, over, under)._asdict()
    return found


def seconds_by_plan(table: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    """By plan, the seconds of each method, None where they were not measured, in JSON types."""
    found: dict[str, dict[str, float | None]] = {}
    for key, rows in table.groupby("plan"):
        seconds = rows.set_index("method").seconds
        found[str(key)] = {short: float(seconds[name]) if name in seconds else None for name, short in KEYS.items()}
    return found


def seconds_of(table: pd.DataFrame, key: int) -> dict[str, float]:
    """The seconds of a step by method, for one plan."""
    return table[table.plan == key].set_index("method").seconds.to_dict()


def limits_table(max_level: int, exponents: Sequence[float]) -> pd.DataFrame:
    """Exact limits of the step size on the quadratic loss, over MLMC's, by d and method: columns ``d, method, limit``.

    Pieces are even, and as old as their chunk. Delayed MLMC has the periods 2^(d l), streaming MLMC 2^l over the
    stride, whatever d is.

    >>> limits_table(2, [1.0]).round(2).set_index("method").limit.to_dict()["streaming MLMC"]
    1.11
    """
    rows = []
    for d in exponents:
        problem, held = _quadratic(max_level, d)
        most = stability_limit(delayed_model(problem, held.without_delay()))
        rows += [(d, MLMC, 1.0), (d, DELAYED, stability_limit(delayed_model(problem, held)) / most)]
        for method, stride in STRIDES.items():
            limit = chunked_stability_limit(streaming_levels(problem, streamed_plan(held, stride)))
            rows.append((d, method, limit / most))
    return pd.DataFrame(rows, columns=["d", "method", "limit"])


def stationary_table(max_level: int, d: float, step_sizes: Sequence[float]) -> pd.DataFrame:
    """The exact stationary ``E|grad F|^2`` on the quadratic loss, over MLMC's: columns ``method, step_size, error``.

    Step sizes are relative to MLMC's limit of stability. All methods have the same noise over many steps. The error is
    infinite beyond a limit.
    """
    problem, held = _quadratic(max_level, d)
    plain = delayed_model(problem, held.without_delay())
    rows, most = [], stability_limit(plain)
    for share in step_sizes:
        a = share * most
        errors = {MLMC: stationary_error(plain, a), DELAYED: stationary_error(delayed_model(problem, held), a)}
        for method, stride in STRIDES.items():
            errors[method] = chunked_stationary_error(streaming_levels(problem, streamed_plan(held, stride)), a)
        rows += [(method, share, error / errors[MLMC]) for method, error in errors.items()]
    return pd.DataFrame(rows, columns=["method", "step_size", "error"])


def _quadratic(max_level: int, d: float) -> tuple[Problem, Plan]:
    rates = Rates(b=1.8, c=1.0, d=d)
    problem = Problem(L=1.0, M=1.0, rates=rates, max_level=max_level, gap=1.0)
    return problem, plan(rates, max_level, level0_samples=LARGE)
