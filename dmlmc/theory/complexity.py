"""The cost of a guaranteed accuracy, and Table 1: in symbols, in numbers, and as fitted exponents. No JAX."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from dmlmc._internal.checks import positive
from dmlmc.schedule import DELAYED, METHODS, MLMC, NAIVE, STREAMING, level_cost
from dmlmc.theory.quadratic import exact_moments, linear_model
from dmlmc.theory.staleness import safe_step_size, sharper_bound
from dmlmc.theory.streaming import streaming_bound, streaming_plan, streaming_step_size
from dmlmc.theory.theorem import Bound, Problem, bound, check_method, theorem_step_size

SHARPER = f"{DELAYED}, sharper"  # the bound of dmlmc.theory.staleness on delayed MLMC, instead of the paper's
GUARANTEES = (*METHODS, SHARPER)
TABLE_1 = (*GUARANTEES, STREAMING)  # with pieces that are gathered and held, which has a bound of the same form


def guarantee(problem: Problem, name: str, samples: float) -> Callable[[int], Bound]:
    """The bound as a function of the number of steps, at the largest step size that it admits."""
    if name == SHARPER:
        plan = problem.plan(samples)
        return lambda steps: sharper_bound(problem, plan, steps)
    if name == STREAMING:
        return lambda steps: streaming_bound(problem, samples, steps)
    check_method("guarantee", name)
    return lambda steps: bound(problem, name, samples, steps)


def guaranteed_step_size(problem: Problem, name: str, samples: float, steps: int) -> float:
    """The largest step size that a guarantee admits."""
    if name == SHARPER:
        return safe_step_size(problem, problem.plan(samples))
    if name == STREAMING:
        return streaming_step_size(problem)
    return theorem_step_size(problem, name, steps)


def steps_needed(problem: Problem, name: str, samples: float, target: float) -> int:
    """The smallest number of steps after which a mean squared gradient norm of ``target`` is guaranteed.

    The search is a bisection, because the theorem's step size depends on T: it falls as 1 / log(2 T + 1).

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> {name: steps_needed(problem, name, samples=10**6, target=0.1) for name in TABLE_1}
    {'naive': 41, 'MLMC': 41, 'delayed MLMC': 173082, 'delayed MLMC, sharper': 122, 'streaming MLMC': 520}
    """
    bound_after, target = guarantee(problem, name, samples), positive("steps_needed: target", target)
    noise, high = bound_after(1).noise, 1
    if noise >= target:
        # N_l is rounded up, so the variance of the plan falls unevenly with N. M' is above it and falls as 1 / N.
        promised = 2 * problem.variance(MLMC, samples) if name in (SHARPER, STREAMING) else noise
        raise ValueError(
            f"steps_needed: target must exceed the noise in the bound, {noise:.4g} at N = {samples:g}, got {target}; "
            f"N above {samples * promised / target:.4g} would do."
        )
    while bound_after(high).total > target:
        high *= 2
    low = high // 2  # too few, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound_after(middle).total <= target else (middle, high)
    return high


def span_per_step(problem: Problem, name: str) -> float:
    """Mean span of a step: one path at l_max for naive and MLMC, the mean over the periods for delayed MLMC.

    For streaming MLMC it is 1, the span of a chunk: a path at level l has ``2^(c l)`` of them.
    """
    if name == STREAMING:
        return 1.0
    if name in (NAIVE, MLMC):
        return level_cost(problem.max_level, problem.rates.c)
    return problem.plan(1.0).mean_span()


def work_per_step(problem: Problem, name: str, samples: float) -> float:
    """Mean work of a step. The naive batch has N paths."""
    if name == NAIVE:
        return math.ceil(samples) * level_cost(problem.max_level, problem.rates.c)
    plan = streaming_plan(problem, samples) if name == STREAMING else problem.plan(samples)
    return (plan.without_delay() if name == MLMC else plan).mean_work()


def span_needed(problem: Problem, name: str, samples: float, target: float) -> float:
    """``steps_needed`` times the mean span of a step."""
    return steps_needed(problem, name, samples, target) * span_per_step(problem, name)


def guaranteed_spans(problem: Problem, max_levels: Sequence[int], targets: Sequence[float]) -> pd.DataFrame:
    """The span to a guaranteed accuracy, for MLMC and for delayed MLMC by the paper's bound and by the sharper one.

    As in the paper, batches are so large that the noise is negligible. The columns are ``max_level, target, guarantee,
    span``.
    """
    cases = product(max_levels, targets, (MLMC, DELAYED, SHARPER))
    rows = [(l, x, name, span_needed(replace(problem, max_level=l), name, 1e15, x)) for l, x, name in cases]
    return pd.DataFrame(rows, columns=["max_level", "target", "guarantee", "span"])


def pays_from(spans: pd.DataFrame) -> pd.DataFrame:
    """The first l_max of ``guaranteed_spans`` from which on delay has the smaller span than MLMC, for each target.

    NaN if there is none. The columns are the two bounds on delayed MLMC.
    """
    table = spans.pivot(index=["target", "max_level"], columns="guarantee", values="span")
    less = table[[DELAYED, SHARPER]].lt(table[MLMC], axis=0)
    ahead = less.iloc[::-1].groupby("target").cummin().astype(bool)  # at this l_max and at all larger ones
    levels = pd.Series(ahead.index.get_level_values("max_level"), index=ahead.index, dtype=float)
    return pd.DataFrame({name: levels.where(ahead[name]).groupby("target").min() for name in ahead})


def table_1_symbols() -> pd.DataFrame:
    """Table 1 in symbols, with rows for our bounds on delayed and on streaming MLMC, and a naive rate without l_max."""
    delayed_work = "N T + T sum 2^((c-d) l)"
    rows = {
        NAIVE: ("1/T + M/N", "1/T + (M/N) l_max", "N T 2^(c l_max)", "T 2^(c l_max)"),
        MLMC: ("1/T + M/N", "1/T + M/N", "N T + T 2^(c l_max)", "T 2^(c l_max)"),
        DELAYED: ("", "(log T / T + M/N) l_max", delayed_work, "T sum 2^((c-d) l)"),
        SHARPER: ("l_max / T + M/N", "", delayed_work, "T sum 2^((c-d) l)"),
        STREAMING: ("sum 2^((c-d) l) / T + M/N", "", "N T + T l_max", "T"),
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=["rate, sharper", "rate, paper", "work", "span"])


def table_1(problem: Problem, samples: float, steps: int) -> pd.DataFrame:
    """Table 1 in numbers: for each guarantee the bound, its two terms, and the work and span of ``steps`` steps.

    >>> from dmlmc import Rates
    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=6, gap=1.0)
    >>> table_1(problem, samples=1000, steps=4000).span.tolist()
    [256000.0, 256000.0, 16000.0, 16000.0, 4000.0]
    """
    rows = {}
    for name in TABLE_1:
        found = guarantee(problem, name, samples)(steps)
        work, span = work_per_step(problem, name, samples), span_per_step(problem, name)
        rows[name] = (found.start, found.noise, found.total, work * steps, span * steps)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["start", "noise", "bound", "work", "span"])


def growth(problem: Problem, samples: int) -> pd.DataFrame:
    """Exponents of work, span and error in T, N and ``2^l_max``: those of Table 1, and fitted ones.

    Work and span are counted step by step. The error is the exact average of ``|grad F|^2`` on the quadratic loss, at
    step size ``1 / L'`` without delay and at the safe step size with delay. ``start`` is the error without noise,
    ``noise`` the error near the stationary state. A factor l_max or log T is exponent 0 in the claim, and changes the
    fit a little.
    """
    powers, levels, sizes = 2 ** np.arange(6, 12), range(2, 7), [2**power for power in range(10, 17)]
    longest = int(max(powers))
    per_level = [replace(problem, max_level=level) for level in levels]
    rows = []
    for method in METHODS:
        c = problem.rates.c
        per_level_span = max(c - problem.rates.d, 0.0) if method == DELAYED else c
        work, span = (_cumulative(problem, method, samples, cost, longest) for cost in ("work", "span"))
        start = np.cumsum(_squares(problem, method, 1e15, longest)) / np.arange(1, longest + 1)
        top = 2.0 ** np.array(levels)
        series: list[tuple[str, str, float, ArrayLike, ArrayLike]] = [
            ("work", "T", 1.0, powers, work[powers]),
            ("work", "N", 1.0, sizes, [work_per_step(problem, method, size) for size in sizes]),
            ("work", "2^l_max", c * (method == NAIVE), top, [work_per_step(p, method, samples) for p in per_level]),
            ("span", "T", 1.0, powers, span[powers]),
            ("span", "2^l_max", per_level_span, top, [span_per_step(p, method) for p in per_level]),
            ("start", "T", -1.0, powers[2:], start[powers[2:] - 1]),
            ("noise", "N", -1.0, sizes, [_stationary(problem, method, size) for size in sizes]),
            ("noise", "2^l_max", 0.0, top, [_stationary(p, method, 1 << 20) for p in per_level]),
        ]
        for quantity, against, claim, at, values in series:
            rows.append((quantity, against, method, claim, fitted_exponent(at, values)))
    return pd.DataFrame(rows, columns=["quantity", "against", "method", "claimed", "fitted"])


def growth_table(exponents: pd.DataFrame) -> pd.DataFrame:
    """The exponents of ``growth`` as "claimed / fitted": a row per quantity and variable, a column per method."""
    pairs = zip(exponents.claimed, exponents.fitted, strict=True)
    cells = exponents.assign(cell=[f"{claimed:g} / {fitted:.2f}" for claimed, fitted in pairs])
    table = cells.pivot_table(
        index=["quantity", "against"], columns="method", values="cell", aggfunc="first", sort=False
    )
    return table[list(METHODS)]


def _cumulative(problem: Problem, method: str, samples: int, cost: str, steps: int) -> Float[np.ndarray, " {steps}+1"]:
    if method == NAIVE:
        unit = level_cost(problem.max_level, problem.rates.c)
        return np.arange(steps + 1) * unit * (samples if cost == "work" else 1)
    plan = problem.plan(samples) if method == DELAYED else problem.plan(samples).without_delay()
    return getattr(plan, f"cumulative_{cost}")(steps)


def _squares(problem: Problem, method: str, samples: float, steps: int) -> Float[np.ndarray, " {steps}"]:
    """Exact ``E|grad F(x_t)|^2`` on the quadratic loss, at ``1 / L'`` without delay, at the safe step size with it."""
    step_size = safe_step_size(problem, problem.plan(samples)) if method == DELAYED else 1 / problem.L_prime
    return exact_moments(linear_model(problem, method, samples), problem.gap, step_size, steps)[0]


def _stationary(problem: Problem, method: str, samples: int) -> float:
    """The mean of ``|grad F|^2`` over the second half of 1024 steps that start very close to the optimum."""
    return float(np.mean(_squares(replace(problem, gap=1e-12 * problem.gap), method, samples, 1024)[512:]))


def fitted_exponent(sizes: ArrayLike, values: ArrayLike) -> float:
    """The exponent p in values ~ sizes^p: the slope of log2 values against log2 sizes.

    >>> round(fitted_exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    return float(np.polyfit(np.log2(np.asarray(sizes, float)), np.log2(np.asarray(values, float)), 1)[0])
