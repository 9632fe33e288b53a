"""Numbers with what surrounds them: a confidence interval, or the range of repeats."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit  # the quantile of the t-distribution; scipy.stats is slow to import

RESAMPLES = 2000  # of a bootstrap


class Interval(NamedTuple):
    """An estimate and its 95% confidence interval.

    >>> print(Interval(1.8, 1.7, 1.95))
    1.80 [1.70, 1.95]
    """

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Range(NamedTuple):
    """The median of some numbers, the least and the largest: not a confidence interval."""

    median: float
    least: float
    largest: float


def mean_interval(values: Any) -> Interval:
    """Mean and 95% t-interval; the interval of a single value is not known.

    >>> [round(end, 3) for end in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    values = np.asarray(values, dtype=float)
    mean = float(np.mean(values))
    if values.size < 2:
        return Interval(mean, math.nan, math.nan)
    half = float(stdtrit(values.size - 1, 0.975) * np.std(values, ddof=1) / math.sqrt(values.size))
    return Interval(mean, mean - half, mean + half)


def median_interval(values: Any) -> Interval:
    """Median and 95% bootstrap interval.

    >>> print(median_interval([1.0, 2.0, 3.0, 4.0, 100.0]))
    3.00 [1.00, 100.00]
    """
    return median_ratio(values, np.ones_like(values))


def median_ratio(over: Any, under: Any) -> Interval:
    """The ratio of two medians and its 95% bootstrap interval, for repeats that took turns.

    A resample takes the same repeats of both. The resamples are the same at every call, so that the interval is a
    function of the values. That of a single repeat is not known.

    >>> print(median_ratio([2.0, 4.0, 60.0], [1.0, 2.0, 30.0]))
    2.00 [2.00, 2.00]
    """
    one, other = (np.asarray(values, dtype=float) for values in (over, under))
    estimate = float(np.median(one) / np.median(other))
    if one.size < 2:
        return Interval(estimate, math.nan, math.nan)
    which = np.random.default_rng(0).integers(one.size, size=(RESAMPLES, one.size))
    ratios = np.median(one[which], axis=1) / np.median(other[which], axis=1)
    return Interval(estimate, *np.quantile(ratios, [0.025, 0.975]).tolist())
