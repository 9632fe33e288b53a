"""The Heston model: a market with stochastic volatility, its call price by the characteristic function, and hedges.

``dS = sqrt(v) S dW1, dv = kappa (theta - v) dt + xi sqrt(v) dW2`` with correlated W1 and W2, interest rate zero. Beside
the stock a variance swap is traded. It pays the integral of v up to maturity, so its value is a martingale with a
closed form, and with both instruments the market is complete.
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Complex, Float
from scipy import integrate, stats

from dmlmc._internal.checks import positive, real


@dataclasses.dataclass(frozen=True)
class Heston:
    """The model and a call option on the stock.

    ``reversion`` is kappa, ``long_variance`` theta, ``noise`` xi, ``correlation`` that of W1 and W2. The defaults are a
    year at a volatility of 20%, with a skew as in equity markets. They have ``feller`` = 4/3: at 1 or more v never
    reaches 0, and the simulated v hardly ever. (With kappa = 1 and xi = 2, as in Buehler et al. 2019, it is 0.02: v
    spends most of its time near 0, where no scheme for the SDE has a good strong order.)

    >>> round(Heston().feller, 3)
    1.333
    """

    reversion: float = 1.5
    long_variance: float = 0.04
    noise: float = 0.3
    correlation: float = -0.7
    variance: float = 0.04
    spot: float = 1.0
    strike: float = 1.0
    maturity: float = 1.0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            check = real if field.name == "correlation" else positive
            object.__setattr__(self, field.name, check(f"Heston: {field.name}", getattr(self, field.name)))
        if not abs(self.correlation) <= 1:
            raise ValueError(f"Heston: correlation must be between -1 and 1, got {self.correlation:g}.")

    @property
    def feller(self) -> float:
        """``2 kappa theta / xi^2``: v never reaches 0 if this is at least 1."""
        return 2 * self.reversion * self.long_variance / self.noise**2


def share_below(model: Heston, level: float) -> float:
    """The share of time that v spends below a level in the long run: its stationary law is a gamma distribution.

    >>> round(share_below(Heston(), 0.04), 2)
    0.61
    """
    return float(stats.gamma.cdf(level, model.feller, scale=model.noise**2 / (2 * model.reversion)))


def mean_variance(model: Heston, t: ArrayLike) -> Float[Array, "..."]:
    """``E v_t``."""
    excess = model.variance - model.long_variance
    return model.long_variance + excess * jnp.exp(-model.reversion * jnp.asarray(t, float))


def swap_slope(model: Heston, t: ArrayLike) -> Float[Array, "..."]:
    """The derivative of the value of the variance swap in v."""
    return -jnp.expm1(-model.reversion * (model.maturity - jnp.asarray(t))) / model.reversion


def swap_value(model: Heston, t: ArrayLike, v: ArrayLike, accrued: ArrayLike = 0.0) -> Float[Array, "..."]:
    """The value of the variance swap at time t: ``accrued``, the integral of v up to t, and what is expected of it.

    >>> round(float(swap_value(Heston(), 0.0, 0.04)), 4)
    0.04
    """
    left = model.maturity - jnp.asarray(t, float)
    expected = (jnp.asarray(v) - model.long_variance) * swap_slope(model, t) + model.long_variance * left
    return jnp.asarray(accrued) + expected


class Exponents(NamedTuple):
    """The characteristic function of ``log(S_T / S_t)`` is ``exp(constant + slope v)``."""

    constant: Complex[np.ndarray, "..."]
    slope: Complex[np.ndarray, "..."]


def characteristic(model: Heston, u: complex | np.ndarray, left: float) -> Exponents:
    """The exponents of ``E exp(i u log(S_T / S_t))``, with ``left = T - t``, for complex u.

    Of the two square roots d the one that makes ``exp(-d left)`` small is used (Albrecher et al. 2007): the logarithm
    then stays off its branch cut. Differences of nearly equal numbers are rewritten, so that xi may be tiny.
    """
    quadratic = u * (u + 1j)
    drift = model.reversion - 1j * model.correlation * model.noise * u
    root = np.sqrt(drift**2 + model.noise**2 * quadratic)
    rate, decay = -quadratic / (drift + root), -np.expm1(-root * left)  # rate is (drift - root) / xi^2
    ratio = model.noise**2 * rate / (drift + root)
    logarithm = _log1p(ratio * decay / (1 - ratio))
    slope = rate * decay / (1 - ratio * (1 - decay))
    constant = model.reversion * model.long_variance * (rate * left - 2 * logarithm / model.noise**2)
    return Exponents(constant, slope)


def _log1p(z: Complex[np.ndarray, "..."] | complex) -> Complex[np.ndarray, "..."] | complex:
    """``log(1 + z)``: numpy's is not exact for small complex z."""
    x, y = np.real(z), np.imag(z)
    return np.log1p(2 * x + x**2 + y**2) / 2 + 1j * np.arctan2(y, 1 + x)


class CallPrice(NamedTuple):
    """The price of the call, and its derivatives in s and v."""

    price: Float[np.ndarray, "..."]
    delta: Float[np.ndarray, "..."]
    vega: Float[np.ndarray, "..."]


def call_price(model: Heston, t: float = 0.0, s: ArrayLike | None = None, v: ArrayLike | None = None) -> CallPrice:
    """Price and derivatives before maturity, for any number of prices s and variances v; by default those of today.

    One integral along the line with imaginary part 1/2 (Lewis 2001), differentiated under the integral sign.

    >>> round(float(call_price(Heston()).price), 4)
    0.0754
    """
    left = positive("call_price: time to maturity", model.maturity - t)
    s, v = np.broadcast_arrays(
        np.asarray(model.spot if s is None else s, float), np.asarray(model.variance if v is None else v, float)
    )
    moneyness = np.log(s / model.strike)

    def integrand(u):
        constant, slope = characteristic(model, u - 0.5j, left)
        value = np.exp(1j * u * moneyness + constant + slope * v) / (u**2 + 0.25)
        return np.stack([value.real, ((0.5 + 1j * u) * value).real, (slope * value).real])

    price, delta, vega = integrate.quad_vec(integrand, 0.0, np.inf, epsabs=1e-8, epsrel=1e-8, norm="max")[0] / np.pi
    root = np.sqrt(s * model.strike)
    return CallPrice(s - root * price, 1 - root / s * delta, -root * vega)


class Holdings(NamedTuple):
    """How much of the stock and of the variance swap to hold."""

    stock: Float[np.ndarray, "..."]
    swap: Float[np.ndarray, "..."]


STOCK, BOTH = "stock", "stock and swap"  # what a hedge trades


def exact_hedges(model: Heston, t: float, s: ArrayLike, v: ArrayLike) -> dict[str, Holdings]:
    """Before maturity: the hedge of least variance with the stock alone, and the one with both that replicates a call.

    The first holds the delta and the part of the vega that the stock explains.

    >>> {name: round(float(held.stock), 3) for name, held in exact_hedges(Heston(), 0.0, 1.0, 0.04).items()}
    {'stock': 0.497, 'stock and swap': 0.604}
    """
    found = call_price(model, t, s, v)
    alone = found.delta + model.correlation * model.noise * found.vega / np.asarray(s)
    both = Holdings(found.delta, found.vega / float(swap_slope(model, t)))
    return {STOCK: Holdings(alone, np.zeros_like(alone)), BOTH: both}
