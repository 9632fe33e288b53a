"""The check list of multilevel gradients, and ``calibrate``: rates for a plan in one call."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
from jaxtyping import Array, Key, PyTree
from scipy.special import stdtrit

from dmlmc._internal.array_checks import parameters, random_key
from dmlmc._internal.checks import instance, integer, positive, positive_reals
from dmlmc.allocation import plan
from dmlmc.calibration.fits import FittedRates, fit_rates
from dmlmc.calibration.interval import Interval
from dmlmc.calibration.levels import Measurement, measure_levels
from dmlmc.losses import MultilevelLoss, mean_loss
from dmlmc.rates import Rates
from dmlmc.schedule import PAPER, Plan
from dmlmc.theory.staleness import largest_safe_step

ROUNDING = 1e-4  # a rate this small is 0: exact levels have no scatter, and an interval as narrow as rounding errors
HEAVY = 100.0  # a kurtosis above this needs ten thousand samples for a second moment to within a tenth
# The columns of a printed check list, and their headers in a notebook; g is the gradient of D_l of one sample.
HEADERS = {
    "level": "level", "samples": "samples", "steps": "cost [time steps]", "second_moment": "second moment E|g|²",
    "variance": "variance of g", "squared_mean": "squared mean |E g|²", "kurtosis": "kurtosis of g",
    "smoothness": "smoothness, pathwise", "mean_smoothness": "smoothness of the mean",
    "noise_floor": "noise floor of the mean's", "consistency": "telescoping gap [standard errors]",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class CheckList:
    """What to look at before trusting multilevel gradients: tails, telescoping, rates, a verdict. ``print`` it.

    ``table`` is that of the measurement, ``fitted`` the rates with intervals, ``plan`` what follows from them, or None.
    ``safe_step`` is the largest learning rate of SGD that the guarantee of ``dmlmc.theory.staleness`` admits for this
    plan and the pathwise smoothness in the table, with an interval. It is as local as the measurement: at one point,
    along one direction. ``dmlmc.calibrate`` and ``CheckList.from_measurement`` make it. A notebook shows it as a table.

    >>> from dmlmc import QuadraticLoss
    >>> quadratic = QuadraticLoss(dimension=2, L=2.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0))
    >>> _, report = calibrate(quadratic, jnp.ones(2), jr.key(0), 20_000, max_level=2, steps=[1, 2, 4])
    >>> report.warnings(), report.plan.max_level, len(report.verdict())
    ([], 2, 6)
    >>> print(report.safe_step)  # L = 2, so MLMC's is 1 / (2 + 1 + 1/2)
    0.19 [0.19, 0.19]
    """

    table: pd.DataFrame
    fitted: FittedRates
    plan: Plan | None
    safe_step: Interval | None = None

    @classmethod
    def from_measurement(
        cls, measured: Measurement, fitted: FittedRates | None = None, *, level0_samples: int = 512
    ) -> "CheckList":
        """The check list of a measurement, with the plan that its rates lead to.

        - ``measured``: from ``dmlmc.measure_levels``.
        - ``fitted``: from ``dmlmc.fit_rates``, by default with its own defaults.
        - ``level0_samples``: the sample count at level 0 of the plan.

        >>> from dmlmc import QuadraticLoss
        >>> quadratic = QuadraticLoss(dimension=2, L=2.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0))
        >>> found = measure_levels(
        ...     quadratic, jnp.ones(2), 1.1 * jnp.ones(2), jr.key(0), max_level=3, samples=2048, steps=[1, 2, 4, 8]
        ... )
        >>> CheckList.from_measurement(found, level0_samples=64).plan.periods
        (1, 2, 4, 8)
        """
        name = "CheckList.from_measurement"
        instance(f"{name}: measured", measured, Measurement, ", made by dmlmc.measure_levels(...)")
        if fitted is not None and not isinstance(fitted, FittedRates):
            raise TypeError(f"{name}: fitted must be what dmlmc.fit_rates(...) returns, got {fitted!r}.")
        fitted = fitted or fit_rates(measured)
        if fitted.b.estimate <= 0 or fitted.c.estimate <= 0:
            return cls(measured.table(), fitted, None)
        follows = plan(fitted.rates(), len(measured.levels) - 1, level0_samples=level0_samples)
        return cls(measured.table(), fitted, follows, _safe_step(measured, follows))

    def warnings(self) -> list[str]:
        """What is wrong or doubtful, in words; empty if nothing is."""
        found = []
        if self.fitted.b.high <= self.fitted.c.low:
            found.append(
                f"variance falls slower than cost grows, b = {self.fitted.b}: look for a kink in the loss (smooth it) "
                "or for noise that does not commute (SDELoss(antithetic=True))"
            )
        for row in self.table.itertuples():
            if row.kurtosis > row.samples / 2:
                found.append(f"level {row.level}: one or two of {row.samples} samples make most of the second moment")
            elif row.kurtosis > HEAVY:
                error = 100 * math.sqrt((row.kurtosis - 1) / row.samples)
                found.append(
                    f"level {row.level}: kurtosis {row.kurtosis:.0f}, so {row.samples} samples give the second moment "
                    f"to within {error:.0f}% at best"
                )
            if row.consistency > 3:
                found.append(f"level {row.level}: sum does not telescope, off by {row.consistency:.1f} standard errors")
        return found

    def verdict(self) -> list[str]:
        """Is MLMC worth it, is delay possible, what plan follows, its noise over many steps, and the largest safe step.

        A positive d makes delay possible. Whether it pays depends on the learning rate as well: held gradients hold
        their noise (the held allocation makes up for that), and a step should not be much above the largest safe one.
        """
        b, c, d = self.fitted
        worth = "yes" if b.low > c.high + ROUNDING else "no" if b.high <= c.low + ROUNDING else "not decided"
        possible = "yes" if d.low > ROUNDING else "no" if d.high <= ROUNDING else "not decided"
        if d.low > c.high:
            growth = "d > c, mean span is bounded"
        elif d.high >= c.low:
            growth = "d = c within its interval, mean span grows like l_max"
        else:
            growth = "d < c, mean span grows like 2^((c - d) l_max)"
        lines = [f"MLMC worth it (b > c)?  {worth}", f"delay possible (d > 0)? {possible}; {growth}"]
        if self.plan is None:
            return [*lines, "plan:                   none, the variance does not fall with the level"]
        return [*lines, *self._plan_lines(self.plan)]

    def _plan_lines(self, held: Plan) -> list[str]:
        mlmc, variances = held.without_delay(), self.table.variance.to_numpy()
        paper = replace(held, samples=mlmc.samples, allocation=PAPER)
        span, work = mlmc.mean_span() / held.mean_span(), held.mean_work() / mlmc.mean_work()
        noise, published = (one.long_run_variance(variances) / mlmc.variance(variances) for one in (held, paper))
        lines = [
            f"plan:                   N_l {held.samples}, periods {held.periods}",
            f"                        mean span {span:.1f} times below MLMC's, mean work {work:.2f} of MLMC's",
            f"long-run variance:      {noise:.2f} of MLMC's ({published:.2f} with the paper's N_l {paper.samples})",
        ]
        return [*lines, f"largest safe step:      {self.safe_step}, for the smoothness measured here"]

    def _cells(self) -> pd.DataFrame:
        digits = dict.fromkeys(HEADERS, "{:.2g}") | dict.fromkeys(("level", "samples", "steps"), "{:.0f}")
        return pd.DataFrame({name: self.table[name].map(form.format) for name, form in digits.items()})

    def _lines(self) -> list[str]:
        rates = ",  ".join(f"{name} = {value}" for name, value in self.fitted._asdict().items())
        warnings = self.warnings() or ["no warnings: tails are moderate and the sum telescopes"]
        return [rates, *warnings, *self.verdict()]

    def __str__(self) -> str:
        shown = self._cells().rename(columns={"squared_mean": "|mean|^2"}).rename(columns=lambda n: n.replace("_", " "))
        return "\n".join([shown.to_string(index=False), "", *self._lines()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = self._cells().rename(columns=HEADERS).to_html(index=False, border=0)
        return f"{table}\n<pre>{html.escape(chr(10).join(self._lines()))}</pre>"


def _safe_step(measured: Measurement, planned: Plan) -> Interval:
    """The largest safe step with a 95% interval: a jackknife over blocks, which share their noise over levels."""
    smoothness = measured.blocks.pivot(index="level", columns="block", values="smoothness").to_numpy()
    count, total = smoothness.shape[1], smoothness.sum(axis=1, keepdims=True)

    def largest(means):  # a level without curvature has smoothness 0
        return largest_safe_step(np.maximum(means, np.finfo(float).tiny), planned.periods)

    estimate = largest(total[:, 0] / count)
    without_one = [largest(means) for means in ((total - smoothness) / (count - 1)).T]
    half = float(stdtrit(count - 1, 0.975) * np.std(without_one) * math.sqrt(count - 1))
    return Interval(estimate, estimate - half, estimate + half)


def calibrate(
    loss: MultilevelLoss,
    params: PyTree,
    key: Key[Array, ""],
    budget: float,
    *,
    max_level: int = 5,
    steps: Sequence[float] | None = None,
    other: PyTree = None,
    distance: float = 0.01,
    blocks: int = 32,
    drop: int = 1,
) -> tuple[Rates, CheckList]:
    """Measure the rates of a loss at ``params`` and return them with the check list, ready for ``dmlmc.plan``.

    ``budget`` is the work to spend, in gradients of one path at level 0, and ``key`` decides which paths. All levels
    get the same samples, at least two per block. Smoothness compares two points. The second is ``other`` or, by
    default, a step of SGD away: against the mean gradient of level 0, by ``distance`` times the norm of the parameters,
    or times 1 if that is more. That is the direction in which training moves and in which a reused gradient goes stale.
    ``max_level``, ``steps`` and ``blocks`` go to ``dmlmc.measure_levels``, ``drop`` to ``dmlmc.fit_rates``. The
    variances and costs themselves are in the table of the report, and ``dmlmc.plan`` takes them, too.

    >>> import dmlmc
    >>> quadratic = dmlmc.QuadraticLoss(dimension=2, L=2.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0))
    >>> rates, report = calibrate(quadratic, jnp.ones(2), jr.key(0), 50_000, max_level=2, steps=[1, 2, 4])
    >>> abs(rates.b - 1.8) < 0.2, round(rates.c, 3), round(rates.d, 2)
    (True, 1.0, 1.0)
    >>> print(report.verdict()[0])
    MLMC worth it (b > c)?  yes
    >>> measured = {"variances": report.table.variance, "costs": report.table.steps}
    >>> dmlmc.plan(rates, max_level=4, level0_samples=64, **measured).periods
    (1, 2, 4, 8, 16)
    """
    instance("calibrate: loss", loss, MultilevelLoss, ", such as dmlmc.SDELoss(...)")
    parameters("calibrate: params", params)
    budget = positive("calibrate: budget", budget)
    distance = positive("calibrate: distance", distance)
    max_level = integer("calibrate: max_level", max_level, minimum=2)
    blocks = integer("calibrate: blocks", blocks, minimum=4)
    drop = integer("calibrate: drop", drop, minimum=0, maximum=max_level - 1)
    relative = 2.0 ** np.arange(max_level + 1)
    if steps is not None:
        relative = positive_reals("calibrate: steps", steps, length=max_level + 1)
        relative = relative / relative[0]
    pilot, main = jr.split(random_key("calibrate: key", key))
    if other is None:
        other = _one_step_away(loss, params, pilot, distance)
    samples = max(2 * blocks, int(budget / (sum(relative) + sum(relative[:-1]))))
    measured = measure_levels(
        loss, params, other, main, max_level=max_level, samples=samples, blocks=blocks, steps=steps
    )
    report = CheckList.from_measurement(measured, fit_rates(measured, drop=drop))
    if report.plan is None:
        raise ValueError(f"calibrate: loss has no rates to plan with, its fitted exponents are not positive.\n{report}")
    return report.plan.rates, report


def _one_step_away(loss: MultilevelLoss, params: PyTree, key: Key[Array, ""], distance: float) -> PyTree:
    trainable, static = eqx.partition(params, eqx.is_inexact_array)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda params: mean_loss(loss, params, 0, 1024, key)))(params)
    squares = [sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)) for tree in (gradient, trainable)]
    length, size = (float(jnp.sqrt(square)) for square in squares)
    if not math.isfinite(length):
        raise ValueError(
            f"calibrate: params must give level 0 a finite gradient, got one of norm {length}; look for a root, a "
            "logarithm or a division at 0 in the loss (jnp.sqrt has an infinite slope there)."
        )
    if length == 0:
        raise ValueError("calibrate: params must not be a stationary point of level 0, its gradient is 0; give other.")
    scale = distance * max(size, 1.0) / length
    moved = jax.tree.map(
        lambda leaf, slope: leaf - scale * slope, trainable, eqx.filter(gradient, eqx.is_inexact_array)
    )
    return eqx.combine(moved, static)
