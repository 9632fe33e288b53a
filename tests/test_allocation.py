import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlmc

positive = st.floats(1e-3, 1e3)
levels = st.lists(st.tuples(positive, positive), min_size=1, max_size=7)


@given(levels, positive, st.integers(0, 2**32 - 1))
def test_no_other_allocation_of_the_same_cost_has_less_variance(pairs, budget, seed):
    variances, costs = np.array(pairs).T
    best = dmlmc.optimal_allocation(variances, costs, total_cost=budget)
    assert best.samples @ costs == pytest.approx(budget, rel=1e-9)
    assert best.variance == pytest.approx(np.sum(variances / best.samples), rel=1e-9)
    other = best.samples * np.random.default_rng(seed).uniform(0.5, 2.0, len(costs))
    other *= budget / (other @ costs)
    assert np.sum(variances / other) >= best.variance * (1 - 1e-9)


@given(levels, positive)
def test_least_cost_for_a_variance_is_the_same_problem(pairs, target):
    variances, costs = np.array(pairs).T
    cheapest = dmlmc.optimal_allocation(variances, costs, target_variance=target)
    assert cheapest.variance == pytest.approx(target, rel=1e-9)
    again = dmlmc.optimal_allocation(variances, costs, total_cost=cheapest.cost)
    np.testing.assert_allclose(again.samples, cheapest.samples, rtol=1e-9)


def test_assumption_2_gives_the_weights_of_the_paper(paper_rates):
    level = np.arange(7)
    optimum = dmlmc.optimal_allocation(3.0 * 2.0 ** (-1.8 * level), 2.0**level, total_cost=1.0)
    np.testing.assert_allclose(optimum.samples / optimum.samples[0], 2.0 ** (-1.4 * level))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of total_cost and target_variance"),
        ({"total_cost": 1.0, "target_variance": 1.0}, "exactly one of total_cost and target_variance"),
        ({"total_cost": 0.0}, "total_cost must be positive"),
        ({"target_variance": -1.0}, "target_variance must be positive"),
        ({"total_cost": 1.0, "variances": [1.0, -1.0]}, "variances must be finite and positive"),
        ({"total_cost": 1.0, "costs": [1.0]}, "costs needs 2 numbers"),
        ({"total_cost": 1.0, "variances": []}, "variances needs at least one number"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        dmlmc.optimal_allocation(**{"variances": [1.0, 1.0], "costs": [1.0, 2.0], **arguments})
