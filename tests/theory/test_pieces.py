"""The guarantee for pieces used as they come: its constants from its proof, and the bound against exact runs."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dmlmc.theory.chunked import ChunkedLevel, held_weights, optimum, piece_weights
from dmlmc.theory.chunked_runs import chunked_growth, squared_gradients
from dmlmc.theory.pieces import fluctuation_size, pieces_bound, pieces_step_size, run_variance, truth_and_bound
from dmlmc.theory.streaming import PIECES, latencies, streaming_staleness

EVEN = {"smoothness": [1.0, 0.5], "periods": [1, 2], "fluctuations": [0.0, 0.1], "steps": 8}
NOISE = {"variances": [0.1, 0.2], "run_variances": [0.1, 0.3]}


@st.composite
def chunked_levels(draw):
    """Level 0 and up to three more, of any sign, in pieces of any signed share and any age, with noise of any kind."""
    periods = [1, *(2 ** draw(st.integers(0, 3)) for _ in range(draw(st.integers(0, 3))))]
    curvatures = [draw(st.sampled_from([-1, 1])) * draw(st.floats(0.01, 1)) for _ in periods[1:]]
    curvatures.insert(0, draw(st.floats(0.05, 2)) - sum(curvatures))  # the mean loss is convex
    assume(abs(curvatures[0]) > 1e-6)
    random, levels = np.random.default_rng(draw(st.integers(0, 10**6))), []
    for curvature, period in zip(curvatures, periods, strict=True):
        weights, spread = np.zeros((period, 2 * period)), draw(st.sampled_from([0.0, 0.3, 2.0]))
        for piece in range(period):
            oldest = period + piece if period > 1 else 0
            weights[piece, random.integers(0, oldest + 1, 2)] = (1 + spread * random.normal(size=2)) / (2 * period)
        weights[random.integers(0, period), 0] += 1 - weights.sum()  # all that is missing in one piece
        offsets = draw(st.sampled_from([0.0, 1.0, 10.0])) * random.normal(size=period)
        factor = draw(st.sampled_from([0.0, 0.1, 2.0])) * random.normal(size=(period, random.integers(1, period + 1)))
        offsets, centre = offsets - offsets.mean() if period > 1 else [0.0], draw(st.floats(-3, 3))
        levels.append(ChunkedLevel(curvature, weights, centre, offsets, factor @ factor.T))
    return levels


@settings(max_examples=150, deadline=None)
@given(chunked_levels(), st.floats(-10, 10), st.floats(0.05, 1.0) | st.just(1.0), st.sampled_from([1, 3, 12]))
def test_the_bound_is_above_the_exact_average(levels, start, share, cycles):
    assume(abs(start - optimum(levels)[1]) > 1e-3)
    periods = [level.period for level in levels]
    step_size = share * pieces_step_size([level.smoothness for level in levels], periods)
    truth, bound = truth_and_bound(levels, start, step_size, cycles * max(periods))
    assert truth <= bound.total


def test_the_constants_are_those_of_the_proof():
    """Steps 4 to 6 done by the computer. Each published constant is the smallest integer that they allow."""
    ratios = [((2 * p - 1) / math.pi + math.sqrt(p * (2 * p - 1))) / p for p in range(2, 2000)]
    assert 1.7 <= min(ratios) < 1.71  # S >= 1.7 sum lambda p
    young, terms = 2, 3
    fluctuation = young * terms * (1 + 2 * 2) ** 2
    noise = 2 + young * terms * (2**2 / 1.7) / math.sqrt(2)
    runs = young * terms * (1 + 2 * math.sqrt(2)) ** 2
    at_y = [2, fluctuation, math.ceil(noise), math.ceil(runs)]
    at_x = [2 * constant + back for constant, back in zip(at_y, (0, 4, 0, 4), strict=True)]
    assert at_x == [4, 304, 24, 180]
    # And these are in the bound: a = 0.02, L' = 1.5, T = 8.
    scaled = 0.02 * 1.5
    bound = pieces_bound(1.0, **EVEN, **NOISE, step_size=0.02)
    assert bound.start == pytest.approx(at_x[0] / (0.02 * 8))
    assert bound.fluctuation == pytest.approx(at_x[1] * (scaled * 0.1) ** 2)
    assert bound.noise == pytest.approx(at_x[2] * scaled * (0.1 + 2 * 0.2) + at_x[3] * scaled**2 * 4 * 0.3)
    assert bound.total == pytest.approx(sum(bound))


@given(st.lists(st.tuples(st.floats(0.01, 10), st.integers(1, 64)), min_size=1, max_size=5))
def test_the_step_size_is_the_root_of_its_condition(levels):
    smoothness, periods = zip(*levels, strict=True)
    a = pieces_step_size(smoothness, periods)
    triangles = [np.linalg.norm(np.tril(np.ones((p, p)), -1), 2) for p in periods]
    paths = [math.sqrt(p * (2 * p - 1)) if p > 1 else 0.0 for p in periods]
    S = sum(value * (triangle + path) for value, triangle, path in zip(smoothness, triangles, paths, strict=True))
    assert streaming_staleness(smoothness, periods, PIECES) == pytest.approx(S, rel=1e-9)
    assert 2 * a**2 * S**2 + 2 * sum(smoothness) * a == pytest.approx(1, rel=1e-9)


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(1, 9), st.integers(0, 999), st.sampled_from([0.0, 1.0, 4.0]))
def test_the_fourth_step_of_the_proof_for_any_moves_and_constants(period, passes, seed, spike):
    """The largest move of the parameters of a cohort from its turn, by any constants K_k."""
    random, steps = np.random.default_rng(seed), passes * period
    moves, constants = np.abs(random.normal(size=steps)), np.exp(spike * random.normal(size=period))
    x = np.concatenate([np.zeros(period + 1), np.cumsum(moves)])  # x[t + period] at step t, x_0 before step 0
    found = 0.0
    for t in range(steps):
        turn = t - t % period
        path = x[turn : t + period + 1]
        found += (constants[t % period] * np.max(np.abs(path - x[turn + period]))) ** 2
    norm = math.sqrt(np.mean(constants**2)) * latencies([period], PIECES)[0]
    assert found <= norm**2 * np.sum(moves**2) * (1 + 1e-12)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=9), st.floats(-2, 2))
def test_a_run_of_fluctuations_is_at_most_half_a_period_of_the_largest(values, x):
    offsets = np.array(values) - np.mean(values)
    level = ChunkedLevel(1.0, held_weights(len(values)), offsets=offsets)
    beta, found = np.abs(level.fluctuations(x)).max(), fluctuation_size(level, np.array([x]), np.array([x * x]))
    assert found <= len(values) * beta / 2 * (1 + 1e-9) + 1e-12


def test_half_a_period_is_reached_and_sizes_are_means_over_the_noise():
    alternating = ChunkedLevel(1.0, held_weights(4), offsets=[0.25, 0.25, -0.25, -0.25])
    assert fluctuation_size(alternating, np.zeros(1), np.zeros(1)) == pytest.approx(4 * 1.0 / 2)
    uneven = ChunkedLevel(2.0, piece_weights([0.75, 0.25], [0, 0]), centre=1.0, offsets=[0.1, -0.1])
    random = np.random.default_rng(0).normal(3.0, 0.5, 100_000)
    sampled = math.sqrt(np.mean([uneven.fluctuations(x)[0] ** 2 for x in random[:2000]]))
    assert fluctuation_size(uneven, np.array([3.0]), np.array([9.25])) == pytest.approx(sampled, rel=0.02)
    assert run_variance(uneven) == 0.0


def test_the_largest_variance_of_a_run_is_that_of_some_run():
    random = np.random.default_rng(1).normal(size=(5, 5))
    covariance = random @ random.T
    sums = [np.ones(j - i) @ covariance[i:j, i:j] @ np.ones(j - i) for i in range(5) for j in range(i + 1, 6)]
    assert run_variance(ChunkedLevel(1.0, held_weights(5), covariance=covariance)) == pytest.approx(max(sums))


def test_uneven_pieces_cost_the_square_of_the_step_size():
    """From the optimum, without noise, all that is left is the fluctuation: a^2 in the truth as in the bound."""
    levels = [ChunkedLevel(1.0, [[1.0]]), ChunkedLevel(0.5, held_weights(4), offsets=[0.5, 0.25, -0.25, -0.5])]
    errors = [squared_gradients(levels, 0.0, a, 40_000)[-400:].mean() for a in (0.001, 0.002)]
    assert errors[1] / errors[0] == pytest.approx(4, rel=0.02)
    bounds = [truth_and_bound(levels, 1e-3, a, 40)[1].fluctuation for a in (0.001, 0.002)]
    assert bounds[1] / bounds[0] == pytest.approx(4, rel=1e-9)


def test_a_step_size_far_above_the_admitted_one_violates_the_bound():
    """Shows that the test against exact runs can fail: all curvature in the last of eight pieces, of old parameters."""
    levels = [ChunkedLevel(1e-3, [[1.0]]), ChunkedLevel(1.0, piece_weights([0] * 7 + [1], [8 + k for k in range(8)]))]
    admitted = pieces_step_size([level.smoothness for level in levels], [1, 8])
    assert chunked_growth(levels, admitted) < 1 < chunked_growth(levels, 12 * admitted)
    _, bound = truth_and_bound(levels, 1.0, admitted, 2400)
    assert squared_gradients(levels, 1.0, 12 * admitted, 2400).mean() > bound.total


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"pieces_bound: steps must be a multiple of every period, \(1, 2\), got 7"):
        pieces_bound(1.0, **(EVEN | {"steps": 7}), **NOISE)
    with pytest.raises(ValueError, match=r"pieces_bound: step_size must be at most 0\.\d+"):
        pieces_bound(1.0, **EVEN, **NOISE, step_size=1.0)
    with pytest.raises(ValueError, match="pieces_bound: fluctuations, variances and run_variances need a number"):
        pieces_bound(1.0, **EVEN, **(NOISE | {"variances": [0.1]}))
    with pytest.raises(ValueError, match="pieces_bound: fluctuations, variances and run_variances need a number"):
        pieces_bound(1.0, **EVEN, **(NOISE | {"run_variances": [0.1, -0.1]}))
    with pytest.raises(ValueError, match=r"truth_and_bound: piece k has parameters of age .2 3. at most"):
        truth_and_bound([ChunkedLevel(1.0, piece_weights([0.5, 0.5], [3, 0]))], 1.0, 0.01, 2)
