"""The paper's claims: how each is measured from the data of the notebooks, and when it counts as reproduced."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dmlmc.allocation import plan
from dmlmc.calibration.interval import Interval, Range
from dmlmc.experiments.comparison import ratio_to_reach
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, MLMC, NAIVE


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, how to measure it from the data of a notebook, and when it counts as reproduced."""

    claim: str
    paper: str
    notebook: str | None  # None: needs no run
    measure: Callable[[Path], Interval | Range]
    rule: str
    holds: Callable[[Any], bool]  # takes the result of ``measure``

    def profile(self, directory: Path) -> str | None:
        """The profile of the run whose data is in a directory, or None if there is no data."""
        if self.notebook is None:
            return "paper"
        data = directory / f"{self.notebook[3:]}.json"
        return json.loads(data.read_text())["profile"] if data.exists() else None


def saved(name: str, file: str, kind: type[Interval] | type[Range] = Interval) -> Callable[[Path], Interval | Range]:
    """Read a number with its interval or range from the JSON of a notebook: estimate, low, high."""

    def measure(directory: Path) -> Interval | Range:
        return kind(*(json.loads((directory / file).read_text())[name][end] for end in ("estimate", "low", "high")))

    return measure


def ratio(cost: str, over: str, under: str) -> Callable[[Path], Interval]:
    """The ratio of the costs of two methods to reach an equal loss: the mean over all target losses.

    The intervals of the targets are not independent, so the result has the widest one: from their lowest end to their
    highest.
    """

    def measure(directory: Path) -> Interval:
        targets = [target["loss"] for target in json.loads((directory / "deep_hedging.json").read_text())["targets"]]
        record = pd.read_csv(directory / "deep_hedging_curves.csv")
        found = [ratio_to_reach(record, target, cost, over=over, under=under) for target in targets]
        mean = sum(one.estimate for one in found) / len(found)
        return Interval(mean, min(one.low for one in found), max(one.high for one in found))

    return measure


def counted_span(directory: Path) -> Interval:
    """Mean span per step of MLMC over that of delayed MLMC at the paper's settings. It is exact: low = high."""
    delayed = plan(Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=512)
    times = delayed.without_delay().mean_span() / delayed.mean_span()
    return Interval(times, times, times)


def bound_over_truth(directory: Path) -> Range:
    """The bound for delayed MLMC over the exact average: median, least and largest ratio over all settings."""
    settings = pd.read_csv(directory / "theorem_curves.csv")
    settings = settings[settings.guarantee == DELAYED]
    ratios = settings.bound / settings.exact
    return Range(float(ratios.median()), float(ratios.min()), float(ratios.max()))


CLAIMS = (
    Claim(
        "variance of grad D_l falls as 2^(-b l)",
        "b close to 2",
        "01_assumptions",
        saved("b", "assumptions.json"),
        "b is within 0.2 of 2 (the paper reads off 2 and works with 1.8), its interval above c = 1: Assumption 2",
        lambda b: abs(b.estimate - 2) <= 0.2 and b.low > 1,
    ),
    Claim(
        "cost of level l grows as 2^(c l)",
        "c = 1",
        "01_assumptions",
        saved("c", "assumptions.json"),
        "c is 1 up to rounding: time steps are counted, not timed",
        lambda c: abs(c.estimate - 1) < 1e-6,
    ),
    Claim(
        "smoothness of grad D_l falls as 2^(-d l)",
        "d = 1",
        "01_assumptions",
        saved("d", "assumptions.json"),
        "d is within 0.2 of 1 (the margin of b), its interval above 0, below which stale levels would not matter less",
        lambda d: abs(d.estimate - 1) <= 0.2 and d.low > 0,
    ),
    Claim(
        "a solver of strong order k has b = 2k: Euler, k = 1/2",
        "b = 1",
        "01_assumptions",
        saved("euler_b", "assumptions.json"),
        "b is within 0.2 of 1 (the margin of Milstein's b)",
        lambda b: abs(b.estimate - 1) <= 0.2,
    ),
    Claim(
        "span per step, MLMC over delayed MLMC, counted",
        "64 / 4 = 16",
        None,
        counted_span,
        "the ratio is 16 exactly",
        lambda times: times.estimate == 16,
    ),
    Claim(
        "span to equal loss, MLMC over delayed MLMC",
        "16 by counting",
        "03_deep_hedging",
        ratio("span", MLMC, DELAYED),
        "the interval, over four target losses, lies above 14.4: stale gradients cost at most a tenth (our margin)",
        lambda times: times.low > 0.9 * 16,
    ),
    Claim(
        "span to equal loss, naive over delayed MLMC",
        "above 1",
        "03_deep_hedging",
        ratio("span", NAIVE, DELAYED),
        "the interval lies above 1",
        lambda times: times.low > 1,
    ),
    Claim(
        "work to equal loss, MLMC over delayed MLMC",
        "slightly above 1",
        "03_deep_hedging",
        ratio("work", MLMC, DELAYED),
        "the interval lies above 1",
        lambda times: times.low > 1,
    ),
    Claim(
        "seconds per step with few paths, MLMC over delayed MLMC",
        "16 by counting",
        "06_wall_clock",
        saved("mlmc_over_delayed", "wall_clock.json", Range),
        "the ratio of medians is at least 13 (our margin); the interval is from the least to the largest of repeats",
        lambda times: times.median >= 13,
    ),
    Claim(
        "bound of the theorem over the true mean squared gradient, quadratic loss",
        "at least 1",
        "02_theorem",
        bound_over_truth,
        "no setting has a ratio below 1; found is the median, the interval all of them",
        lambda times: times.least >= 1,
    ),
)
