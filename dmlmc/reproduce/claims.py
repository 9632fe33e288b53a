"""The claims: the paper's, and ours of streaming MLMC. How each is measured: measures.py. What is said: verdicts.py."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dmlmc.calibration.interval import Interval, Range
from dmlmc.reproduce.measures import (
    bound_over_truth,
    counted_span,
    least_gain_of_batches,
    longest_streaming_step,
    ratio,
    saved,
    streaming_loss,
    streaming_seconds,
    tuned_ratio,
)
from dmlmc.reproduce.verdicts import Verdict, at_least, at_most, close_to, keeps, slightly_above_one, yes_if
from dmlmc.schedule import DELAYED, MLMC, NAIVE


@dataclass(frozen=True)
class Claim:
    """A statement, the paper's or ours, how to measure it from the data of a notebook, and what to say of the result.

    ``kind`` is "counted" for arithmetic, which is no finding: it is shown as "counted", at any size of a run.
    ``headline`` is the wording in the README's table, or None if the claim is not in it. Claims with the same one share
    a row.
    """

    claim: str
    paper: str
    notebook: str | None  # None: needs no run
    measure: Callable[[Path], Interval | Range | None]  # None: not in the data
    rule: str
    verdict: Callable[[Any], Verdict]  # takes the result of ``measure``
    kind: Literal["measured", "counted"] = "measured"
    headline: str | None = None

    def profile(self, directory: Path) -> str | None:
        """The profile of the run whose data is in a directory, or None if there is no data."""
        if self.notebook is None:
            return "paper"
        data = directory / f"{self.notebook[3:]}.json"
        return json.loads(data.read_text())["profile"] if data.exists() else None

    def judge(self, found: Interval | Range, profile: str) -> Verdict:
        """The verdict on what was measured at a profile."""
        if self.kind == "measured" and profile != "paper":
            return Verdict(None, "too small to say")
        verdict = self.verdict(found)
        return Verdict(True, "counted") if self.kind == "counted" and verdict.reproduced else verdict


CLAIMS = (
    Claim(
        "variance of grad D_l falls as 2^(-b l)",
        "b close to 2",
        "01_assumptions",
        saved("b", "assumptions.json"),
        "the whole interval is within 0.2 of 2 (the paper reads off 2, works with 1.8, and needs b > c = 1)",
        close_to(2),
        headline="variance falls by 2^b per level: b (paper: 2)",
    ),
    Claim(
        "cost of level l grows as 2^(c l)",
        "c = 1",
        "01_assumptions",
        saved("c", "assumptions.json"),
        "no finding: time steps are counted, and c is 1 up to rounding",
        yes_if(lambda c: abs(c.estimate - 1) < 1e-6),
        kind="counted",
    ),
    Claim(
        "smoothness of grad D_l falls as 2^(-d l)",
        "d = 1",
        "01_assumptions",
        saved("d", "assumptions.json"),
        "the whole interval is within 0.2 of 1 (the margin of b)",
        close_to(1),
        headline="smoothness falls by 2^d per level: d (paper: 1)",
    ),
    Claim(
        "a solver of strong order k has b = 2k: Euler, k = 1/2",
        "b = 1",
        "01_assumptions",
        saved("euler_b", "assumptions.json"),
        "the whole interval is within 0.2 of 1 (the margin of Milstein's b)",
        close_to(1),
    ),
    Claim(
        "span per step, MLMC over delayed MLMC",
        "64 / 4 = 16",
        None,
        counted_span,
        "no finding: the plan is counted, and the ratio is 16 exactly",
        yes_if(lambda times: times.estimate == 16),
        kind="counted",
    ),
    Claim(
        "span to equal loss, MLMC over delayed MLMC",
        "16 by counting",
        "03_deep_hedging",
        ratio("span", MLMC, DELAYED),
        "the interval, over four target losses, lies above 14.4: stale gradients cost at most a tenth (our margin)",
        yes_if(lambda times: times.low > 0.9 * 16),
        headline="span to equal loss, published rate: MLMC / delayed MLMC",
    ),
    *(
        Claim(
            f"span to equal loss at tuned rates, {optimiser}, {counts} counts",
            "not compared",
            "04_tuned",
            tuned_ratio(optimiser, f"{DELAYED}, {counts} counts"),
            "each method at its own best rate, small batches, seeds with which both reach the loss; kept if the"
            " interval lies above 14.4, in part if above 1",
            keeps(16),
            headline="span at best rates, held counts: SGD; Adam" if counts == "held" else None,
        )
        for optimiser in ("SGD", "Adam")
        for counts in ("paper's", "held")
    ),
    Claim(
        "span to equal loss, naive over delayed MLMC",
        "above 1",
        "03_deep_hedging",
        ratio("span", NAIVE, DELAYED),
        "the interval lies above 1",
        yes_if(lambda times: times.low > 1),
    ),
    Claim(
        "work to equal loss, MLMC over delayed MLMC",
        "slightly above 1",
        "03_deep_hedging",
        ratio("work", MLMC, DELAYED),
        "the interval lies above 1; above 1.2 (the margin of b) it is more than slightly. The runs end while noise"
        " matters little; held noise counts more later",
        slightly_above_one,
    ),
    Claim(
        "seconds per step with few paths, MLMC over delayed MLMC",
        "16 by counting",
        "06_wall_clock",
        saved("mlmc_over_delayed", "wall_clock.json"),
        "the bootstrap interval of the ratio of medians lies above 13 (our margin)",
        at_least(13),
        headline="seconds, four paths: MLMC / delayed MLMC",
    ),
    *(
        Claim(
            f"seconds per step at the paper's batch, {over} over delayed MLMC",
            f"ours: at least {wanted}",
            "06_wall_clock",
            saved(f"{over.lower()}_over_delayed_at_batch", "wall_clock.json"),
            f"the ratio of medians is at least {wanted}, written down before the run; yes if the whole bootstrap"
            " interval is. The loss is the one that notebook 03 trains with, 512 paths at level 0, l_max = 6",
            at_least(wanted),
            headline="seconds, paper's batch: MLMC; naive / delayed MLMC",
        )
        for over, wanted in ((MLMC, 2), (NAIVE, 5))
    ),
    Claim(
        "bound of the theorem over the true mean squared gradient, quadratic loss",
        "at least 1",
        "02_theorem",
        bound_over_truth,
        "no setting has a ratio below 1; found is the median, the interval all of them",
        yes_if(lambda times: times.least >= 1),
    ),
    *(
        Claim(
            f"seconds per step with four paths, l_max = {level}, MLMC over streaming MLMC",
            f"ours: at least {wanted}",
            "05_streaming",
            streaming_seconds(str(level)),
            f"the ratio of medians is at least {wanted}, written down before the run; yes if the whole bootstrap"
            " interval is. Held counts, but none below one sample: so MLMC has less noise; notebook 05 says how much",
            at_least(wanted),
            headline="seconds, four paths: MLMC / streaming MLMC, l_max = 6; 10",
        )
        for level, wanted in ((6, 25), (10, 300))
    ),
    Claim(
        "seconds per step with four paths, streaming MLMC over level 0, every l_max up to 12",
        "ours: at most 3",
        "05_streaming",
        longest_streaming_step,
        "the ratio of medians is at most 3 at every l_max measured, and 12 is one; found is the largest",
        at_most(3),
    ),
    Claim(
        "seconds per step at equal long-run noise, MLMC over streaming MLMC, every batch",
        "ours: above 1",
        "05_streaming",
        least_gain_of_batches,
        "the ratio of medians is above 1 at every batch measured, from 16 paths on, where held counts have equal noise"
        " but for rounding; found is the least",
        at_least(1),
    ),
    *(
        Claim(
            f"late loss at equal iterations, {problem}, {optimiser}, streaming MLMC over MLMC",
            "ours: at most 1.1",
            "05_streaming",
            streaming_loss(problem, optimiser),
            "each at its own best rate, geometric mean over seeds of paired ratios; yes if the whole interval is at"
            " most 1.1",
            at_most(1.1),
        )
        for problem in ("deep hedging", "neural SDE")
        for optimiser in ("SGD", "Adam")
    ),
)
