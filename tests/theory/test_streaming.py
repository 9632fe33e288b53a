"""Streaming MLMC: its latencies in the theorem against exact runs, its limits against spectral radii, its spans."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.theory.chunked import ChunkedLevel, gathered_weights, held_weights, optimum, piece_noise, piece_weights
from dmlmc.theory.chunked_runs import chunked_growth, chunked_stationary_error, squared_gradients
from dmlmc.theory.held_noise import stationary_error
from dmlmc.theory.quadratic import delayed_model
from dmlmc.theory.staleness import largest_root, largest_safe_step, period_factor
from dmlmc.theory.streaming import (
    AGES,
    CHUNK,
    COHORT,
    COPIES,
    GATHERED,
    PIECES,
    TODAY,
    VARIANTS,
    held_limit,
    latencies,
    piece_ages,
    pieces_limit,
    relative_spans,
    streaming_bound,
    streaming_levels,
    streaming_periods,
    streaming_plan,
    streaming_staleness,
    streaming_step_size,
)
from dmlmc.theory.theorem import Problem


def problem(max_level=6, c=1.0, d=1.0):
    return Problem(1.0, 1.0, dmlmc.Rates(c + 0.8, c, d), max_level, 1.0)


@st.composite
def convex_curvatures(draw, count):
    """Curvatures of any sign with a positive sum."""
    others = [draw(st.sampled_from([-1, 1])) * draw(st.floats(0.01, 1)) for _ in range(count - 1)]
    return [draw(st.floats(0.05, 2)) - sum(others) or 0.1, *others]


def exact_over_bound(levels, step_size, steps, start=1.0):
    """The exact mean of E|grad F|^2 over ``2 gap / (a T) + 2 V``, for noise that is the same at every phase."""
    curvature, best = optimum(levels)
    noise = sum(level.period**2 * np.diag(level.covariance).max() for level in levels)
    bound = 2 * (curvature * (start - best) ** 2 / 2) / (step_size * steps) + 2 * noise
    return squared_gradients(levels, start, step_size, steps).mean() / bound


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 120), st.floats(0.1, 1.0) | st.just(1.0))
def test_the_bound_holds_for_any_delays_fixed_in_advance(data, steps, share):
    count = data.draw(st.integers(1, 4))
    curvatures, levels, delays = data.draw(convex_curvatures(count)), [], []
    for curvature in curvatures:
        ages = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
        noise = piece_noise(data.draw(st.floats(0, 1)), len(ages), shared=data.draw(st.booleans()))
        weights = piece_weights(np.full(len(ages), 1 / len(ages)), ages)
        levels.append(ChunkedLevel(curvature, weights, data.draw(st.floats(-3, 3)), covariance=noise))
        delays.append(max(ages))
    step_size = share * largest_safe_step([abs(h) for h in curvatures], [1] * count, delays)
    assert exact_over_bound(levels, step_size, steps) <= 1 + 1e-12


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from([COPIES, GATHERED]), st.integers(1, 120), st.floats(0.1, 1.0) | st.just(1.0))
def test_the_bound_holds_for_the_variants_that_hold_a_gradient(data, variant, steps, share):
    periods = [1, *(data.draw(st.integers(2, 8)) for _ in range(data.draw(st.integers(1, 3))))]
    levels, smoothness = [], []
    for curvature, period in zip(data.draw(convex_curvatures(len(periods))), periods, strict=True):
        weights = held_weights(period, 2 * period if period > 1 else 0)
        if variant == GATHERED and period > 1:
            slots = data.draw(st.lists(st.integers(-period, period - 1), min_size=period, max_size=period))
            shares = np.random.default_rng(data.draw(st.integers(0, 99))).normal(1, 1, period)
            shares += (1 - shares.sum()) / period
            weights = gathered_weights(shares, slots)
        noise = piece_noise(data.draw(st.floats(0, 1)), period, shared=True)
        levels.append(ChunkedLevel(curvature, weights, data.draw(st.floats(-3, 3)), covariance=noise))
        smoothness.append(levels[-1].smoothness)
    step_size = share * largest_safe_step(smoothness, periods, latencies(periods, variant))
    assert exact_over_bound(levels, step_size, steps) <= 1 + 1e-12


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(0, 30), st.integers(1, 90), st.integers(0, 99))
def test_a_latency_counts_its_steps_and_the_triangle_of_a_period(period, latency, steps, seed):
    moves = np.abs(np.random.default_rng(seed).normal(size=steps))
    x, t = np.concatenate([[0.0], np.cumsum(moves)])[:steps], np.arange(steps)
    used = np.maximum(t - latency - (t - latency) % period, 0)
    assert np.sum((x - x[used]) ** 2) <= (latency + period_factor(period)) ** 2 * np.sum(moves**2) * (1 + 1e-12)


def test_the_factor_of_a_latency_is_nearly_reached_by_long_runs():
    steps, period, latency = 300, 4, 8
    t = np.arange(steps)
    matrix = (t[None, :] < t[:, None]) & (t[None, :] >= (t - latency - (t - latency) % period)[:, None])
    norm = np.linalg.norm(matrix.astype(float), 2)
    assert 0.9 * (latency + period_factor(period)) < norm <= latency + period_factor(period)
    assert norm < latency + period - 1  # what any delays up to this would have


@pytest.mark.parametrize("period", [1, 2, 5, 8])
@pytest.mark.parametrize("latency", [0, 1, 3, 8, 10, 16])
def test_the_limit_of_a_held_level_is_where_the_spectral_radius_passes_one(period, latency):
    level = [ChunkedLevel(1.0, held_weights(period, latency))]
    limit = held_limit(period, latency)
    below, above = chunked_growth(level, [0.999 * limit, 1.001 * limit])
    assert below < 1 < above
    # A second way: the roots of y_(k+1) = y_k - z ((1 - s) y_(k-m) + s y_(k-m+1)), x at the refreshes.
    m, s = -(-latency // period), (-latency % period) / period
    for factor, stable in ((0.999, True), (1.001, False)):
        polynomial, z = np.zeros(m + 2), factor * limit * period
        polynomial[:2] = 1, -1
        polynomial[-1] += z * (1 - s)
        polynomial[-2] += z * s
        assert (np.max(np.abs(np.roots(polynomial))) < 1) == stable


def test_the_limits_in_closed_form():
    assert [held_limit(p) * p for p in (1, 2, 64)] == pytest.approx([2, 2, 2])
    assert [held_limit(p, p) * p for p in (1, 2, 64)] == pytest.approx([1, 1, 1])
    assert [held_limit(p, 2 * p) * p for p in (1, 2, 64)] == pytest.approx([(math.sqrt(5) - 1) / 2] * 3)
    assert [held_limit(1, D) for D in (0, 3, 10)] == pytest.approx(
        [2 * math.sin(math.pi / (4 * D + 2)) for D in (0, 3, 10)]
    )


@pytest.mark.parametrize("period", [2, 4, 8, 16])
def test_the_limit_of_pieces_lies_between_that_of_their_oldest_and_of_their_newest_parameters(period):
    even = [1 / period] * period
    limits = {ages: pieces_limit(even, piece_ages(period, ages)) for ages in AGES}
    assert limits[TODAY] == pytest.approx(2, rel=1e-6)
    assert limits[COHORT] == pytest.approx(held_limit(period, period), rel=1e-6)
    assert limits[COHORT] < limits[CHUNK] < limits[TODAY]
    one = [1.0] + [0.0] * (period - 1)
    assert pieces_limit(one, [0] * period) == pytest.approx(2 / period, rel=1e-6)
    assert pieces_limit(one, [period] * period) == pytest.approx(1 / period, rel=1e-6)


@pytest.mark.parametrize("period", [2, 4, 16])
def test_ages_are_counted_from_the_steps_at_which_chunks_go_forward(period):
    forward = {chunk: chunk for chunk in range(period)}  # the cohort starts at step 0 and turns at step p
    back = {chunk: period + k for k, chunk in enumerate(reversed(range(period)))}
    order = sorted(range(period), key=back.get)
    assert piece_ages(period, CHUNK) == tuple(back[chunk] - forward[chunk] for chunk in order)
    assert piece_ages(period, COHORT) == tuple(back[chunk] for chunk in order)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 8))
def test_no_positive_pieces_are_unstable_below_one_over_the_period(data, period):
    shares = np.array(data.draw(st.lists(st.floats(0, 1), min_size=period, max_size=period))) + 1e-6
    ages = [data.draw(st.integers(0, period + k)) for k in range(period)]
    level = [ChunkedLevel(1.0, piece_weights(shares / shares.sum(), ages))]
    assert np.all(chunked_growth(level, np.array([0.1, 0.5, 0.9, 0.999]) / period) < 1)


def test_the_guaranteed_spans_at_seven_levels():
    spans = relative_spans(problem())
    assert spans["MLMC"] == 128
    # With delays of at most D_l and nothing more known: q + p - 1, or p - 1 without latency.
    smoothness = [2.0**-l for l in range(7)]

    def by_delays(delays):
        return largest_root(2.0, 2 * np.dot(smoothness, delays) ** 2) ** -1

    assert 4 * by_delays([2**l - 1 for l in range(7)]) == pytest.approx(32.65, abs=0.005)
    twice = by_delays([0] + [3 * 2**l - 1 for l in range(1, 7)])
    assert twice == pytest.approx(25.08, abs=0.005)
    once, once_with_level_0 = (
        by_delays([0] + [2 * 2**l - 1 for l in range(1, 7)]),
        by_delays([2 * 2**l - 1 for l in range(7)]),
    )
    assert (once, once_with_level_0) == pytest.approx((16.61, 18.02), abs=0.005)
    found = [spans[name] for name in ("delayed MLMC", *VARIANTS)]
    assert found == pytest.approx([24.39, 22.99, 25.99, 37.21], abs=0.005)


def test_more_levels_favour_streaming_over_delay():
    ratios = [
        relative_spans(problem(l))["delayed MLMC"] / relative_spans(problem(l))[GATHERED] for l in (6, 12, 24, 48)
    ]
    assert ratios == sorted(ratios) and ratios[0] < 1 < ratios[1] and ratios[3] > 4


def test_the_largest_stride_is_mlmc():
    here = problem(4)
    spans = relative_spans(here, stride=16)
    assert streaming_periods(4, stride=16) == (1,) * 5
    assert [spans[variant] for variant in (COPIES, GATHERED)] == [spans["MLMC"]] * 2 == [32.0] * 2
    assert streaming_step_size(here, stride=16) == 1 / here.L_prime
    assert streaming_bound(here, 100, 50, stride=16).start == 2 * here.gap * here.L_prime / 50


@given(st.floats(0.5, 2.0), st.floats(0.5, 2.0), st.sampled_from([1, 2, 4]), st.integers(0, 6))
def test_the_span_of_a_chunk_is_the_stride_for_any_cost_of_a_path(c, d, stride, max_level):
    here = problem(max_level, c, d)
    plan = streaming_plan(here, 1000, stride)
    assert all(
        (p - 1) * stride < cost * (1 + 1e-9) and cost <= p * stride * (1 + 1e-9)
        for p, cost in zip(plan.periods, plan.costs, strict=True)
    )
    assert plan.samples == here.plan(1000).samples


def test_staleness_grows_as_the_span_of_delay_does():
    for c, d, growth in ((1.0, 1.0, 2.0), (1.0, 2.0, 1.0), (1.5, 1.0, 2**4)):
        S = [
            streaming_staleness([2.0 ** (-d * l) for l in range(top + 1)], streaming_periods(top, c), PIECES)
            for top in (8, 16)
        ]
        assert S[1] / S[0] == pytest.approx(growth, rel=0.07)


def test_at_small_steps_pieces_have_the_long_run_noise_of_held_gradients_and_of_mlmc():
    here = problem(3)
    plan = dmlmc.plan(here.rates, 3, level0_samples=64)
    mlmc = stationary_error(delayed_model(here, plan.without_delay()), 1e-4)
    for ages in AGES:
        assert chunked_stationary_error(streaming_levels(here, plan, ages), 1e-4) == pytest.approx(mlmc, rel=5e-3)
    assert stationary_error(delayed_model(here, plan), 1e-4) == pytest.approx(mlmc, rel=5e-3)


def test_levels_of_a_problem_have_its_curvatures_and_variances():
    here = problem(3)
    plan = here.plan(100)
    model, levels = delayed_model(here, plan), streaming_levels(here, plan)
    assert tuple(level.curvature for level in levels) == model.curvatures
    assert [level.covariance.sum() for level in levels] == pytest.approx(model.variances)
    assert [level.period for level in levels] == [1, 2, 4, 8]


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="latencies: variant must be one of copies, gathered, pieces"):
        latencies([1, 2], "held")
    with pytest.raises(ValueError, match="streaming_bound: variant must be one of copies, gathered, got 'pieces'"):
        streaming_bound(problem(), 10, 10, variant=PIECES)
    with pytest.raises(ValueError, match="streaming_periods: stride must be at least 1"):
        streaming_periods(3, stride=0)
    with pytest.raises(ValueError, match="piece_ages: ages must be one of today, chunk, cohort"):
        piece_ages(4, "old")
    with pytest.raises(ValueError, match="held_limit: latency must be at least 0"):
        held_limit(4, -1)
    with pytest.raises(ValueError, match="largest_safe_step: latencies needs 2 finite numbers of at least 0"):
        largest_safe_step([1.0, 0.5], [1, 2], [0, -1])
    with pytest.raises(ValueError, match="largest_safe_step: latencies needs 2 finite numbers of at least 0"):
        largest_safe_step([1.0, 0.5], [1, 2], [0])
