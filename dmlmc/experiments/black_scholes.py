"""The market of the experiment, with closed forms for its prices and hedge ratios."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dmlmc._internal.checks import positive, real


@dataclasses.dataclass(frozen=True)
class Market:
    """Geometric Brownian motion and a call option on it; the defaults are those of the paper's experiment.

    The paper does not say what ``spot`` is: 1 is from its author's code, kstoneriv3/delayed-mlmc on GitHub.

    >>> Market(strike=2.0)
    Market(drift=1.0, volatility=1.0, strike=2.0, spot=1.0, maturity=1.0)
    """

    drift: float = 1.0
    volatility: float = 1.0
    strike: float = 3.0
    spot: float = 1.0
    maturity: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "drift", real("Market: drift", self.drift))
        for name in ("volatility", "strike", "spot", "maturity"):
            object.__setattr__(self, name, positive(f"Market: {name}", getattr(self, name)))


def expected_payoff(market: Market) -> float:
    """``E[max(S_T - K, 0)]`` under the real-world drift.

    >>> round(expected_payoff(Market()), 4)
    0.9589
    """
    forward = market.spot * math.exp(market.drift * market.maturity)
    deviation = market.volatility * math.sqrt(market.maturity)
    d1 = math.log(forward / market.strike) / deviation + deviation / 2
    return forward * _normal_cdf(d1) - market.strike * _normal_cdf(d1 - deviation)


def black_scholes_price(market: Market) -> float:
    """The price of the option at zero interest rate: the p0 of perfect replication, for any drift.

    >>> round(black_scholes_price(Market()), 4)
    0.1099
    """
    return expected_payoff(dataclasses.replace(market, drift=0.0))


def black_scholes_delta(market: Market, t: ArrayLike, s: ArrayLike) -> Float[Array, "..."]:
    """The hedge ratio ``N(d1)`` of perfect replication at time t and price s; a step at the strike at maturity.

    >>> [round(float(black_scholes_delta(Market(), t, 3.0)), 4) for t in (0.0, 1.0)]
    [0.6915, 0.5]
    """
    t, s = jnp.asarray(t, float), jnp.asarray(s, float)
    # The inner jnp.where calls avoid division by zero: otherwise derivatives are NaN even where that branch is unused.
    open_market, worth = market.maturity - t > 0, s > 0
    deviation = market.volatility * jnp.sqrt(jnp.where(open_market, market.maturity - t, 1.0))
    moneyness = jnp.log(jnp.where(worth, s, 1.0) / market.strike)
    before = jax.scipy.special.ndtr(moneyness / deviation + deviation / 2)
    return jnp.where(worth, jnp.where(open_market, before, (1 + jnp.sign(s - market.strike)) / 2), 0.0)


def price_range(market: Market, t: float) -> dict[str, float]:
    """The 5% and 95% quantiles of the price at time t.

    >>> price_range(Market(), 0.0)
    {'low': 1.0, 'high': 1.0}
    """
    centre = math.log(market.spot) + (market.drift - market.volatility**2 / 2) * t
    half = 1.6448536269514722 * market.volatility * math.sqrt(t)  # the 95% quantile of a standard normal variable
    return {"low": math.exp(centre - half), "high": math.exp(centre + half)}


def _normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
