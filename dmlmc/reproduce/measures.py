"""How claims are measured from the data of the notebooks."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from dmlmc.allocation import plan
from dmlmc.calibration.interval import Interval, Range
from dmlmc.experiments.comparison import ratio_to_reach
from dmlmc.experiments.streaming import late_loss_ratio
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, PAPER


def saved(name: str, file: str) -> Callable[[Path], Interval | None]:
    """Read a number with its interval from the JSON of a notebook: estimate, low, high.

    None if the notebook ran before it saved this number.
    """

    def measure(directory: Path) -> Interval | None:
        found = json.loads((directory / file).read_text()).get(name)
        return None if found is None else _interval(found)

    return measure


def ratio(cost: str, over: str, under: str) -> Callable[[Path], Interval]:
    """The ratio of the costs of two methods to reach an equal loss for good: the mean over all target losses.

    The intervals of the targets are not independent, so the result has the widest one: from their lowest end to their
    highest.
    """

    def measure(directory: Path) -> Interval:
        targets = [target["loss"] for target in json.loads((directory / "deep_hedging.json").read_text())["targets"]]
        record = pd.read_csv(directory / "deep_hedging_curves.csv")
        found = [ratio_to_reach(record, target, cost, over=over, under=under) for target in targets]
        mean = math.fsum(one.estimate for one in found) / len(found)  # sum rounds differently from Python 3.12 on
        return Interval(mean, min(one.low for one in found), max(one.high for one in found))

    return measure


def tuned_ratio(optimiser: str, method: str) -> Callable[[Path], Interval]:
    """The span of MLMC over that of a method to reach a loss for good in deep hedging, each at its own best rate."""

    def measure(directory: Path) -> Interval:
        found = json.loads((directory / "tuned.json").read_text())["problems"]["deep hedging"][optimiser][method]
        ends = (found["span_ratio_to_mlmc"][end] for end in ("mean", "low", "high"))
        return Interval(*(math.nan if end is None else end for end in ends))  # null: the loss was not reached

    return measure


def counted_span(directory: Path) -> Interval:
    """Mean span per step of MLMC over that of delayed MLMC at the paper's settings. It is exact: low = high."""
    delayed = plan(Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=512, allocation=PAPER)
    times = delayed.without_delay().mean_span() / delayed.mean_span()
    return Interval(times, times, times)


def bound_over_truth(directory: Path) -> Range:
    """The bound for delayed MLMC over the exact average: median, least and largest ratio over all settings."""
    settings = pd.read_csv(directory / "theorem_curves.csv")
    settings = settings[settings.guarantee == DELAYED]
    ratios = settings.bound / settings.exact
    return Range(float(ratios.median()), float(ratios.min()), float(ratios.max()))


def streaming_seconds(levels: str) -> Callable[[Path], Interval]:
    """MLMC's seconds per step over streaming MLMC's at a finest level, with four paths at level 0."""

    def measure(directory: Path) -> Interval:
        found = json.loads((directory / "streaming.json").read_text())["mlmc_over_streaming"].get(levels)
        return _interval(found)

    return measure


def longest_streaming_step(directory: Path) -> Interval:
    """The seconds of a streaming step over those of a level-0 step, at the finest level where this is largest.

    Not known before l_max = 12 was measured.
    """
    found = json.loads((directory / "streaming.json").read_text())["streaming_over_level0"]
    return max(map(_interval, found.values())) if "12" in found else _interval(None)


def least_gain_of_batches(directory: Path) -> Interval:
    """MLMC's seconds per step over streaming MLMC's, at the batch where this is smallest."""
    found = json.loads((directory / "streaming_batches.json").read_text())["mlmc_over_streaming"]
    return min(map(_interval, found.values()))


def streaming_loss(problem: str, optimiser: str) -> Callable[[Path], Interval]:
    """The late loss of streaming MLMC over that of MLMC at equal iterations, each at its own best rate."""

    def measure(directory: Path) -> Interval:
        record = pd.read_csv(directory / "streaming_curves.csv")
        return late_loss_ratio(record[(record.problem == problem) & (record.optimiser == optimiser)])

    return measure


def _interval(found: dict[str, float] | None) -> Interval:
    return Interval(*(math.nan if found is None else found[end] for end in ("estimate", "low", "high")))
