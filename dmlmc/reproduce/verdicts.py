"""What is said of a claim, given what was found.

The interval of an exponent is judged as a whole, against a margin that was written down before the committed run: an
estimate within the margin is not enough. That "slightly above 1" ends where that margin does was decided after it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from dmlmc.calibration.interval import Interval

MARGIN = 0.2  # of the exponents, around what the paper reads off or claims


class Verdict(NamedTuple):
    """What is said of a claim: ``text``, and in short whether it is reproduced. None: neither yes nor no."""

    reproduced: bool | None
    text: str


def yes_if(holds: Callable[[Any], bool]) -> Callable[[Any], Verdict]:
    """A verdict of yes or no.

    >>> yes_if(lambda times: times.low > 1)(Interval(1.5, 0.9, 2.1))
    Verdict(reproduced=False, text='no')
    """
    return lambda found: Verdict(True, "yes") if holds(found) else Verdict(False, "no")


def close_to(value: float) -> Callable[[Interval], Verdict]:
    """A verdict on an exponent that should have a value: reproduced if the whole interval is within the margin.

    >>> close_to(1)(Interval(0.95, 0.91, 0.99))
    Verdict(reproduced=True, text='close to 1, interval below it')
    >>> close_to(1)(Interval(0.95, 0.75, 1.15))
    Verdict(reproduced=None, text='close to 1, interval reaches past the margin')
    """

    def verdict(found: Interval) -> Verdict:
        def within(end: float) -> bool:
            return abs(end - value) <= MARGIN

        if not within(found.estimate):
            return Verdict(False, "no")
        if not (within(found.low) and within(found.high)):
            reach = "unknown" if math.isnan(found.high - found.low) else "reaches past the margin"
            return Verdict(None, f"close to {value:g}, interval {reach}")
        if found.low <= value <= found.high:
            return Verdict(True, "yes")
        return Verdict(True, f"close to {value:g}, interval {'below' if found.high < value else 'above'} it")

    return verdict


def slightly_above_one(found: Interval) -> Verdict:
    """The verdict on a ratio of work that should be slightly above 1: more than the margin above is more than claimed.

    >>> slightly_above_one(Interval(2.6, 2.5, 2.7))
    Verdict(reproduced=None, text='more than claimed (early phase)')
    """
    if found.low > 1 + MARGIN:
        return Verdict(None, "more than claimed (early phase)")
    return Verdict(True, "yes") if found.low > 1 else Verdict(False, "no")


def keeps(counted: float) -> Callable[[Interval], Verdict]:
    """A verdict on a gain in span at tuned rates: kept up to a tenth, as in the published comparison, or in part.

    >>> [keeps(16)(Interval(*found)).text for found in ((16, 15, 17), (8, 6, 10), (1.5, 0.5, 2.5))]
    ['kept', 'kept in part', 'given back']
    """

    def verdict(found: Interval) -> Verdict:
        if found.low > 0.9 * counted:
            return Verdict(True, "kept")
        return Verdict(None, "kept in part") if found.low > 1 else Verdict(False, "given back")

    return verdict


def at_least(value: float) -> Callable[[Interval], Verdict]:
    """A verdict on a ratio that should not be smaller than a value: the whole interval counts.

    >>> [at_least(25)(Interval(*found)).text for found in ((30, 26, 34), (26, 20, 30), (20, 15, 30))]
    ['yes', 'at least 25, interval reaches past it', 'no']
    """
    return lambda found: _bounded(found.estimate >= value, found.low >= value, found.low, f"at least {value:g}")


def at_most(value: float) -> Callable[[Interval], Verdict]:
    """A verdict on a ratio that should not be larger than a value: the whole interval counts.

    >>> [at_most(1.1)(Interval(*found)).text for found in ((0.9, 0.8, 1.0), (1.0, 0.8, 1.2), (1.2, 1.0, 1.4))]
    ['yes', 'at most 1.1, interval reaches past it', 'no']
    """
    return lambda found: _bounded(found.estimate <= value, found.high <= value, found.high, f"at most {value:g}")


def _bounded(estimate_holds: bool, interval_holds: bool, end: float, wanted: str) -> Verdict:
    if not estimate_holds:
        return Verdict(False, "no")
    if interval_holds:
        return Verdict(True, "yes")
    return Verdict(None, f"{wanted}, interval {'unknown' if math.isnan(end) else 'reaches past it'}")
