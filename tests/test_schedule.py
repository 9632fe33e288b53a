import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.schedule import cumulative, level_cost, pair_costs, round_up
from tests.helpers.problems import rates_strategy


def test_the_paper_s_plan(paper_plan):
    assert paper_plan.samples == (512, 195, 74, 28, 11, 4, 2)
    assert paper_plan.periods == (1, 2, 4, 8, 16, 32, 64)
    assert paper_plan.max_level == 6
    assert paper_plan.naive_samples() == 148
    assert paper_plan.mean_span() == 4.0
    assert paper_plan.without_delay().mean_span() == 64.0
    assert paper_plan.without_delay().samples == paper_plan.samples


def brute_force(plan, steps):
    """Work and span per step from the definitions, level by level."""
    work, span = [], []
    for step in range(steps):
        due = [level for level, period in enumerate(plan.periods) if step % period == 0]
        c = plan.rates.c
        costs = [plan.samples[l] * (2 ** (c * l) + (2 ** (c * (l - 1)) if l else 0)) for l in due]
        work.append(sum(costs))
        span.append(2 ** (c * max(due)) if due else 0.0)
    return np.array(work), np.array(span)


@settings(max_examples=50)
@given(rates_strategy, st.integers(0, 4))
def test_work_and_span_match_the_definitions(rates, max_level):
    plan = dmlmc.plan(rates, max_level, level0_samples=64)
    work, span = brute_force(plan, 100)
    np.testing.assert_allclose(plan.work(np.arange(100)), work)
    np.testing.assert_allclose(plan.span(np.arange(100)), span)
    assert plan.work(7) == pytest.approx(work[7]) and type(plan.work(7)) is float
    assert plan.span(7) == pytest.approx(span[7]) and type(plan.span(7)) is float
    np.testing.assert_allclose(plan.cumulative_work(100)[1:], np.cumsum(work))
    np.testing.assert_allclose(plan.cumulative_span(100)[1:], np.cumsum(span))
    assert plan.cumulative_work(100)[0] == plan.cumulative_span(100)[0] == 0.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=5))
def test_means_over_a_cycle_equal_counts_also_when_periods_do_not_nest(periods):
    plan = dmlmc.Plan(dmlmc.Rates(2.0, 1.0, 1.0), samples=[3] * len(periods), periods=periods)
    work, span = brute_force(plan, math.lcm(*periods))
    np.testing.assert_array_equal(plan.span(np.arange(len(span))), span)  # 0 where no level at all is due
    assert plan.mean_work() == pytest.approx(np.mean(work), rel=1e-12)
    assert plan.mean_span() == pytest.approx(np.mean(span), rel=1e-12)


def test_mean_span_is_exact_where_no_cycle_can_be_counted():
    plan = dmlmc.plan(dmlmc.Rates(2.0, 1.0, 1.3), max_level=12, samples=100, allocation="paper")
    assert math.lcm(*plan.periods) > 10**20
    sample = plan.span(np.random.default_rng(0).integers(0, 10**15, 200_000))
    assert abs(plan.mean_span() - sample.mean()) < 4 * sample.std() / len(sample) ** 0.5


def test_a_coupled_pair_costs_one_and_a_half_fine_paths_of_work():
    paths = [level_cost(level, 1.0) for level in range(5)]
    assert [pair / path for pair, path in zip(pair_costs(paths), paths, strict=True)] == [1.0] + [1.5] * 4


def test_measured_costs_replace_the_rate_in_the_accounts():
    plan = dmlmc.Plan(dmlmc.Rates(1.8, 1.0, 1.0), (8, 4, 2), (1, 2, 4), costs=(10.0, 30.0, 80.0))
    assert plan.costs == (1.0, 3.0, 8.0)
    assert [plan.span(step) for step in range(5)] == [8.0, 1.0, 3.0, 1.0, 8.0]
    assert plan.work(1) == 8.0 and plan.work(2) == 8.0 + 4 * 4.0 and plan.work(0) == 8.0 + 4 * 4.0 + 2 * 11.0
    assert plan.mean_work() == 8.0 + 4 * 4.0 / 2 + 2 * 11.0 / 4 and plan.mean_span() == (8 + 1 + 3 + 1) / 4
    assert plan.without_delay().costs == plan.costs


def test_measured_variances_are_the_default_of_every_variance():
    measured = (5.0, 0.4, 0.1)
    plan = dmlmc.Plan(dmlmc.Rates(1.8, 1.0, 1.0), (8, 4, 2), (1, 2, 4), variances=measured)
    plain = dmlmc.Plan(dmlmc.Rates(1.8, 1.0, 1.0), (8, 4, 2), (1, 2, 4))
    assert plan.variance() == plain.variance(measured) == pytest.approx(5 / 8 + 0.1 + 0.05)
    assert plan.long_run_variance() == plain.long_run_variance(measured) == pytest.approx(5 / 8 + 0.2 + 0.2)
    assert plan.naive_samples() == plain.naive_samples(measured) == math.ceil(5.0 / (5 / 8 + 0.4))
    assert plan.without_delay().variances == measured and plan != plain


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), min_size=1, max_size=6))
def test_mlmc_of_the_same_noise_for_both_allocations(levels):
    per_step, periods = zip(*levels, strict=True)
    rates = dmlmc.Rates(1.8, 1.0, 1.0)
    held = dmlmc.Plan(rates, [m * p for m, p in levels], periods)
    mlmc = held.without_delay()
    assert mlmc.samples == per_step and set(mlmc.periods) == {1} and mlmc.without_delay() == mlmc
    assert mlmc.variance() == pytest.approx(held.long_run_variance())
    assert mlmc.mean_work() == pytest.approx(held.mean_work())
    assert mlmc.naive_samples() == held.naive_samples()
    paper = dmlmc.Plan(rates, held.samples, periods, allocation="paper")
    assert paper.without_delay().samples == paper.samples
    assert paper.without_delay().variance() == pytest.approx(paper.variance())
    assert paper.without_delay().naive_samples() == paper.naive_samples()


@settings(max_examples=50)
@given(rates_strategy, st.integers(0, 6), st.integers(0, 500))
def test_last_refresh_is_the_latest_due_step(rates, max_level, step):
    plan = dmlmc.plan(rates, max_level, samples=100)
    assert plan.due_levels(0) == tuple(range(max_level + 1))
    for level in range(max_level + 1):
        latest = next(s for s in range(step, -1, -1) if level in plan.due_levels(s))
        assert plan.last_refresh(level, step) == latest
        assert (level in plan.due_levels(step)) == (latest == step)


def sum_of_spans(rates, max_level):
    """The paper's bound on the mean span: levels due at one step run one after another."""
    return sum(2 ** ((rates.c - rates.d) * level) for level in range(max_level + 1))


def mean_span(rates, max_level):
    """For periods that nest: level l is the highest one due in a share (1 - 2^(-d)) 2^(-d l) of the steps."""
    below = sum_of_spans(rates, max_level - 1) if max_level else 0.0
    return (1 - 2.0**-rates.d) * below + 2 ** ((rates.c - rates.d) * max_level)


@pytest.mark.parametrize(("c", "d"), [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (0.5, 1.0), (1.5, 0.0), (1.0, 0.0)])
@pytest.mark.parametrize("max_level", [0, 1, 4, 6])
def test_closed_forms_equal_counts_for_integer_d(c, d, max_level):
    rates = dmlmc.Rates(b=c + 1, c=c, d=d)
    plan = dmlmc.plan(rates, max_level, samples=100)
    cycle = math.lcm(*plan.periods)
    one_after_another = sum(level_cost(l, c) for step in range(cycle) for l in plan.due_levels(step)) / cycle
    assert mean_span(rates, max_level) == pytest.approx(plan.mean_span(), rel=1e-12)
    assert sum_of_spans(rates, max_level) == pytest.approx(one_after_another, rel=1e-12)


def test_the_three_cases_of_the_footnote_grow_as_it_says():
    def growth(c, d):
        plans = [dmlmc.plan(dmlmc.Rates(c + 1, c, d), level, samples=1) for level in (20, 40)]
        return [sum(level_cost(l, c) / period for l, period in enumerate(plan.periods)) for plan in plans]

    bounded, linear, exponential = growth(1.0, 2.0), growth(1.0, 1.0), growth(2.0, 1.0)
    assert bounded == pytest.approx([2.0, 2.0])
    assert linear == [21.0, 41.0]
    assert exponential[1] / exponential[0] == pytest.approx(2**20)


@given(rates_strategy, st.integers(0, 8))
def test_flooring_a_period_costs_less_than_a_factor_of_two(rates, max_level):
    plan = dmlmc.plan(rates, max_level, samples=100, allocation="paper")
    counted = sum(level_cost(l, rates.c) / period for l, period in enumerate(plan.periods))
    claimed = sum_of_spans(rates, max_level)
    assert claimed * (1 - 1e-9) <= counted < 2 * claimed


def test_variance_defaults_to_assumption_2(paper_plan):
    by_hand = sum(2 ** (-1.8 * level) / n for level, n in enumerate(paper_plan.samples))
    assert paper_plan.variance() == pytest.approx(by_hand)
    measured = [5.0 * 2 ** (-1.8 * level) for level in range(7)]
    assert paper_plan.variance(measured) == pytest.approx(5 * by_hand)
    assert paper_plan.naive_samples(measured) == 148
    assert paper_plan.naive_samples(measured, naive_variance=10.0) == math.ceil(2 / by_hand)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda plan: dmlmc.Plan((1, 1, 1), (1,), (1,)), TypeError, "rates must be a dmlmc.Rates"),
        (lambda plan: dmlmc.Plan(plan.rates, (), ()), ValueError, "Plan: samples needs at least one entry"),
        (lambda plan: dmlmc.Plan(plan.rates, b"\x01", (1,)), TypeError, "^Plan: samples must be a sequence with one"),
        (lambda plan: dmlmc.Plan(plan.rates, (1,), (0,)), ValueError, r"Plan: periods\[0\] must be at least 1"),
        (lambda plan: dmlmc.Plan(plan.rates, (1, 1), (1,)), ValueError, "Plan: periods needs 2 entries"),
        (
            lambda plan: dmlmc.Plan(dmlmc.Rates(900.0, 800.0, 1.0), (1,) * 3, (1,) * 3),
            ValueError,
            r"^Plan: max_level = 2 and c = 800 must lead .* got 2\^1600",
        ),
        (
            lambda plan: dmlmc.Plan(plan.rates, (1,), (1,), "mine"),
            ValueError,
            "allocation must be one of held, paper, got",
        ),
        (lambda plan: dmlmc.Plan(plan.rates, (1,), (1,), variances=(1, 2)), ValueError, "Plan: variances needs 1 num"),
        (
            lambda plan: dmlmc.Plan(plan.rates, (1,), (1,), costs=(0.0,)),
            ValueError,
            "Plan: costs must be finite and pos",
        ),
        (lambda plan: plan.due_levels(-1), ValueError, "step must be at least 0"),
        (lambda plan: plan.due_levels(1.0), TypeError, "step must be an integer"),
        (lambda plan: plan.last_refresh(7, 3), ValueError, "level must be between 0 and 6"),
        (lambda plan: plan.last_refresh(0, -3), ValueError, "step must be at least 0"),
        (lambda plan: plan.variance([1.0]), ValueError, "variances needs 7 numbers"),
        (lambda plan: plan.variance([1.0] * 6 + [0.0]), ValueError, "variances must be finite and positive"),
        (lambda plan: plan.naive_samples(naive_variance=-1.0), ValueError, "naive_variance must be positive"),
        (lambda plan: plan.cumulative_span(-1), ValueError, "steps must be at least 0"),
        (lambda plan: cumulative(plan.span, 1.5), TypeError, "steps must be an integer"),
        (lambda plan: plan.work("a"), ValueError, "^Plan.work: step must be"),
        (lambda plan: plan.span(-1), ValueError, "^Plan.span: step must be"),
        (lambda plan: level_cost(2000, 1.0), ValueError, r"^level_cost: level = 2000 and c = 1 must .* got 2\^2000"),
    ],
)
def test_other_bad_arguments_are_named(paper_plan, call, error, message):
    with pytest.raises(error, match=message):
        call(paper_plan)


def test_a_period_beyond_all_steps_is_due_once():
    plan = dmlmc.plan(dmlmc.Rates(1.8, 1.0, 1.0), 1, samples=(2, 1), periods=(1, 2**80))
    steps = np.array([0, 1, 2**62 - 1, 2**63 - 1])
    assert plan.span(steps).tolist() == [2.0, 1.0, 1.0, 1.0] and plan.due_levels(2**62 - 1) == (0,)


def test_plans_need_no_jax():
    program = (
        "import sys, types, pathlib; import importlib.metadata as m; package = types.ModuleType('dmlmc');"
        "package.__path__ = [str(pathlib.Path(sys.argv[1]))]; sys.modules['dmlmc'] = package;"
        "import dmlmc.schedule, dmlmc.allocation; assert 'jax' not in sys.modules"
    )
    import pathlib

    subprocess.run([sys.executable, "-c", program, str(pathlib.Path(dmlmc.__file__).parent)], check=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=4), st.integers(0, 2**31))
def test_the_long_run_variance_is_that_of_long_averages(levels, seed):
    """N_T times the variance of an average over T steps of noise that is held, for T many cycles."""
    samples, powers = zip(*levels, strict=True)
    plan = dmlmc.Plan(dmlmc.Rates(1.8, 1.0, 1.0), samples, [2**power for power in powers])
    steps, runs = 64, 4000
    total = np.zeros(runs)
    for level, (count, period) in enumerate(zip(plan.samples, plan.periods, strict=True)):
        fresh = np.random.default_rng((seed, level)).normal(size=(runs, steps // period))
        total += np.repeat(fresh, period, axis=1).sum(axis=1) * (2 ** (-1.8 * level) / count) ** 0.5
    ratio = total.var() / steps / plan.long_run_variance()
    assert abs(ratio - 1) < 5 * (2 / runs) ** 0.5


def test_without_delay_the_long_run_variance_is_the_variance(paper_plan):
    assert paper_plan.without_delay().long_run_variance() == pytest.approx(paper_plan.variance())
    measured = [3.0 * 2 ** (-1.8 * level) for level in range(7)]
    assert paper_plan.long_run_variance(measured) == pytest.approx(3 * paper_plan.long_run_variance())
    with pytest.raises(ValueError, match=r"^Plan\.long_run_variance: variances needs 7 numbers"):
        paper_plan.long_run_variance([1.0])


def test_every_level_has_a_sample_and_rounding_errors_are_no_sample():
    assert [round_up(value) for value in (1e-9, 0.3, 1.0, 1.0 + 1e-15, 1.1, 2.0)] == [1, 1, 1, 1, 2, 2]


def test_work_counts_every_fine_path_of_a_pair(paper_rates):
    samples, periods = (5, 3, 2), (1, 2, 4)
    plan = dmlmc.Plan(paper_rates, samples, periods, "paper", fine_paths=2)
    pairs = [1.0, 2 * 2 + 1, 2 * 4 + 2]
    assert plan.work(0) == sum(n * pair for n, pair in zip(samples, pairs, strict=True))
    assert plan.mean_work() == sum(n * pair / p for n, pair, p in zip(samples, pairs, periods, strict=True))


def test_bad_variances_and_fine_paths_are_named(paper_plan):
    for call in ("variance", "long_run_variance"):
        with pytest.raises(ValueError, match=rf"^Plan.{call}: variances needs 7"):
            getattr(paper_plan, call)(variances=[1.0])
    with pytest.raises(ValueError, match=r"^Plan: fine_paths must be at least 1"):
        dataclasses.replace(paper_plan, fine_paths=0)
