import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import dmlmc
from tests.helpers.problems import rates_strategy

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


def test_the_effective_batch_size_is_the_level_0_count_times_the_sum_of_weights(paper_plan, paper_rates):
    effective = 512 * sum(2 ** (-1.4 * level) for level in range(7))
    assert dmlmc.plan(paper_rates, 6, samples=effective, allocation="paper") == paper_plan
    held = dmlmc.plan(paper_rates, 6, samples=effective)
    assert held == dmlmc.plan(paper_rates, 6, level0_samples=512)
    assert held.samples == (512, 390, 296, 224, 176, 128, 128) and held.periods == paper_plan.periods
    assert held.without_delay().samples == paper_plan.samples


@given(rates_strategy, st.integers(0, 8), st.integers(1, 10**6))
def test_samples_follow_the_paper_s_formula(rates, max_level, effective):
    weights = [2 ** (-(rates.b + rates.c) * level / 2) for level in range(max_level + 1)]
    paper = dmlmc.plan(rates, max_level, samples=effective, allocation="paper")
    held = dmlmc.plan(rates, max_level, samples=effective)
    for count, refreshed, period, weight in zip(paper.samples, held.samples, held.periods, weights, strict=True):
        share = effective * weight / sum(weights)
        assert share * (1 - 1e-9) <= count < share + 1
        assert refreshed == (period * count if share >= 1 else math.ceil(period * share * (1 - 1e-12)))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(positive, positive, st.integers(1, 20)), min_size=2, max_size=5), positive)
def test_held_counts_minimise_the_long_run_variance_for_a_mean_work(levels, budget):
    """Against a numerical minimiser that knows no formula; and the optimum is MLMC's own trade."""
    variances, costs, periods = np.array(levels).T

    def long_run(logarithms):  # of any counts, scaled to the budget
        counts = np.exp(logarithms)
        counts *= budget / np.sum(counts * costs / periods)
        return np.log(np.sum(periods * variances / counts))

    found = minimize(long_run, np.zeros(len(levels)), method="BFGS", options={"gtol": 1e-9})
    formula = periods * np.sqrt(variances / costs)
    assert long_run(np.log(formula)) <= found.fun + 1e-9
    assert long_run(np.log(formula)) == pytest.approx(found.fun, abs=1e-5)
    mlmc = dmlmc.optimal_allocation(variances, costs, total_cost=budget)
    assert np.exp(long_run(np.log(formula))) == pytest.approx(mlmc.variance)


@settings(max_examples=30)
@given(levels, st.integers(10**6, 10**7))
def test_measured_variances_and_costs_give_the_optimal_counts(pairs, effective):
    """Held counts over their periods are those of ``optimal_allocation`` for pairs, up to rounding up."""
    variances, costs = np.array(pairs).T
    paths = np.cumsum(costs)  # costs grow with the level
    work = np.append(paths[:1], paths[1:] + paths[:-1])
    plan = dmlmc.plan(dmlmc.Rates(1.8, 1.0, 1.0), len(pairs) - 1, samples=effective, variances=variances, costs=paths)
    optimum = dmlmc.optimal_allocation(variances, work, total_cost=1.0).samples
    optimum *= effective / optimum.sum()
    for count, period, best in zip(plan.samples, plan.periods, optimum, strict=True):
        assert best * (1 - 1e-9) <= count / period < best * (1 + 1e-9) + 1
    assert plan.variances == pytest.approx(tuple(variances)) and plan.costs == pytest.approx(tuple(paths / paths[0]))


def test_levels_that_were_not_measured_follow_the_rates(paper_rates):
    plan = dmlmc.plan(paper_rates, 4, level0_samples=64, variances=[7.0, 1.0], costs=[10, 25, 55])
    assert plan.variances == pytest.approx((7.0, 1.0, 2**-1.8, 2**-3.6, 2**-5.4))
    assert plan.costs == pytest.approx((1.0, 2.5, 5.5, 11.0, 22.0))


def test_antithetic_pairs_cost_more_and_get_fewer_samples(paper_rates):
    measured = {"variances": [4.0, 0.5, 0.1], "costs": [2.0, 4.0, 8.0], "fine_paths": 2}
    plan = dmlmc.plan(paper_rates, 2, level0_samples=10**6, allocation="paper", **measured)
    best = dmlmc.optimal_allocation([4.0, 0.5, 0.1], [1.0, 5.0, 10.0], total_cost=1.0).samples
    np.testing.assert_allclose(plan.samples, 10**6 * best / best[0], rtol=1e-4)
    assert plan.samples[0] == 10**6 and plan.fine_paths == 2
    assert dmlmc.plan(paper_rates, 2, samples=[3, 2, 1], **measured).fine_paths == 2


def test_variances_that_were_not_measured_are_those_of_assumption_2(paper_rates):
    for costs in (None, [3.0, 7.0, 13.0]):
        plan = dmlmc.plan(paper_rates, 2, samples=10, costs=costs)
        assert plan.variances == pytest.approx((1.0, 2**-1.8, 2**-3.6))


def test_a_small_batch_has_less_than_one_fine_sample_per_step(paper_rates):
    """MLMC cannot have that, and pays for it."""
    plan = dmlmc.plan(paper_rates, 6, level0_samples=8)
    assert plan.samples == (8, 8, 8, 4, 3, 2, 2)
    assert plan.mean_work() < plan.without_delay().mean_work() / 4


@given(rates_strategy, st.integers(0, 8))
def test_default_periods_are_the_largest_powers_of_two_up_to_the_paper_s(rates, max_level):
    held = dmlmc.plan(rates, max_level, samples=10).periods
    paper = dmlmc.plan(rates, max_level, samples=10, allocation="paper").periods
    for one, other in zip(held, paper, strict=True):
        assert one <= other < 2 * one and one & (one - 1) == 0


@given(st.integers(2, 40), st.integers(0, 6))
def test_a_period_that_is_an_integer_on_paper_is_not_rounded_down(base, level):
    rates = dmlmc.Rates(b=2.0, c=1.0, d=math.log2(base))
    assert dmlmc.plan(rates, level, samples=10, allocation="paper").periods[level] == base**level


def test_explicit_samples_and_periods(paper_rates):
    plan = dmlmc.plan(paper_rates, 2, samples=np.array([8, 4, 2]), periods=(1, 3, 7))
    assert plan.samples == (8, 4, 2) and plan.periods == (1, 3, 7)
    assert plan.due_levels(21) == (0, 1, 2) and plan.due_levels(14) == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "exactly one of samples .*, got samples=None and level0_samples=None"),
        (
            {"samples": 10, "level0_samples": 3},
            ValueError,
            "exactly one of samples .*, got samples=10 and level0_s.*=3",
        ),
        ({"samples": 0}, ValueError, "samples must be positive"),
        ({"samples": -3.0}, ValueError, "samples must be positive"),
        ({"samples": math.nan}, ValueError, "samples must be finite"),
        ({"samples": True}, TypeError, "samples must be a real number"),
        ({"samples": [4, 2]}, ValueError, "samples needs 3 entries"),
        ({"samples": [4, 2, 0]}, ValueError, r"samples\[2\] must be at least 1"),
        ({"samples": [4, 2.5, 1]}, TypeError, r"samples\[1\] must be an integer"),
        ({"level0_samples": 0}, ValueError, "level0_samples must be at least 1"),
        ({"level0_samples": 2.5}, TypeError, "level0_samples must be an integer"),
        ({"samples": 10, "periods": [1, 2]}, ValueError, "^plan: periods needs 3 entries"),
        ({"samples": 10, "max_level": 2000}, ValueError, r"^plan: max_level = 2000 and d = 1 must .* got 2\^1001"),
        (
            {"samples": 10, "max_level": 9, "rates": dmlmc.Rates(300.0, 200.0, 0.0)},
            ValueError,
            r"^plan: max_level = 9 and c = 200 must .* got 2\^1800",
        ),
        ({"samples": 10, "fine_paths": 0}, ValueError, "^plan: fine_paths must be at least 1, got 0"),
        ({"samples": 10, "periods": [1, 0, 2]}, ValueError, r"periods\[1\] must be at least 1"),
        ({"samples": 10, "periods": 4}, TypeError, "periods must be a sequence"),
        ({"samples": 10, "max_level": -1}, ValueError, "max_level must be at least 0"),
        ({"samples": 10, "max_level": 2.0}, TypeError, "max_level must be an integer"),
        ({"samples": 10, "allocation": "hold"}, ValueError, "^plan: allocation must be one of held, paper, got 'hold'"),
        ({"samples": 10, "variances": [1.0, -1.0]}, ValueError, "^plan: variances must be finite and positive"),
        ({"samples": 10, "variances": [1.0] * 4}, ValueError, "^plan: variances needs at most 3 numbers"),
        ({"samples": 10, "costs": "cheap"}, TypeError, "^plan: costs must be a sequence of real numbers"),
        ({"samples": 10, "rates": (1.8, 1, 1)}, TypeError, "rates must be a dmlmc.Rates"),
    ],
)
def test_bad_arguments_of_plan_are_named(paper_rates, arguments, error, message):
    with pytest.raises(error, match=message):
        dmlmc.plan(**{"rates": paper_rates, "max_level": 2, **arguments})
