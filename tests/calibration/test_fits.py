"""Fitted rates and their intervals."""

import diffrax
import jax.numpy as jnp
import numpy as np
import pytest

import dmlmc
from dmlmc.calibration.fits import _decay_rate
from dmlmc.calibration.levels import Measurement
from tests.helpers.measurements import TRUE, measure


def test_fitted_rates_are_the_true_ones_as_often_as_the_interval_says(x64):
    hits, errors = [], []
    for seed in range(60):
        fitted = dmlmc.fit_rates(measure(key=seed, max_level=3, steps=[1, 2, 4, 8]), resamples=300)
        hits.append(fitted.b.low < TRUE.b < fitted.b.high)
        errors.append(fitted.b.estimate - TRUE.b)
        assert fitted.d.estimate == pytest.approx(TRUE.d, abs=1e-9) and fitted.d.high - fitted.d.low < 1e-9
        assert fitted.c == pytest.approx((1.0, 1.0, 1.0))
    assert 50 <= sum(hits) <= 60  # 57 expected of 60 at 95%; fewer than 50 has a probability of 1 in 2000
    assert abs(np.mean(errors)) < 4 * np.std(errors) / 60**0.5 + 0.01  # the logarithm of a mean is biased a little


def test_exponents_known_up_to_rounding_have_an_interval_without_width():
    """In single precision all blocks agree on d up to rounding, and some draws of blocks agree exactly."""
    for key in range(4):
        fitted = dmlmc.fit_rates(measure(key=key, max_level=3, samples=4096, blocks=32))
        assert fitted.d.low == fitted.d.estimate == fitted.d.high == pytest.approx(TRUE.d, abs=1e-4)


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_the_interval_covers_the_truth_in_heavy_tails(spread):
    """Second moments of lognormal times normal gradients: at spread 2 the kurtosis is above a million."""
    hits, blocks, levels = 0, 32, 4
    for seed in range(200):
        rng = np.random.default_rng(seed)
        common = np.exp(2 * spread * rng.normal(size=(blocks, 32)))  # a wild path is wild at every level
        squares = (
            common * rng.chisquare(3, size=(levels, blocks, 32)) * 2.0 ** (-1.6 * np.arange(levels))[:, None, None]
        )
        found = _decay_rate(squares.mean(axis=2)[None], rng.integers(0, blocks, (300, blocks)))
        hits += found.low < 1.6 < found.high
    # Of 200 at 95%, fewer than 178 have a probability of 1 in 1000.
    assert hits >= 178


def geometric_brownian_motion(solver):
    return dmlmc.SDELoss(
        drift=lambda t, y, params: params[0] * y,
        diffusion=lambda t, y, params: params[1] * y[:, None],
        terminal=lambda y, params: jnp.sum((y - 1.2) ** 2),
        y0=jnp.ones(1),
        t1=1.0,
        coarsest_steps=32,
        noise_dim=1,
        solver=solver,
    )


@pytest.mark.parametrize(("solver", "rate"), [(diffrax.ItoMilstein(), 2.0), (diffrax.Euler(), 1.0)])
def test_the_scheme_decides_b_on_geometric_brownian_motion(x64, solver, rate):
    found = measure(
        geometric_brownian_motion(solver),
        jnp.array([0.1, 0.2]),
        jnp.array([0.11, 0.19]),
        max_level=3,
        samples=4096,
        blocks=32,
    )
    fitted = dmlmc.fit_rates(found)
    assert fitted.b.low < rate < fitted.b.high
    assert fitted.b.high - fitted.b.low < 0.5  # so that 1 and 2 are told apart
    assert fitted.c.estimate == pytest.approx(1.0) and found.table().consistency.max() < 4


def test_several_points_give_the_mean_of_their_exponents(x64):
    points = [measure(key=key, max_level=3) for key in (0, 1)]
    alone, both = [dmlmc.fit_rates(point) for point in points], dmlmc.fit_rates(points)
    assert both.b.estimate == pytest.approx((alone[0].b.estimate + alone[1].b.estimate) / 2)
    assert both.b.high - both.b.low < max(one.b.high - one.b.low for one in alone)


def test_bad_arguments_of_fits_are_named():
    found = measure(max_level=3, blocks=32)
    other = Measurement(found.blocks[found.blocks.level < 3], found.levels[:3])
    flat = Measurement(found.blocks.assign(variance=0.0), found.levels)
    for options, error, message in [
        ({"measured": []}, TypeError, "fit_rates: measured must be a dmlmc.Measurement"),
        ({"measured": [1]}, TypeError, "fit_rates: measured must be a dmlmc.Measurement"),
        ({"measured": [found, other]}, ValueError, "fit_rates: measured must have the same levels"),
        ({"measured": flat}, ValueError, "fit_rates: measured needs a positive variance"),
        ({"drop": 3}, ValueError, "fit_rates: drop must leave two levels or more of the 4 measured"),
        ({"drop": -1}, ValueError, "fit_rates: drop must be at least 0"),
        ({"resamples": 1}, ValueError, "fit_rates: resamples must be at least 20"),
    ]:
        with pytest.raises(error, match=message):
            dmlmc.fit_rates(**{"measured": found, **options})
