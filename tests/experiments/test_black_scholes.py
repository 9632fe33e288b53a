import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from dmlmc.experiments import black_scholes

MARKETS = [
    black_scholes.Market(),
    black_scholes.Market(drift=-0.3, volatility=0.4, strike=1.1, spot=1.2, maturity=0.5),
]


@pytest.mark.parametrize("market", MARKETS)
def test_closed_forms_agree_with_quadrature(x64, market):
    def mean_payoff(drift, spot, time_left):
        def integrand(z):
            exponent = (drift - market.volatility**2 / 2) * time_left + market.volatility * np.sqrt(time_left) * z
            return max(spot * np.exp(exponent) - market.strike, 0.0) * stats.norm.pdf(z)

        kink = (np.log(market.strike / spot) - (drift - market.volatility**2 / 2) * time_left) / market.volatility
        return integrate.quad(integrand, kink / np.sqrt(time_left), 12.0, epsabs=1e-13, epsrel=1e-12)[0]

    T = market.maturity
    np.testing.assert_allclose(
        black_scholes.expected_payoff(market), mean_payoff(market.drift, market.spot, T), rtol=1e-9
    )
    np.testing.assert_allclose(black_scholes.black_scholes_price(market), mean_payoff(0.0, market.spot, T), rtol=1e-9)
    for t, s in ((0.0, market.spot), (0.6 * T, 0.8 * market.strike), (0.9 * T, 1.3 * market.strike)):
        step = 1e-4 * s
        slope = (mean_payoff(0.0, s + step, T - t) - mean_payoff(0.0, s - step, T - t)) / (2 * step)
        np.testing.assert_allclose(black_scholes.black_scholes_delta(market, t, s), slope, rtol=1e-5)


def test_paper_numbers():
    assert black_scholes.black_scholes_price(black_scholes.Market()) == pytest.approx(0.1099, abs=5e-5)
    assert black_scholes.expected_payoff(black_scholes.Market()) == pytest.approx(0.9589, abs=5e-5)


def test_delta_and_its_derivatives_at_maturity_and_price_zero():
    market = black_scholes.Market()
    delta = lambda t, s: black_scholes.black_scholes_delta(market, t, s)  # noqa: E731
    times, prices = jnp.array([1.0, 1.0, 1.0, 0.5, 1.0]), jnp.array([2.0, 3.0, 4.0, 0.0, 0.0])
    assert delta(times, prices).tolist() == [0.0, 0.5, 1.0, 0.0, 0.0]
    for derivative in (jax.grad(delta, 0), jax.grad(delta, 1)):
        assert np.all(np.isfinite(jax.vmap(derivative)(times, prices)))


def test_price_range_has_probability_90_percent():
    for market, t in ((MARKETS[0], 0.5), (MARKETS[1], 0.2)):
        scale = market.spot * np.exp((market.drift - market.volatility**2 / 2) * t)
        price = stats.lognorm(s=market.volatility * np.sqrt(t), scale=scale)
        ends = black_scholes.price_range(market, t)
        np.testing.assert_allclose(price.cdf([ends["low"], ends["high"]]), [0.05, 0.95], rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "value"), [("volatility", 0.0), ("strike", -1.0), ("spot", 0.0), ("drift", np.nan), ("maturity", np.inf)]
)
def test_errors_name_the_bad_argument(name, value):
    with pytest.raises(ValueError, match=f"Market: {name} must be"):
        black_scholes.Market(**{name: value})


def test_a_market_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        black_scholes.Market().drift = 2.0
