import math

import pytest

from dmlmc.calibration.interval import Interval, Range
from dmlmc.reproduce import claims

CLAIMS = {claim.claim: claim for claim in claims.CLAIMS}


@pytest.mark.parametrize(
    ("claim", "yes", "no"),
    [
        ("variance of grad D_l falls as 2^(-b l)", [(1.81, 1.7, 2.0)], [(1.79, 1.7, 1.9), (2.0, 0.9, 3.1)]),
        ("cost of level l grows as 2^(c l)", [(1.0, 1.0, 1.0)], [(1.1, 1.0, 1.2)]),
        ("smoothness of grad D_l falls as 2^(-d l)", [(1.2, 1.0, 1.4)], [(1.3, 0.9, 1.7), (1.0, -0.1, 2.1)]),
        ("a solver of strong order k has b = 2k: Euler, k = 1/2", [(1.1, 0.9, 1.3)], [(1.5, 0.9, 2.1)]),
        ("span to equal loss, MLMC over delayed MLMC", [(15.8, 15.5, 16.1)], [(15.0, 14.3, 15.7)]),
        ("span to equal loss, naive over delayed MLMC", [(15.8, 1.1, 30)], [(15.8, 0.9, 31)]),
        ("work to equal loss, MLMC over delayed MLMC", [(1.2, 1.1, 1.3)], [(1.2, 0.9, 1.5)]),
        ("seconds per step with few paths, MLMC over delayed MLMC", [(13.0, 9.0, 17.0)], [(12.9, 9.0, 17.0)]),
        (
            "bound of the theorem over the true mean squared gradient, quadratic loss",
            [(30.0, 1.0, 90.0)],
            [(30.0, 0.9, 90.0)],
        ),
    ],
)
def test_the_rule_of_a_claim_can_hold_and_fail(claim, yes, no):
    holds = CLAIMS[claim].holds
    kind = Range if claim.startswith(("seconds", "bound")) else Interval
    assert all(holds(kind(*found)) for found in yes) and not any(holds(kind(*found)) for found in no)


def test_an_unknown_interval_reproduces_no_claim_about_an_interval():
    for claim in ("span to equal loss, MLMC over delayed MLMC", "work to equal loss, MLMC over delayed MLMC"):
        assert not CLAIMS[claim].holds(Interval(20.0, math.nan, math.nan))
