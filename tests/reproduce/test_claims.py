import json
import math

import pytest

from dmlmc.calibration.interval import Interval, Range
from dmlmc.reproduce import claims, verdicts

CLAIMS = {claim.claim: claim for claim in claims.CLAIMS}


@pytest.mark.parametrize(
    ("claim", "yes", "no"),
    [
        ("variance of grad D_l falls as 2^(-b l)", [(1.9, 1.81, 2.0), (2.1, 2.0, 2.19)], [(1.79, 1.6, 1.99)]),
        ("cost of level l grows as 2^(c l)", [(1.0, 1.0, 1.0)], [(1.1, 1.0, 1.2)]),
        ("smoothness of grad D_l falls as 2^(-d l)", [(1.0, 0.81, 1.19)], [(1.3, 0.9, 1.7), (0.7, 0.6, 0.8)]),
        ("a solver of strong order k has b = 2k: Euler, k = 1/2", [(1.1, 1.0, 1.19)], [(1.5, 0.9, 2.1)]),
        ("span per step, MLMC over delayed MLMC", [(16.0, 16.0, 16.0)], [(15.9, 15.9, 15.9)]),
        ("span to equal loss, MLMC over delayed MLMC", [(15.8, 15.5, 16.1)], [(15.0, 14.3, 15.7)]),
        ("span to equal loss, naive over delayed MLMC", [(15.8, 1.1, 30)], [(15.8, 0.9, 31)]),
        ("work to equal loss, MLMC over delayed MLMC", [(1.2, 1.1, 1.3), (1.2, 1.19, 1.3)], [(1.2, 0.9, 1.5)]),
        ("seconds per step with few paths, MLMC over delayed MLMC", [(15.0, 13.0, 17.0)], [(12.9, 9.0, 17.0)]),
        ("seconds per step at the paper's batch, MLMC over delayed MLMC", [(2.7, 2.0, 3.0)], [(1.9, 1.8, 2.0)]),
        ("seconds per step at the paper's batch, naive over delayed MLMC", [(7.5, 5.0, 9.0)], [(4.9, 4.0, 6.0)]),
        (
            "seconds per step with four paths, l_max = 6, MLMC over streaming MLMC",
            [(30.0, 25.0, 40.0)],
            [(24.9, 9.0, 40.0), (math.nan,) * 3],
        ),
        ("seconds per step with four paths, l_max = 10, MLMC over streaming MLMC", [(350, 300, 400)], [(299, 9, 400)]),
        (
            "seconds per step with four paths, streaming MLMC over level 0, every l_max up to 12",
            [(2.5, 1.0, 3.0)],
            [(3.1, 1.0, 9.0), (math.nan,) * 3],
        ),
        (
            "seconds per step at equal long-run noise, MLMC over streaming MLMC, every batch",
            [(1.5, 1.0, 2.0)],
            [(0.99, 0.9, 2.0)],
        ),
        (
            "late loss at equal iterations, deep hedging, SGD, streaming MLMC over MLMC",
            [(1, 0.9, 1.1)],
            [(1.2, 1, 1.3)],
        ),
        (
            "bound of the theorem over the true mean squared gradient, quadratic loss",
            [(30.0, 1.0, 90.0)],
            [(30.0, 0.9, 90.0)],
        ),
    ],
)
def test_the_rule_of_a_claim_can_hold_and_fail(claim, yes, no):
    kind = Range if claim.startswith("bound") else Interval
    said = "counted" if CLAIMS[claim].kind == "counted" else "yes"
    assert {CLAIMS[claim].judge(kind(*found), "paper") for found in yes} == {(True, said)}
    assert {CLAIMS[claim].judge(kind(*found), "paper") for found in no} == {(False, "no")}


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.95, 0.91, 0.99), (True, "close to 1, interval below it")),
        ((1.05, 1.01, 1.09), (True, "close to 1, interval above it")),
        ((0.95, 0.79, 1.11), (None, "close to 1, interval reaches past the margin")),
        ((1.05, 0.89, 1.21), (None, "close to 1, interval reaches past the margin")),
        ((1.05, math.nan, math.nan), (None, "close to 1, interval unknown")),
    ],
)
def test_an_interval_is_judged_as_a_whole(interval, verdict):
    for name in ("smoothness of grad D_l falls as 2^(-d l)", "a solver of strong order k has b = 2k: Euler, k = 1/2"):
        assert CLAIMS[name].judge(Interval(*interval), "paper") == verdict


def test_a_ratio_of_seconds_is_judged_by_its_whole_interval():
    claim = CLAIMS["seconds per step with four paths, l_max = 6, MLMC over streaming MLMC"]
    assert claim.judge(Interval(30.0, 24.9, 40.0), "paper") == (None, "at least 25, interval reaches past it")


def test_the_ratios_at_the_papers_batch_are_those_that_notebook_06_saved(tmp_path):
    found = {"mlmc": (2.5, 1.9, 3.0), "naive": (7.5, 7.0, 8.0)}
    saved = {f"{over}_over_delayed_at_batch": Interval(*ends)._asdict() for over, ends in found.items()}
    (tmp_path / "wall_clock.json").write_text(json.dumps({"profile": "paper", **saved}))
    for over, text in (("MLMC", "at least 2, interval reaches past it"), ("naive", "yes")):
        claim = CLAIMS[f"seconds per step at the paper's batch, {over} over delayed MLMC"]
        measured = claim.measure(tmp_path)
        assert measured == found[over.lower()] and claim.judge(measured, claim.profile(tmp_path)).text == text


def test_a_loss_that_should_be_at_most_a_tenth_larger_is_judged_by_its_whole_interval():
    for problem in ("deep hedging", "neural SDE"):
        for optimiser in ("SGD", "Adam"):
            claim = CLAIMS[f"late loss at equal iterations, {problem}, {optimiser}, streaming MLMC over MLMC"]
            found = claim.judge(Interval(1.05, 0.9, 1.2), "paper")
            assert found == (None, "at most 1.1, interval reaches past it") and "at most 1.1" in claim.rule
            assert claim.judge(Interval(1.05, math.nan, math.nan), "paper").text == "at most 1.1, interval unknown"
            assert claim.judge(Interval(math.nan, math.nan, math.nan), "paper") == (False, "no")


def test_the_margins_are_those_written_down_before_the_run():
    assert verdicts.MARGIN == 0.2
    b = CLAIMS["variance of grad D_l falls as 2^(-b l)"]
    assert b.judge(Interval(2.02, 1.82, 2.22), "paper") == (None, "close to 2, interval reaches past the margin")
    exponents = [one for one in claims.CLAIMS if one.notebook == "01_assumptions" and one.kind == "measured"]
    stated = f"whole interval is within {verdicts.MARGIN} of"
    assert len(exponents) == 3 and all(stated in one.rule for one in exponents)


def test_more_work_saved_than_claimed_is_said_in_words():
    work = CLAIMS["work to equal loss, MLMC over delayed MLMC"]
    assert work.judge(Interval(2.6, 2.5, 2.7), "paper") == (None, "more than claimed (early phase)")
    assert work.judge(Interval(1.5, 1.21, 1.8), "paper").reproduced is None


def test_a_small_run_is_not_judged_unless_it_is_a_count():
    for claim in claims.CLAIMS:
        found = Interval(16.0, 16.0, 16.0) if claim.notebook is None else Interval(1.0, 1.0, 1.0)
        expected = (True, "counted") if claim.kind == "counted" else (None, "too small to say")
        assert claim.judge(found, "quick") == expected


def test_an_unknown_interval_reproduces_no_claim_about_an_interval():
    for claim in ("span to equal loss, MLMC over delayed MLMC", "work to equal loss, MLMC over delayed MLMC"):
        assert CLAIMS[claim].judge(Interval(20.0, math.nan, math.nan), "paper") == (False, "no")


@pytest.mark.parametrize("optimiser", ["SGD", "Adam"])
@pytest.mark.parametrize("counts", ["paper's", "held"])
def test_a_gain_at_tuned_rates_is_kept_kept_in_part_or_given_back(optimiser, counts):
    claim = CLAIMS[f"span to equal loss at tuned rates, {optimiser}, {counts} counts"]
    verdicts = [claim.judge(Interval(*found), "paper") for found in ((15, 14.5, 16), (15, 14.3, 16), (2, 0.9, 3))]
    assert verdicts == [(True, "kept"), (None, "kept in part"), (False, "given back")]
    assert claim.judge(Interval(math.nan, math.nan, math.nan), "paper").text == "given back"  # never reached
    assert claim.judge(Interval(15, 14.5, 16), "quick").text == "too small to say"
