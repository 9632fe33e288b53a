"""Measured seconds: of calls in turn, of SGD steps, of gradients level by level.

Machines are shared and noisy. Calls to compare are therefore run in turn, many times, so that a slow moment affects
all of them. The median is reported, with its bootstrap interval.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import pandas as pd
from jaxtyping import Array, Key, PyTree

from dmlmc._internal.array_checks import parameters, random_key
from dmlmc._internal.checks import instance, integer
from dmlmc.allocation import plan
from dmlmc.calibration.interval import Interval, median_interval, median_ratio
from dmlmc.devices import one_device
from dmlmc.estimators import GradientEstimator, delayed_mlmc, mlmc, naive
from dmlmc.losses import MultilevelLoss
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, MLMC, NAIVE, PAPER, level_cost
from dmlmc.training.evaluation import Start
from dmlmc.training.program import Program


def in_turn(calls: dict[str, Callable[[], Any]], *, repeats: int = 5) -> pd.DataFrame:
    """Median ``seconds`` of each call, from ``low`` to ``high`` its 95% bootstrap interval, and all ``repeats``.

    Each call runs twice in its turn and the second time counts: the first one warms the caches that the other calls
    have filled, as they would be warm in a training run.

    >>> in_turn({"sum": lambda: jnp.arange(3).sum()}, repeats=3).columns.tolist()
    ['seconds', 'low', 'high', 'repeats']
    """
    repeats = integer("in_turn: repeats", repeats, minimum=1)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            jax.block_until_ready(call())
            began = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - began)
    rows = {name: (*median_interval(values), tuple(values)) for name, values in seconds.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["seconds", "low", "high", "repeats"])


def step_seconds(
    estimators: dict[str, GradientEstimator],
    params: PyTree,
    steps: dict[str, int],
    *,
    repeats: int = 5,
    compile_at_once: int = 1,
) -> pd.DataFrame:
    """Seconds of one step of SGD with each estimator, in its own compiled program, and ``compile_seconds``.

    ``steps[name]`` steps from step 0 are one call. Give a delayed estimator a whole cycle of its periods. With
    ``compile_at_once`` above 1, that many programs share the cores while they are compiled.
    """
    keys, programs = jr.split(jr.key(0), 1), []
    start = jax.tree.map(lambda leaf: leaf[None] if eqx.is_inexact_array(leaf) else leaf, params)
    calls: dict[str, Callable[[], Any]] = {}
    for name, estimator in estimators.items():
        program = Program(estimator, optax.sgd(1e-3), Start(start), keys, evaluate=None, mesh=one_device())
        programs.append(program)

        def call(program=program, count=steps[name]):
            return program.advance(jax.tree.map(jnp.copy, program.initial), 0, count)  # advance reuses its memory

        calls[name] = call
    with ThreadPoolExecutor(compile_at_once) as pool:  # all are traced by now: JAX traces in one thread only
        compiled = dict(zip(calls, pool.map(_seconds_to_compile, programs), strict=True))
    found, ends = in_turn(calls, repeats=repeats), ["seconds", "low", "high"]
    of_repeats = {name: tuple(one / steps[name] for one in found.repeats[name]) for name in calls}
    found[ends] = found[ends].div(pd.Series(steps), axis=0)
    return found.assign(repeats=pd.Series(of_repeats), compile_seconds=pd.Series(compiled))


def _seconds_to_compile(program: Program) -> float:
    began = time.perf_counter()
    program.compile()
    return time.perf_counter() - began


def method_seconds(
    loss: MultilevelLoss, params: PyTree, rates: Rates, max_level: int, level0_samples: int, *, repeats: int = 5
) -> pd.DataFrame:
    """Seconds of a step by naive, MLMC, delayed MLMC and naive at level 0, beside what the spans predict.

    The columns are ``max_level, method, seconds, low, high, repeats, compile_seconds, predicted``. The prediction is
    the mean span times the seconds of a level-0 step.
    """
    planned = plan(rates, max_level, level0_samples=level0_samples, allocation=PAPER)
    estimators = {
        NAIVE: naive(loss, max_level, planned.naive_samples()),
        MLMC: mlmc(loss, planned),
        DELAYED: delayed_mlmc(loss, planned),
        "level 0": naive(loss, 0, level0_samples),
    }
    cycle, top = math.lcm(*planned.periods), level_cost(max_level, rates.c)
    few = max(8, cycle // 64)  # long enough for the clock, shorter than a cycle
    steps = {NAIVE: few, MLMC: few, DELAYED: cycle, "level 0": cycle}
    found = step_seconds(estimators, params, steps, repeats=repeats)
    spans = {NAIVE: top, MLMC: top, DELAYED: planned.mean_span(), "level 0": 1.0}
    found = found.assign(predicted=pd.Series(spans) * found.seconds["level 0"], max_level=max_level)
    return found.rename_axis("method").reset_index()


def seconds_ratio(table: pd.DataFrame, over: str, under: str) -> Interval:
    """How many times as long a step by one method takes as by another, from a table of ``method_seconds``.

    The ratio of the medians with its bootstrap interval. Both were run in turn, so a resample takes the same repeats of
    both.

    >>> table = pd.DataFrame({"method": ["MLMC", "naive"], "repeats": [(2.0, 4.0, 6.0), (1.0, 2.0, 3.0)]})
    >>> print(seconds_ratio(table, "MLMC", "naive"))
    2.00 [2.00, 2.00]
    """
    return median_ratio(*(table[table.method == method].repeats.iloc[0] for method in (over, under)))


def chain_seconds(
    loss: MultilevelLoss, params: PyTree, level: int, counts: Sequence[int], *, repeats: int = 5
) -> pd.DataFrame:
    """Seconds of one naive SGD step at a level against the number of paths simulated side by side.

    Flat where the machine waits for the chain of time steps, rising where it is busy with paths. The columns are
    ``paths, seconds, low, high``.
    """
    estimators = {str(count): naive(loss, level, count) for count in counts}
    found = step_seconds(estimators, params, dict.fromkeys(estimators, 4), repeats=repeats)
    return found.drop(columns=["compile_seconds", "repeats"]).assign(paths=list(counts)).reset_index(drop=True)


def level_seconds(
    loss: MultilevelLoss,
    params: PyTree,
    key: Key[Array, ""],
    *,
    max_level: int,
    samples: int | None = None,
    repeats: int = 5,
) -> pd.DataFrame:
    """Measured seconds per sample and level: ``forward`` for D_l alone, ``gradient`` for forward and backward pass.

    For the levels 0, ..., ``max_level`` of a ``loss`` at ``params``, with noise drawn from ``key``: the median of
    ``repeats`` runs over a batch of ``samples``, by default as many as the loss asks for by ``samples_at_once``, or
    else 64. Neither compilation nor the drawing of noise is included.

    >>> from dmlmc import QuadraticLoss, Rates
    >>> quadratic = QuadraticLoss(dimension=2, L=2.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0))
    >>> level_seconds(quadratic, jnp.ones(2), jr.key(0), max_level=1).columns.tolist()
    ['level', 'forward', 'gradient']
    """
    instance("level_seconds: loss", loss, MultilevelLoss, ", such as dmlmc.SDELoss(...)")
    parameters("level_seconds: params", params)
    random_key("level_seconds: key", key)
    max_level = integer("level_seconds: max_level", max_level, minimum=0)
    repeats = integer("level_seconds: repeats", repeats, minimum=1)
    if samples is not None:
        samples = integer("level_seconds: samples", samples, minimum=1)
    counts = [samples or loss.samples_at_once(level) or 64 for level in range(max_level + 1)]
    finest = eqx.filter_jit(loss.batch)(jr.split(key, max(counts)), max_level)  # drawn once, coarsened for the others
    rows = []
    for level, count in enumerate(counts):
        noises = jax.tree.map(lambda leaf, count=count: leaf[:count], finest)
        for _ in range(max_level - level):
            noises = jax.vmap(loss.coarsen)(noises)

        def total(params, noises, level=level):
            return jnp.mean(loss.differences(params, noises, level))

        row: dict[str, float] = {"level": level}
        for name, function in (("forward", total), ("gradient", eqx.filter_grad(total))):
            compiled = eqx.filter_jit(function)
            timed = in_turn({name: partial(compiled, params, noises)}, repeats=repeats)
            row[name] = float(timed.seconds[name]) / count
        rows.append(row)
    return pd.DataFrame(rows)
