"""Numbers with what surrounds them: a confidence interval, or the range of repeats."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import stats


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
    half = float(stats.t.ppf(0.975, values.size - 1) * np.std(values, ddof=1) / math.sqrt(values.size))
    return Interval(mean, mean - half, mean + half)


def median_interval(values: Any, under: Any = None, *, resamples: int = 2000) -> Interval:
    """Median and 95% bootstrap interval; with ``under``, of the ratio of two medians, paired by their places.

    The resamples are the same at every call, so that the interval is a function of the values.

    >>> print(median_interval([1.0, 2.0, 3.0, 4.0, 100.0]))
    3.00 [1.00, 100.00]
    """
    groups = [np.asarray(group, dtype=float) for group in (values, under) if group is not None]
    size = groups[0].size
    which = np.random.default_rng(0).integers(size, size=(resamples, size))
    estimate, medians = (
        of[0] / of[1] if len(of) == 2 else of[0]
        for of in ([np.median(group) for group in groups], [np.median(group[which], axis=1) for group in groups])
    )
    if size < 2:
        return Interval(float(estimate), math.nan, math.nan)
    return Interval(float(estimate), *map(float, np.quantile(medians, [0.025, 0.975])))
