"""The Heston model's closed forms: limits, parity, an independent formula, derivatives by finite differences."""

import dataclasses

import numpy as np
import pytest
from scipy import integrate

from dmlmc.experiments.black_scholes import Market, black_scholes_price
from dmlmc.experiments.heston_prices import (
    BOTH,
    STOCK,
    Heston,
    call_price,
    characteristic,
    exact_hedges,
    mean_variance,
    share_below,
    swap_slope,
    swap_value,
)

MODEL = Heston(variance=0.06, strike=1.1)


@pytest.mark.parametrize("variance", [0.04, 0.09])
@pytest.mark.parametrize("strike", [0.8, 1.0, 1.3])
def test_without_noise_of_the_variance_the_price_is_that_of_black_and_scholes(variance, strike):
    errors = []
    for noise in (1e-3, 1e-5):
        model = Heston(noise=noise, variance=variance, strike=strike)
        mean = float(swap_value(model, 0.0, variance)) / model.maturity
        market = Market(volatility=mean**0.5, strike=strike, spot=model.spot, maturity=model.maturity)
        errors.append(abs(call_price(model).price - black_scholes_price(market)))
    assert errors[1] < 1e-6 and errors[1] < errors[0] / 10


def put_price(model):
    """By another contour, on which the transform is that of the put."""

    def integrand(u):
        z = u + 1.5j  # for the call it is u - i/2, between the two poles
        constant, slope = characteristic(model, z, model.maturity)
        moneyness = np.log(model.spot / model.strike)
        return (np.exp(1j * z * moneyness + constant + slope * model.variance) / (z * (z + 1j))).real

    return -model.strike * integrate.quad(integrand, 0, np.inf, limit=200)[0] / np.pi


@pytest.mark.parametrize("strike", [0.7, 1.0, 1.4])
def test_put_and_call_differ_by_the_forward(strike):
    model = dataclasses.replace(MODEL, strike=strike)
    put = put_price(model)
    assert put > 0
    np.testing.assert_allclose(call_price(model).price - put, model.spot - strike, atol=1e-7)


def test_the_characteristic_function_knows_total_mass_the_martingale_and_the_variance():
    for u in (0.0, -1j):
        constant, slope = characteristic(MODEL, u, 0.7)
        np.testing.assert_allclose([constant, slope], 0.0, atol=1e-12)
    step = 1e-4  # the mean of log S is minus half the expected integral of v
    constant, slope = characteristic(MODEL, step, MODEL.maturity)
    mean = (constant + slope * MODEL.variance).imag / step
    np.testing.assert_allclose(mean, -float(swap_value(MODEL, 0.0, MODEL.variance)) / 2, rtol=1e-5)


def test_the_exponent_has_no_jump_where_a_wrong_branch_would():
    long = dataclasses.replace(MODEL, maturity=30.0)
    u = np.linspace(0.0, 60.0, 6001)
    constant, _ = characteristic(long, u - 0.5j, long.maturity)
    assert np.max(np.abs(np.diff(constant.imag))) < 0.1


def test_derivatives_are_those_of_the_price():
    t, s, v, step = 0.3, np.array([0.8, 1.0, 1.3]), np.array([0.02, 0.04, 0.09]), 1e-4

    def price(ds, dv):
        return call_price(MODEL, t, s + ds, v + dv).price

    found = call_price(MODEL, t, s, v)
    np.testing.assert_allclose(found.delta, (price(step, 0) - price(-step, 0)) / (2 * step), atol=1e-5)
    np.testing.assert_allclose(found.vega, (price(0, step) - price(0, -step)) / (2 * step), atol=1e-4)


def test_the_swap_grows_at_the_rate_of_the_mean_variance():
    step, t = 1e-2, 0.4
    slope = float(swap_value(MODEL, t, 0.1) - swap_value(MODEL, t, 0.1 - step)) / step
    np.testing.assert_allclose(slope, float(swap_slope(MODEL, t)), rtol=1e-4)
    total, _ = integrate.quad(lambda t: float(mean_variance(MODEL, t)), 0, MODEL.maturity)
    np.testing.assert_allclose(float(swap_value(MODEL, 0.0, MODEL.variance)), total, rtol=1e-5)
    assert float(swap_value(MODEL, MODEL.maturity, 0.1, accrued=0.07)) == pytest.approx(0.07)


def test_the_hedges_leave_no_exposure_that_their_instruments_can_remove():
    t, s, v = 0.3, 1.05, 0.05
    found, hedges = call_price(MODEL, t, s, v), exact_hedges(MODEL, t, s, v)
    both, alone = hedges[BOTH], hedges[STOCK]
    volatility, rho = v**0.5, MODEL.correlation
    noises = np.array([[volatility * s, 0], MODEL.noise * volatility * np.array([rho, (1 - rho**2) ** 0.5])])  # of S, v
    option = np.array([found.delta, found.vega]) @ noises
    hedged = option - both.stock * noises[0] - both.swap * float(swap_slope(MODEL, t)) * noises[1]
    np.testing.assert_allclose(hedged, 0, atol=1e-7)
    left = option - alone.stock * noises[0]
    np.testing.assert_allclose(left @ noises[0], 0, atol=1e-10)  # uncorrelated with the stock
    assert alone.swap == 0 and np.abs(left).max() > 0.01


def test_the_long_run_law_of_the_variance_is_gamma_with_the_shape_of_fellers_ratio():
    exponential = Heston(reversion=0.5, noise=0.2)  # Feller's ratio is 1
    np.testing.assert_allclose(share_below(exponential, 0.02), 1 - np.exp(-0.02 / 0.04), rtol=1e-9)
    near_zero = [share_below(Heston(reversion=1.0, noise=noise), 1e-4) for noise in (0.2, 0.5, 2.0)]
    assert near_zero == sorted(near_zero) and near_zero[0] < 0.01 and near_zero[-1] > 0.5


@pytest.mark.parametrize(
    "wrong", [{"noise": 0.0}, {"correlation": 1.5}, {"variance": -0.1}, {"maturity": "1"}], ids=str
)
def test_wrong_arguments_are_named(wrong):
    with pytest.raises((ValueError, TypeError), match=f"Heston: {next(iter(wrong))}"):
        Heston(**wrong)


def test_there_is_no_price_at_maturity():
    with pytest.raises(ValueError, match="time to maturity"):
        call_price(MODEL, 1.0)
