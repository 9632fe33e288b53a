"""The paper's experiment: hedging a call option on geometric Brownian motion with a neural network.

The price follows ``dS = mu S dt + sigma S dW``. The trader holds ``H(t, S)`` shares, so that the profit and loss is
``dV = H(t, S) dS``, and sells the option for ``p0``. The loss ``(max(S_T - K, 0) - V_T - p0)^2`` is minimised over the
network H and the price p0. Interest rates are zero, so the least loss is that of the Black-Scholes hedge.
"""

from collections.abc import Callable, Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from dmlmc import brownian
from dmlmc._internal.checks import integer
from dmlmc.experiments.black_scholes import Market, black_scholes_delta, black_scholes_price, expected_payoff
from dmlmc.losses import MultilevelLoss, mean_loss
from dmlmc.sde import SDELoss


class BlackScholesHedge(eqx.Module):
    """The Black-Scholes delta in the place of the network."""

    market: Market = eqx.field(static=True)

    def __call__(self, inputs: Array) -> Array:
        return black_scholes_delta(self.market, inputs[0], inputs[1])


class HedgingParams(eqx.Module):
    """What is trained: the hedge ratio as a function of the vector (t, s), and the price p0 of the option."""

    network: Callable[[Array], Array]
    price: Array


def black_scholes_params(market: Market | None = None) -> HedgingParams:
    """Perfect replication: its loss on a grid is a floor that no network can be expected to beat by much.

    >>> import dmlmc
    >>> floor, loss = black_scholes_params(), FastHedgingLoss()
    >>> [f"{dmlmc.mean_loss(loss, floor, level, 4096, jax.random.key(0)):.0e}" for level in (0, 3)]
    ['2e-02', '5e-04']
    """
    market = market or Market()
    return HedgingParams(BlackScholesHedge(market), jnp.array(black_scholes_price(market), float))


def initial_params(key: Array, market: Market | None = None) -> HedgingParams:
    """A fresh network with two SiLU layers of 32 and a sigmoid at its end, and p0 at the expected payoff.

    >>> params = initial_params(jax.random.key(0))
    >>> params.network(jnp.array([0.0, 1.0])).shape, round(float(params.price), 4)
    ((), 0.9589)
    """
    network = eqx.nn.MLP(2, "scalar", 32, 2, jax.nn.silu, jax.nn.sigmoid, key=key)
    return HedgingParams(network, jnp.array(expected_payoff(market or Market()), float))


def hedging_loss(market: Market | None = None, coarsest_steps: int = 10, *, printed_drift: bool = False) -> SDELoss:
    """The loss as any other SDE's: Milstein for the state (S, V), step by step.

    ``printed_drift=True`` takes the SDE as the paper prints it, ``dS = mu dt + sigma S dW``; its experiment, like the
    default, has the drift of geometric Brownian motion.

    >>> loss = hedging_loss()
    >>> noise = loss.sample(jax.random.key(0), level=1)
    >>> loss.loss(initial_params(jax.random.key(1)), noise).shape
    ()
    """
    market = market or Market()

    def holdings(t, y, params):
        ratio = params.network(jnp.stack([jnp.asarray(t, y.dtype), y[0]]))
        return jnp.stack([jnp.ones_like(ratio), ratio])

    def drift(t, y, params):
        return market.drift * (1.0 if printed_drift else y[0]) * holdings(t, y, params)

    def diffusion(t, y, params):
        return market.volatility * y[0] * holdings(t, y, params)[:, None]

    def terminal(y, params):
        return _shortfall(market, y[0], y[1], params)

    start = jnp.array([market.spot, 0.0], float)
    return SDELoss(drift, diffusion, terminal, start, market.maturity, coarsest_steps, noise_dim=1)


class FastHedgingLoss(MultilevelLoss):
    """``hedging_loss(market)``, the same to rounding, in a fraction of the time.

    The price does not depend on the network, so it is simulated first, and Milstein's profit and loss is a sum over
    the steps, ``H(t, S) dS + (sigma S)^2 (dW^2 - dt) / 2 * dH/ds(t, S)``, without a chain from one to the next. The
    network sees all of them together, those of a coupled pair as well, and about ``rows`` at a time. ``euler=True``
    leaves out the terms that Milstein's scheme adds to Euler's.

    >>> loss, params = FastHedgingLoss(), initial_params(jax.random.key(0))
    >>> noise = loss.sample(jax.random.key(1), level=2)
    >>> bool(jnp.allclose(loss.loss(params, noise), hedging_loss().loss(params, noise), rtol=1e-3))
    True
    """

    market: Market
    coarsest_steps: int
    rows: int
    correction: Array

    def __init__(
        self, market: Market | None = None, coarsest_steps: int = 10, *, euler: bool = False, rows: int = 4096
    ):
        self.market = market or Market()
        self.coarsest_steps = integer("FastHedgingLoss: coarsest_steps", coarsest_steps, minimum=1)
        self.rows = integer("FastHedgingLoss: rows", rows, minimum=1)
        self.correction = jnp.array(not euler, float)  # an array, so that both schemes share a compiled program

    def sample(self, key: Array, level: int) -> Array:
        return brownian.increments(key, self.coarsest_steps * 2**level, self.market.maturity, 1, self.correction.dtype)

    def coarsen(self, noise: Array) -> Array:
        return brownian.coarsen(noise)

    def samples_at_once(self, level: int) -> int:
        return max(1, self.rows // (self.coarsest_steps * 2**level))

    def loss(self, params: HedgingParams, noise: Array) -> Array:
        return self.losses(params, noise[None])[0]

    def pair(self, params: HedgingParams, noise: Array) -> tuple[Array, Array]:
        fine, coarse = self.pairs(params, noise[None])
        return fine[0], coarse[0]

    def losses(self, params: HedgingParams, noises: Array) -> Array:
        return self._losses_on_grids(params, noises)[0]

    def pairs(self, params: HedgingParams, noises: Array) -> tuple[Array, Array]:
        fine, coarse = self._losses_on_grids(params, noises, jax.vmap(self.coarsen)(noises))
        return fine, coarse

    def _losses_on_grids(self, params: HedgingParams, *noises: Array) -> list[Array]:
        """The losses of a batch on each of several grids, with one pass of the network over the steps of all."""
        grids = [self._price_steps(noise[:, :, 0]) for noise in noises]
        # One flat axis of rows: a network batched over paths and steps is compiled to much slower matrix products.
        rows = [jnp.concatenate([column.ravel() for column in columns]) for columns in zip(*grids, strict=True)]
        gains = jax.vmap(partial(_gain, params.network))(*rows)
        ends = np.cumsum([noise.size for noise in noises])
        losses = []
        for (_, prices, changes, _), end in zip(grids, ends, strict=True):
            profit = jnp.sum(gains[end - prices.size : end].reshape(prices.shape), axis=1)
            losses.append(_shortfall(self.market, prices[:, -1] + changes[:, -1], profit, params))
        return losses

    def _price_steps(self, increments: Array) -> tuple[Array, Array, Array, Array]:
        """Time, price, change of price and the factor of dH/ds, for each path and step."""
        steps, market = increments.shape[1], self.market
        dt = market.maturity / steps
        iterated = self.correction * (increments**2 - dt) / 2
        growth = market.drift * dt + market.volatility * increments + market.volatility**2 * iterated
        start = jnp.ones_like(growth[:, :1])
        prices = market.spot * jnp.concatenate([start, jnp.cumprod(1 + growth[:, :-1], axis=1)], axis=1)
        grid = jnp.asarray(np.linspace(0.0, market.maturity, steps, endpoint=False), increments.dtype)
        times = jnp.broadcast_to(grid, increments.shape)
        return times, prices, prices * growth, (market.volatility * prices) ** 2 * iterated


def _gain(network: Callable[[Array], Array], t: Array, s: Array, change: Array, factor: Array) -> Array:
    """The profit of one step, from the network and its derivative in s."""
    ratio, slope = jax.jvp(lambda s: network(jnp.stack([t, s])), (s,), (jnp.ones_like(s),))
    return ratio * change + slope * factor


def _shortfall(market: Market, price: Array, profit: Array, params: HedgingParams) -> Array:
    return (jnp.maximum(price - market.strike, 0.0) - profit - params.price) ** 2


def hedge_curves(market: Market, trained: dict[str, HedgingParams], times: Sequence[float]) -> pd.DataFrame:
    """Hedge ratios on a grid of prices: those of every method and seed (a leading axis of its arrays), and the delta.

    The columns are ``t, s, source, seed, ratio``.
    """
    prices = np.linspace(0.05, 2.5 * market.strike, 120)
    rows = []
    for t in times:
        inputs = jnp.stack([jnp.full(prices.shape, t), jnp.asarray(prices)], axis=1)
        ratios = {"Black-Scholes delta": jax.vmap(BlackScholesHedge(market))(inputs)[None]}
        for method, params in trained.items():
            ratios[method] = _on_every_input(params.network, inputs)
        for source, by_seed in ratios.items():
            for seed, ratio in enumerate(np.asarray(by_seed)):
                rows.append(pd.DataFrame({"t": t, "s": prices, "source": source, "seed": seed, "ratio": ratio}))
    return pd.concat(rows, ignore_index=True)


@eqx.filter_jit
def _on_every_input(networks: Callable[[Array], Array], inputs: Array) -> Array:
    return eqx.filter_vmap(lambda network: jax.vmap(network)(inputs))(networks)


def final_losses(
    loss: MultilevelLoss, trained: dict[str, HedgingParams], level: int, samples: int, key: Array
) -> pd.DataFrame:
    """For each method: mean loss and its deviation over seeds, and the Monte Carlo standard error from batch means.

    Losses of single paths are so heavy-tailed here that a standard error from their own variance misleads; the
    means of sixteen batches are closer to normal.
    """
    keys = jax.random.split(key, 16)

    def batch_means(params):
        return jax.lax.map(lambda key: mean_loss(loss, params, level, samples // 16, key), keys)

    rows = {}
    for method, params in trained.items():
        means = np.asarray(eqx.filter_jit(eqx.filter_vmap(batch_means))(params))  # (seeds, batches)
        deviation = np.std(means.mean(axis=1), ddof=1) if len(means) > 1 else np.nan
        error = np.std(means.mean(axis=0), ddof=1) / 4
        rows[method] = {"loss": means.mean(), "deviation over seeds": deviation, "standard error": error}
    return pd.DataFrame(rows).T
