"""Quadratics used in pieces: exact runs against a second way to compute them, and against held gradients."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dmlmc.theory.chunked import ChunkedLevel, gathered_weights, held_weights, optimum, piece_noise, piece_weights
from dmlmc.theory.chunked_runs import (
    chunked_growth,
    chunked_stability_limit,
    chunked_stationary_error,
    exact_run,
    squared_gradients,
)
from dmlmc.theory.held_noise import stationary_error
from dmlmc.theory.quadratic import LinearModel, exact_moments, growth_factor, stability_limit

UNEVEN = [
    ChunkedLevel(1.0, [[1.0]], centre=0.5, covariance=[[0.3]]),
    ChunkedLevel(-0.2, piece_weights([0.9, 0.1], [1, 3]), 2.0, [0.4, -0.4], [[0.2, -0.1], [-0.1, 0.3]]),
    ChunkedLevel(0.3, piece_weights([0.1, 0.6, 0.3], [0, 4, 2]), -1.0, [0.1, 0.2, -0.3], np.full((3, 3), 0.05)),
]
held_strategy = st.lists(st.tuples(st.floats(-0.5, 1), st.floats(0.01, 1), st.integers(1, 6)), min_size=1, max_size=3)


def expanded_run(levels, start, step_size, steps):
    """Mean and mean square of x_t, from x_t as a combination of 1 and of all noises drawn so far, written out."""
    number = {(l, step): 1 + l * steps + step for l in range(len(levels)) for step in range(steps)}
    covariance = np.zeros((1 + len(number),) * 2)
    for l, level in enumerate(levels):
        for s, t in ((s, t) for s in range(steps) for t in range(steps) if s // level.period == t // level.period):
            covariance[number[l, s], number[l, t]] = level.covariance[s % level.period, t % level.period]
    rows = [start * np.eye(len(covariance))[0]]
    for t in range(steps - 1):
        new = rows[t].copy()
        for l, level in enumerate(levels):
            k = t % level.period
            for age, weight in enumerate(level.weights[k]):
                new -= step_size * level.period * level.curvature * weight * rows[max(t - age, 0)]
                new[0] += step_size * level.period * level.curvature * weight * level.centre
            new[0] -= step_size * level.period * level.offsets[k]
            new[number[l, t]] -= step_size * level.period
        rows.append(new)
    means = np.array([row[0] for row in rows])
    return means, means**2 + np.array([row @ covariance @ row for row in rows])


def test_exact_runs_are_those_of_the_recursion_written_out():
    found, expected = exact_run(UNEVEN, 2.0, 0.15, 14), expanded_run(UNEVEN, 2.0, 0.15, 14)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    curvature, best = optimum(UNEVEN)
    mean, square = expected
    exact = curvature**2 * (square - mean**2 + (mean - best) ** 2)
    np.testing.assert_allclose(squared_gradients(UNEVEN, 2.0, 0.15, 14), exact, rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(held_strategy, st.floats(0.01, 2.0))
def test_held_gradients_are_pieces_of_growing_age_with_one_noise(levels, step_size):
    curvatures, variances, periods = zip(*levels, strict=True)
    assume(sum(curvatures) > 0.05)
    model = LinearModel(curvatures, variances, periods)
    chunked = [ChunkedLevel(h, held_weights(p), covariance=piece_noise(v, p, shared=True)) for h, v, p in levels]
    squares, _ = exact_moments(model, 0.7, step_size, 20)
    again = squared_gradients(chunked, math.sqrt(1.4 / model.curvature), step_size, 20)
    np.testing.assert_allclose(again, squares, rtol=1e-9)
    # Both lose half of the digits where an eigenvalue is double.
    assert chunked_growth(chunked, step_size) == pytest.approx(growth_factor(model, step_size), rel=1e-5, abs=1e-3)
    if growth_factor(model, step_size) < 0.99:
        assert chunked_stationary_error(chunked, step_size) == pytest.approx(stationary_error(model, step_size))


def test_the_limit_of_stability_is_that_of_held_gradients():
    levels = [(1.0, 1), (0.5, 2), (-0.2, 3), (0.3, 8)]
    model = LinearModel(tuple(h for h, _ in levels), (1.0,) * 4, tuple(p for _, p in levels))
    chunked = [ChunkedLevel(h, held_weights(p)) for h, p in levels]
    assert chunked_stability_limit(chunked) == pytest.approx(stability_limit(model), rel=1e-6)


def test_the_stationary_error_is_where_a_run_ends():
    long = squared_gradients(UNEVEN, 2.0, 0.1, 1200)
    assert chunked_stationary_error(UNEVEN, 0.1) == pytest.approx(long[-6:].mean(), rel=1e-9)
    assert chunked_stationary_error(UNEVEN, 3.0) == math.inf


def test_many_step_sizes_grow_as_each_alone_and_a_dead_run_not_at_all():
    sizes = np.array([[0.1, 0.5], [1.0, 4.0]])
    np.testing.assert_allclose(
        chunked_growth(UNEVEN, sizes), [[chunked_growth(UNEVEN, a) for a in row] for row in sizes], rtol=1e-9
    )
    assert chunked_growth([ChunkedLevel(1.0, [[1.0]])], 1.0) == 0.0


@given(st.floats(-5, 5))
def test_fluctuations_are_pieces_minus_gradient_and_sum_to_zero(x):
    for level in UNEVEN:
        pieces = level.curvature * level.weights.sum(axis=1) * (x - level.centre) + level.offsets
        expected = level.period * pieces - level.curvature * (x - level.centre)
        np.testing.assert_allclose(level.fluctuations(x), expected, atol=1e-12)
        assert level.fluctuations(x).sum() == pytest.approx(0.0, abs=1e-12)


def test_gathered_pieces_are_used_one_pass_later():
    """Period 3, turn r = 0: pieces with parameters of steps -3, 0, 2 are used at the steps 3, 4 and 5."""
    weights = gathered_weights([0.5, 0.2, 0.3], slots=[-3, 0, 2])
    for k, step in enumerate((3, 4, 5)):
        expected = {step + 3: 0.5 / 3, step: 0.2 / 3, step - 2: 0.3 / 3}
        assert {int(age): weights[k, age] for age in np.flatnonzero(weights[k])} == pytest.approx(expected)


def test_the_smoothness_of_even_and_of_uneven_pieces():
    assert ChunkedLevel(-0.5, held_weights(4)).smoothness == pytest.approx(0.5)
    assert ChunkedLevel(0.5, piece_weights([0, 1, 0, 0], [0] * 4)).smoothness == pytest.approx(0.5 * 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": [[0.5], [0.6]]}, "weights must be a pieces by ages array of sum 1"),
        ({"weights": [1.0]}, "weights must be a pieces by ages array of sum 1"),
        ({"offsets": [0.1, 0.1]}, "offsets must be 2 numbers of sum 0"),
        ({"offsets": [0.0]}, "offsets must be 2 numbers of sum 0"),
        ({"covariance": [[1.0]]}, r"covariance must be 2 by 2, got shape \(1, 1\)"),
        ({"curvature": math.nan}, "curvature must be finite"),
    ],
)
def test_bad_levels_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"ChunkedLevel: {message}"):
        ChunkedLevel(**{"curvature": 1.0, "weights": [[0.5], [0.5]], **arguments})


def test_other_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="piece_weights: ages needs 2 entries"):
        piece_weights([0.5, 0.5], [1])
    with pytest.raises(ValueError, match=r"piece_weights: ages\[1\] must be at least 0"):
        piece_weights([0.5, 0.5], [1, -1])
    with pytest.raises(ValueError, match=r"gathered_weights: slots\[0\] must be between -2 and 1"):
        gathered_weights([0.5, 0.5], [-3, 0])
    with pytest.raises(ValueError, match="positive total curvature, got -1"):
        optimum([ChunkedLevel(-1.0, [[1.0]])])
    with pytest.raises(ValueError, match="periods must repeat within 100000 steps"):
        exact_run([ChunkedLevel(1.0, held_weights(p)) for p in (317, 331)], 1.0, 0.1, 1)
