import math

import numpy as np

from dmlmc.calibration.interval import mean_interval


def test_the_interval_covers_the_truth_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(3.0, 2.0, size=(4000, 5))
    intervals = np.array([mean_interval(row) for row in draws])
    covered = np.mean((intervals[:, 1] < 3.0) & (intervals[:, 2] > 3.0))
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)
    assert math.isnan(mean_interval([1.0]).low)
