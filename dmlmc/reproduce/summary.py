"""The paper's claims and the results of the last run: ``python -m dmlmc.reproduce.summary`` prints them.

Each claim has its own rule for "reproduced". The numbers of a quick run are shown but not judged, because the paper's
values hold at the paper's sizes. A claim without data is "not run".
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dmlmc.allocation import plan
from dmlmc.calibration.interval import Interval, Range
from dmlmc.experiments.comparison import ratio_to_reach
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, MLMC, NAIVE, PAPER

DATA = Path(__file__).parents[2] / "figures" / "data"


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
    delayed = plan(Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=512, allocation=PAPER)
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


def judge(directory: Path, failed: Collection[str] = ()) -> list[dict[str, Any]]:
    """One record per claim from a data directory: claim, paper, found, low, high, reproduced.

    Numbers that were not measured are None. ``reproduced`` is also None for a quick run. Data of the notebooks in
    ``failed`` is ignored, because it is from an older run.
    """
    records = []
    for claim in CLAIMS:
        found: Interval | Range = Interval(math.nan, math.nan, math.nan)
        verdict = None
        profile = None if claim.notebook in failed else claim.profile(directory)
        if profile is not None:
            found = claim.measure(directory)
            verdict = bool(claim.holds(found)) if profile == "paper" else None
        known = (value if math.isfinite(value) else None for value in found)
        numbers = dict(zip(("found", "low", "high"), known, strict=True))
        records.append({"claim": claim.claim, "paper": claim.paper, **numbers, "reproduced": verdict})
    return records


def to_json(records: Sequence[dict[str, Any]]) -> str:
    """The records as the text of ``summary.json``."""
    return json.dumps(list(records), indent=1) + "\n"


def as_rows(records: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The cells of the table, header first.

    >>> row = {"claim": "span", "paper": "16", "found": 15.91, "low": None, "high": None, "reproduced": True}
    >>> as_rows([row])[1]
    ('span', '16', '15.9', 'unknown', 'yes')
    """
    rows: list[tuple[str, ...]] = [("claim", "paper", "found", "interval", "reproduced")]
    for record in records:
        if record["found"] is None:
            rows.append((record["claim"], record["paper"], "not run", "", ""))
            continue
        known = record["low"] is not None and record["high"] is not None
        interval = f"{record['low']:.3g} to {record['high']:.3g}" if known else "unknown"
        verdict = {True: "yes", False: "no", None: "too small to say"}[record["reproduced"]]
        rows.append((record["claim"], record["paper"], f"{record['found']:.3g}", interval, verdict))
    return rows


def as_text(records: Sequence[dict[str, Any]]) -> str:
    """The table for a terminal."""
    rows = as_rows(records)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: print the table and the rules."""
    parser = argparse.ArgumentParser("python -m dmlmc.reproduce.summary", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="directory with the data of the notebooks")
    options = parser.parse_args(arguments)
    print(as_text(judge(options.data)), "\nA claim counts as reproduced when", sep="\n")
    for claim in CLAIMS:
        print(f"- {claim.claim}: {claim.rule}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
