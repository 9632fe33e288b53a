"""Deep hedging of a call in the Heston model, by ``dmlmc.SDELoss``.

The trader sells the option for some cash and holds stock, and perhaps a variance swap, as a network of (t, S, v) says.
Two noises drive the market and do not commute, so Milstein's scheme alone has b near 1: see ``antithetic``.
"""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dmlmc._internal.checks import real
from dmlmc.experiments.black_scholes import Market, black_scholes_delta
from dmlmc.experiments.heston_prices import Heston, swap_slope, swap_value
from dmlmc.sde import SDELoss

LEAST = 1e-6  # of the simulated variance: a volatility of 0.1%
SHARP = 1e-7  # a smoothing that changes nothing
TRADED = np.array([0, 2])  # the instruments in the state (S, v, swap)
Hedge = Callable[..., Float[Array, " instruments"]]  # of t, s and v


class HedgeNetwork(eqx.Module):
    """How much to hold of the stock, and of the swap if there are two ``instruments``, from (t, s, v)."""

    layers: eqx.nn.MLP
    model: Heston = eqx.field(static=True)

    def __init__(self, model: Heston, instruments: int, key: Key[Array, ""], width: int = 32):
        self.layers, self.model = eqx.nn.MLP(3, instruments, width, 2, jax.nn.silu, key=key), model

    def __call__(self, t: Any, s: Float[Array, ""], v: Float[Array, ""]) -> Float[Array, " instruments"]:
        model = self.model  # inputs of order 1
        deviation = model.spot * (model.long_variance * model.maturity) ** 0.5
        inputs = [t / model.maturity, (s - model.spot) / deviation, v / model.long_variance - 1]
        return self.layers(jnp.stack([jnp.asarray(one, s.dtype) for one in inputs]))


class BlackScholesHedge(eqx.Module):
    """The delta of a trader who takes the volatility for constant."""

    market: Market = eqx.field(static=True)

    def __call__(self, t: Any, s: Float[Array, ""], v: Float[Array, ""]) -> Float[Array, "1"]:
        return black_scholes_delta(self.market, t, s)[None].astype(s.dtype)


class Trader(eqx.Module):
    """What is trained: the hedge, and the ``cash`` for which the option is sold."""

    hedge: Hedge
    cash: Float[Array, ""]


@eqx.filter_jit
def initial_trader(key: Key[Array, ""], model: Heston | None = None, *, swap: bool = False) -> Trader:
    """A random network, and no cash.

    >>> trader = initial_trader(jax.random.key(0), swap=True)
    >>> trader.hedge(0.0, jnp.array(1.0), jnp.array(0.04)).shape, float(trader.cash)
    ((2,), 0.0)
    """
    return Trader(HedgeNetwork(model or Heston(), 2 if swap else 1, key), jnp.zeros(()))


def market_drift(model: Heston, y: Float[Array, "3"]) -> Float[Array, "3"]:
    """The drift of (S, v, swap). Only v has one. It is linear, so the simulated v has the right mean on every grid."""
    return jnp.array([0.0, 1.0, 0.0], y.dtype) * model.reversion * (model.long_variance - y[1])


def market_diffusion(model: Heston, t: Any, y: Float[Array, "3"]) -> Float[Array, "3 2"]:
    """The diffusion of (S, v, swap). It takes v at ``LEAST`` where a coarse step leads below."""
    volatility, rho = jnp.sqrt(jnp.maximum(y[1], LEAST)), model.correlation
    of_variance = [rho, (1 - rho**2) ** 0.5]
    sizes = jnp.stack([y[0], jnp.full_like(y[0], model.noise), model.noise * swap_slope(model, t).astype(y.dtype)])
    return (volatility * sizes)[:, None] * jnp.array([[1.0, 0.0], of_variance, of_variance], y.dtype)


def start(model: Heston) -> Float[Array, "3"]:
    """(S, v, swap) at time 0."""
    return jnp.stack([jnp.asarray(model.spot), jnp.asarray(model.variance), swap_value(model, 0.0, model.variance)])


class Objective(eqx.Module):
    """The loss of a trader from ``payoff - profit - cash``, and the width over which its kinks are rounded."""

    smoothing: Float[Array, ""]  # an array, so that losses of any smoothing share a compiled program
    strike: float
    tail: float | None

    def __call__(self, price: Float[Array, ""], profit: Float[Array, ""], trader: Trader) -> Float[Array, ""]:
        shortfall = positive_part(price - self.strike, self.smoothing) - profit - trader.cash
        if self.tail is None:
            return shortfall**2
        return trader.cash + positive_part(shortfall, self.smoothing) / self.tail


def heston_loss(
    model: Heston | None = None,
    *,
    tail: float | None = None,
    cost: float | None = None,
    smoothing: float = 0.0,
    antithetic: bool = True,
    solver: diffrax.AbstractSolver | None = None,
    coarsest_steps: int = 8,
) -> SDELoss:
    """The loss of a ``Trader`` who sells the call.

    - By default the square of the shortfall, ``payoff - profit - cash``. Its minimum is at the fair price.
      With ``tail=0.1`` it is the expected shortfall (CVaR) of the worst tenth in the form of Rockafellar and Uryasev,
      ``cash + max(payoff - profit - cash, 0) / tail``. Its minimum over the cash is the mean of the largest tenth of
      ``payoff - profit``.
    - Trading is continuous by default: the state is (S, v, profit). With ``cost``, trades are at the dates of the
      coarsest grid only, and a trade costs that share of its value. ``cost=0.0`` is free trading at these dates. The
      state is then (S, v, swap).
    - ``smoothing``: the width over which all kinks are rounded, in units of the stock.
    - ``antithetic``, ``solver``, ``coarsest_steps``: as for ``SDELoss``.

    >>> loss, trader = heston_loss(), initial_trader(jax.random.key(0), swap=True)
    >>> loss.loss(trader, loss.sample(jax.random.key(1), level=1)).shape
    ()
    """
    model = model or Heston()
    if tail is not None and not 0 < real("heston_loss: tail", tail) < 1:
        raise ValueError(f"heston_loss: tail must be between 0 and 1, got {tail!r}.")
    for name, value in (("smoothing", smoothing), ("cost", cost or 0.0)):
        if real(f"heston_loss: {name}", value) < 0:
            raise ValueError(f"heston_loss: {name} must be 0 or more, got {value!r}.")
    objective = Objective(jnp.array(smoothing, float), model.strike, tail)
    grid: dict[str, Any] = {"t1": model.maturity, "coarsest_steps": coarsest_steps, "noise_dim": 2}
    grid |= {"solver": solver, "antithetic": antithetic}
    if cost is not None:
        dates = np.linspace(0.0, model.maturity, coarsest_steps + 1)[1:]
        return SDELoss(
            lambda t, y, trader: market_drift(model, y),
            lambda t, y, trader: market_diffusion(model, t, y),
            AtDates(objective, model, cost),
            start(model),
            observation_times=dates.tolist(),
            **grid,
        )

    def diffusion(t, y, trader):
        of_market, holdings = market_diffusion(model, t, y), trader.hedge(t, y[0], y[1])
        return jnp.stack([of_market[0], of_market[1], holdings @ of_market[TRADED[: holdings.size]]])

    def drift(t, y, trader):
        return market_drift(model, y)

    return SDELoss(drift, diffusion, AtTheEnd(objective), start(model).at[2].set(0.0), **grid)


class AtTheEnd(eqx.Module):
    """The terminal loss of continuous trading, whose profit is the last entry of the state."""

    objective: Objective

    def __call__(self, y: Float[Array, "3"], trader: Trader) -> Float[Array, ""]:
        return self.objective(y[0], y[2], trader)


class AtDates(eqx.Module):
    """The terminal loss of trading at dates, from the market at the dates."""

    objective: Objective
    model: Heston = eqx.field(static=True)
    cost: float

    def __call__(self, y: Float[Array, "dates 3"], trader: Trader) -> Float[Array, ""]:
        profit = trading_profit(self.model, trader.hedge, y, self.cost, self.objective.smoothing)
        return self.objective(y[-1, 0], profit, trader)


def smoothed(loss: SDELoss, smoothing: float) -> SDELoss:
    """The loss with another ``smoothing``: it shares the compiled programs of the first."""
    return eqx.tree_at(lambda one: one.terminal.objective.smoothing, loss, jnp.array(smoothing, float))


def positive_part(x: Float[Array, "..."], smoothing: Float[Array, ""]) -> Float[Array, "..."]:
    """``max(x, 0)``, with the kink rounded over a width of ``smoothing``."""
    width = jnp.maximum(smoothing, SHARP)
    return width * jax.nn.softplus(x / width)


def trading_profit(
    model: Heston, hedge: Hedge, states: Float[Array, "dates 3"], cost: Any = 0.0, smoothing: Any = 0.0
) -> Float[Array, ""]:
    """The profit of trading at time 0 and at all dates but the last, from the states (S, v, swap) at the dates."""
    dates = jnp.arange(len(states)) * (model.maturity / len(states))
    states = jnp.concatenate([start(model)[None].astype(states.dtype), states])
    holdings = jax.vmap(hedge)(dates, states[:-1, 0], states[:-1, 1])
    return gains(holdings, states, cost, smoothing)


def gains(
    holdings: Float[Array, "dates instruments"],
    states: Float[Array, "dates+1 3"],
    cost: Any = 0.0,
    smoothing: Any = 0.0,
) -> Float[Array, ""]:
    """What holdings earn from one date to the next, less ``cost`` times the value of what is traded."""
    prices = states[:, TRADED[: holdings.shape[1]]]
    trades = jnp.diff(holdings, axis=0, prepend=0.0)
    width = jnp.maximum(jnp.asarray(smoothing, trades.dtype), SHARP)
    traded = jnp.sqrt(trades**2 + width**2) - width
    return jnp.sum(holdings * jnp.diff(prices, axis=0)) - cost * jnp.sum(traded * prices[:-1])
