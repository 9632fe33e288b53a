"""Which step sizes are stable on quadratic losses: tables of exact limits, and runs just below and above them.

First plain SGD with periods that are longer than d allows, then heavy-ball momentum. Without delay, momentum m raises
the largest stable learning rate from 2 to 2 (1 + m), divided by the curvature. With delay, momentum accumulates the
reused gradient: each step acts like 1 / (1 - m) steps, and nothing corrects that before the next refresh. The limit
falls by the same factor.
"""

import itertools
import math
from collections.abc import Sequence
from functools import partial

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pandas as pd
from jaxtyping import Float

from dmlmc.allocation import plan
from dmlmc.estimators import delayed_mlmc
from dmlmc.experiments.bounds import measured_run
from dmlmc.losses import QuadraticLoss
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, PAPER, Plan
from dmlmc.theory.quadratic import LinearModel, delayed_model, growth_factor, quadratic_curvatures, stability_limit
from dmlmc.theory.staleness import safe_step_size
from dmlmc.theory.theorem import Problem, theorem_step_size
from dmlmc.training.sweep import sweep

StepSizes = Sequence[float] | Float[np.ndarray, " sizes"]


class SignedQuadraticLoss(QuadraticLoss):
    """A ``QuadraticLoss`` whose level l has curvature ``signs[l] 2^(-d l) L``: Assumption 3 bounds only its size.

    >>> SignedQuadraticLoss(1, 1.0, 1.0, Rates(1.8, 1.0, 1.0), signs=(0.0, 1.0)).curvature(1)
    0.5
    """

    signs: tuple[float, ...]

    def __init__(self, dimension: int, L: float, M: float, rates: Rates, signs: Sequence[float]):
        super().__init__(dimension, L, M, rates)
        self.signs = tuple(signs)

    def curvature(self, level: int) -> float:
        return self.L * sum(sign * 2.0 ** (-self.rates.d * k) for k, sign in enumerate(self.signs[: level + 1]))


def power_plan(problem: Problem, exponent: float) -> Plan:
    """One sample per level and periods ``2^(d' l)``, where d' is the exponent, rounded to powers of two so they nest.

    >>> from dmlmc import Rates
    >>> power_plan(Problem(1.0, 1.0, Rates(1.8, 1.0, 1.0), 3, 1.0), 1.5).periods
    (1, 4, 8, 32)
    """
    levels = range(problem.max_level + 1)
    periods = [2 ** math.floor(exponent * level + 0.5) for level in levels]
    return plan(problem.rates, problem.max_level, samples=[1] * len(levels), periods=periods, allocation=PAPER)


def sign_patterns(problem: Problem, periods: Sequence[int]) -> list[LinearModel]:
    """Every quadratic whose levels have curvature plus, minus or zero times ``2^(-d l) L``, with a positive sum.

    Assumption 3 allows all of them: it bounds sizes, not signs.
    """
    curvatures = np.array(quadratic_curvatures(problem))
    patterns = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=len(curvatures)))) * curvatures
    noise = (1.0,) * len(curvatures)
    return [LinearModel(tuple(row), noise, tuple(periods)) for row in patterns if row.sum() > 1e-9]


def growth_map(problem: Problem, exponents: Sequence[float], step_sizes: StepSizes, *, worst: bool) -> pd.DataFrame:
    """Growth per step for each exponent d' and step size, of ``QuadraticLoss`` or of the worst sign pattern."""
    frames = []
    for exponent in exponents:
        periods = power_plan(problem, exponent).periods
        plain = LinearModel(quadratic_curvatures(problem), (1.0,) * len(periods), periods)
        models = sign_patterns(problem, periods) if worst else [plain]
        growth = np.max([growth_factor(model, step_sizes) for model in models], axis=0)
        frames.append(pd.DataFrame({"exponent": exponent, "step_size": step_sizes, "growth": growth}))
    return pd.concat(frames, ignore_index=True)


def safe_lines(problem: Problem, exponents: Sequence[float], steps: int) -> pd.DataFrame:
    """The step sizes that the theory proves safe: the sharper one for any d', the paper's only if d' is at most d."""
    rows = []
    for exponent in exponents:
        paper = theorem_step_size(problem, DELAYED, steps) if exponent <= problem.rates.d else math.nan
        safe = safe_step_size(problem, power_plan(problem, exponent))
        rows.append({"exponent": exponent, "safe, sharper bound": safe, f"safe, paper (T = {steps})": paper})
    return pd.DataFrame(rows)


def step_size_ladder(problem: Problem, samples: float, steps: int) -> dict[str, float]:
    """Step sizes for delayed MLMC, from the smallest guarantee to the largest stable one, and the latter for MLMC.

    >>> from dmlmc import Rates
    >>> ladder = step_size_ladder(Problem(1.0, 1.0, Rates(1.8, 1.0, 1.0), 6, 1.0), samples=1000, steps=4000)
    >>> {name: float(f"{size:.3g}") for name, size in ladder.items()}
    {'paper': 0.000662, 'sharper': 0.164, 'stable, delayed MLMC': 2.0, 'stable, MLMC': 1.01}
    """
    planned = problem.plan(samples)
    return {
        "paper": theorem_step_size(problem, DELAYED, steps),
        "sharper": safe_step_size(problem, planned),
        "stable, delayed MLMC": stability_limit(delayed_model(problem, planned), points=60),
        "stable, MLMC": stability_limit(delayed_model(problem, planned.without_delay()), points=60),
    }


def measured_stability(
    problem: Problem, plans: dict[float, Plan], step_sizes: StepSizes, signs: Sequence[float], steps: int
) -> pd.DataFrame:
    """Runs of delayed MLMC on a signed quadratic loss: which ones are unstable?

    ``plans`` maps the exponent d' of the periods to the plan. A run is ``unstable`` if its last ``|grad F|^2`` exceeds
    ten times the first, or is not finite.
    """
    loss = SignedQuadraticLoss(2, problem.L, 1e-6 * problem.M, problem.rates, signs)
    rows = []

    def gradient(params):
        return loss.curvature(problem.max_level) * params

    for exponent, planned in plans.items():
        estimator = delayed_mlmc(loss, planned)
        squares, _ = measured_run(estimator, gradient, jnp.ones(2), step_sizes, steps, jr.key(0)[None])
        grown = ~(squares[:, 0, -1] <= 10 * squares[:, 0, 0])
        rows += [
            {"exponent": exponent, "step_size": size, "unstable": bool(unstable)}
            for size, unstable in zip(step_sizes, grown, strict=True)
        ]
    return pd.DataFrame(rows)


def momentum_limits_table(fresh: float, periods: Sequence[int], momenta: Sequence[float]) -> pd.DataFrame:
    """The largest stable learning rate for each period of a stale level of curvature 1 and each momentum.

    ``fresh`` is the curvature of a second level, refreshed at every step. The columns are ``period, momentum, limit``.

    >>> momentum_limits_table(0.0, [1, 4], [0.0, 0.5]).limit.round(3).tolist()
    [2.0, 3.0, 0.5, 0.447]
    """
    return pd.DataFrame(
        [
            (period, momentum, stability_limit(_two_levels(fresh, period), momentum, points=100))
            for period in periods
            for momentum in momenta
        ],
        columns=["period", "momentum", "limit"],
    )


def runs_near_limits(
    fresh: float, limits: pd.DataFrame, factors: Sequence[float] = (0.8, 1.25), steps: int = 1000
) -> pd.DataFrame:
    """Runs of delayed MLMC with ``optax.sgd(rate, momentum)`` at ``factors`` times each limit: which ones diverge?

    A run is ``unstable`` if its last loss is not below its first; ``growth`` is the exact factor per step.
    """
    loss = SignedQuadraticLoss(1, 2.0, 1e-12, Rates(b=1.8, c=1.0, d=1.0), signs=(fresh / 2, 1.0))
    frames = []
    for period, rows in limits.groupby("period", sort=False):
        estimator = delayed_mlmc(loss, plan(loss.rates, 1, samples=[1, 1], periods=[1, period], allocation=PAPER))
        optimisers = {
            str(row.momentum): (partial(optax.sgd, momentum=row.momentum), [factor * row.limit for factor in factors])
            for row in rows.itertuples()
        }
        _, record = sweep(
            estimator,
            optimisers,
            jnp.ones(1),
            steps,
            jr.key(0),
            validation=lambda params: loss.mean(params, 1),
            evaluate_every=steps,
            progress=False,
        )
        ends = record[record.step == steps]
        found = pd.DataFrame({"period": period, "momentum": ends.optimiser.astype(float)})
        found["learning_rate"] = ends.learning_rate
        found["unstable"] = ~(ends.loss < record[record.step == 0].loss.to_numpy())
        pairs = zip(found.learning_rate, found.momentum, strict=True)
        found["growth"] = [float(growth_factor(_two_levels(fresh, int(str(period))), rate, m)) for rate, m in pairs]
        frames.append(found)
    return pd.concat(frames, ignore_index=True)


def worst_drop(limits: pd.DataFrame) -> float:
    """The largest factor by which momentum lowers the limit: the limit without momentum over the limit with it."""
    without = limits[limits.momentum == 0.0].set_index("period").limit
    return float(np.max(without.loc[limits.period].to_numpy() / limits.limit))


def _two_levels(fresh: float, period: int) -> LinearModel:
    return LinearModel((fresh, 1.0), (1.0, 1.0), (1, period))
