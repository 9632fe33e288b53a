"""The paper's experiment: hedging a call option on geometric Brownian motion with a neural network.

The price follows ``dS = mu S dt + sigma S dW``. The trader sells the option for ``p0`` and holds ``H(t, S)`` shares,
with profit and loss ``dV = H(t, S) dS``. The loss ``(max(S_T - K, 0) - V_T - p0)^2`` is minimised over the network H
and the price p0. Interest rates are zero, so the Black-Scholes hedge has the smallest loss.
"""

from collections.abc import Callable, Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Key

from dmlmc import brownian
from dmlmc._internal.checks import integer
from dmlmc._internal.jaxpr_rewriting import economical
from dmlmc.experiments.black_scholes import Market, black_scholes_delta, black_scholes_price, expected_payoff
from dmlmc.losses import MultilevelLoss, mean_loss
from dmlmc.sde import SDELoss

DELTA = "Black-Scholes delta"
Hedge = Callable[[Float[Array, "2"]], Float[Array, ""]]  # (t, s) to the hedge ratio


class BlackScholesHedge(eqx.Module):
    """The Black-Scholes delta, in place of the network."""

    market: Market = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, "2"]) -> Float[Array, ""]:
        return black_scholes_delta(self.market, inputs[0], inputs[1])


class HedgingParams(eqx.Module):
    """The trained parameters: the hedge ratio as a function of (t, s), and the price p0 of the option."""

    network: Hedge
    price: Float[Array, ""]


def black_scholes_params(market: Market | None = None) -> HedgingParams:
    """Perfect replication. No network can be expected to get far below its loss on the same grid.

    >>> import dmlmc
    >>> floor, loss = black_scholes_params(), FastHedgingLoss()
    >>> [f"{dmlmc.mean_loss(loss, floor, level, 4096, jax.random.key(0)):.0e}" for level in (0, 3)]
    ['2e-02', '5e-04']
    """
    market = market or Market()
    return HedgingParams(BlackScholesHedge(market), jnp.array(black_scholes_price(market), float))


def initial_params(key: Key[Array, ""], market: Market | None = None) -> HedgingParams:
    """A random network with two SiLU layers of width 32 and a sigmoid output, and p0 at the expected payoff.

    >>> params = initial_params(jax.random.key(0))
    >>> params.network(jnp.array([0.0, 1.0])).shape, round(float(params.price), 4)
    ((), 0.9589)
    """
    network = eqx.nn.MLP(2, "scalar", 32, 2, jax.nn.silu, jax.nn.sigmoid, key=key)
    return HedgingParams(network, jnp.array(expected_payoff(market or Market()), float))


def hedging_loss(
    market: Market | None = None,
    coarsest_steps: int = 10,
    *,
    printed_drift: bool = False,
    samples_at_once: int | None = None,
) -> SDELoss:
    """The loss as a general ``SDELoss``: Milstein steps for the state (S, V).

    The ten coarsest steps are those of the code of the paper's author; the paper does not say. ``printed_drift=True``
    uses the SDE as printed in the paper, ``dS = mu dt + sigma S dW``. The paper's experiment, like the default, has the
    drift of geometric Brownian motion. ``samples_at_once`` is that of ``dmlmc.SDELoss``.

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
    return SDELoss(
        drift, diffusion, terminal, start, market.maturity, coarsest_steps, 1, samples_at_once=samples_at_once
    )


class FastHedgingLoss(MultilevelLoss):
    """``hedging_loss(market)`` up to rounding, in a fraction of the time.

    The price does not depend on the network, so it is simulated first. Milstein's profit and loss is then a sum over
    steps, ``H(t, S) dS + (sigma S)^2 (dW^2 - dt) / 2 * dH/ds(t, S)``, whose terms do not depend on each other. The
    network evaluates all of them in one batch, both paths of a coupled pair included, about ``rows`` at a time: by
    default enough for XLA to use several cores. Where every core has seeds of its own, fewer are faster, because they
    fit its cache. ``euler=True`` omits the terms that Milstein's scheme adds to Euler's: the profit is then that of
    trading at the grid points only.

    >>> loss, params = FastHedgingLoss(), initial_params(jax.random.key(0))
    >>> noise = loss.sample(jax.random.key(1), level=2)
    >>> bool(jnp.allclose(loss.loss(params, noise), hedging_loss().loss(params, noise), rtol=1e-3))
    True
    """

    market: Market
    coarsest_steps: int
    rows: int
    correction: Float[Array, ""]

    def __init__(
        self, market: Market | None = None, coarsest_steps: int = 10, *, euler: bool = False, rows: int = 4096
    ):
        self.market = market or Market()
        self.coarsest_steps = integer("FastHedgingLoss: coarsest_steps", coarsest_steps, minimum=1)
        self.rows = integer("FastHedgingLoss: rows", rows, minimum=1)
        self.correction = jnp.array(not euler, float)  # an array, so both schemes share a compiled program

    def sample(self, key: Key[Array, ""], level: int) -> Float[Array, "steps 1"]:
        return brownian.increments(key, self.coarsest_steps * 2**level, self.market.maturity, 1, self.correction.dtype)

    def coarsen(self, noise: Float[Array, "steps 1"]) -> Float[Array, "steps//2 1"]:
        return brownian.coarsen(noise)

    def samples_at_once(self, level: int) -> int:
        return max(1, self.rows // (self.coarsest_steps * 2**level))

    def loss(self, params: HedgingParams, noise: Float[Array, "steps 1"]) -> Float[Array, ""]:
        return self.losses(params, noise[None])[0]

    def pair(self, params: HedgingParams, noise: Float[Array, "steps 1"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        fine, coarse = self.pairs(params, noise[None])
        return fine[0], coarse[0]

    def losses(self, params: HedgingParams, noises: Float[Array, "samples steps 1"]) -> Float[Array, " samples"]:
        return self._losses_on_grids(params, noises)[0]

    def pairs(
        self, params: HedgingParams, noises: Float[Array, "samples steps 1"]
    ) -> tuple[Float[Array, " samples"], Float[Array, " samples"]]:
        fine, coarse = self._losses_on_grids(params, noises, jax.vmap(self.coarsen)(noises))
        return fine, coarse

    def _losses_on_grids(
        self, params: HedgingParams, *noises: Float[Array, "samples _ 1"]
    ) -> list[Float[Array, " samples"]]:
        """The losses of a batch on each of several grids, with one pass of the network over all their steps."""
        grids = [self._price_steps(noise[:, :, 0]) for noise in noises]
        # One flat axis of rows: batched over paths and steps, XLA compiles the network to much slower matrix products.
        rows = [jnp.concatenate([column.ravel() for column in columns]) for columns in zip(*grids, strict=True)]
        gains = jax.vmap(partial(_gain, params.network))(*rows)
        ends = np.cumsum([noise.size for noise in noises])
        losses = []
        for (_, prices, changes, _), end in zip(grids, ends, strict=True):
            profit = jnp.sum(gains[end - prices.size : end].reshape(prices.shape), axis=1)
            losses.append(_shortfall(self.market, prices[:, -1] + changes[:, -1], profit, params))
        return losses

    def _price_steps(self, increments: Float[Array, "samples steps"]) -> tuple[Float[Array, "samples steps"], ...]:
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


def _gain(
    network: Hedge, t: Float[Array, ""], s: Float[Array, ""], change: Float[Array, ""], factor: Float[Array, ""]
) -> Float[Array, ""]:
    """The profit of one step, from the network and its derivative in s along the factor."""
    ratio, correction = jax.jvp(economical(lambda s: network(jnp.stack([t, s])), s), (s,), (factor,))
    return ratio * change + correction


def _shortfall(
    market: Market, price: Float[Array, "*samples"], profit: Float[Array, "*samples"], params: HedgingParams
) -> Float[Array, "*samples"]:
    return (jnp.maximum(price - market.strike, 0.0) - profit - params.price) ** 2


def hedge_curves(market: Market, trained: dict[str, HedgingParams], times: Sequence[float]) -> pd.DataFrame:
    """Hedge ratios on a grid of prices, for every method and seed, and the Black-Scholes delta.

    Every array of ``trained`` has a leading seed axis. The columns are ``t, s, source, seed, ratio``.
    """
    prices = np.linspace(0.05, 2.5 * market.strike, 120)
    rows = []
    for t in times:
        inputs = jnp.stack([jnp.full(prices.shape, t), jnp.asarray(prices)], axis=1)
        ratios = {DELTA: jax.vmap(BlackScholesHedge(market))(inputs)[None]}
        for method, params in trained.items():
            ratios[method] = _on_every_input(params.network, inputs)
        for source, by_seed in ratios.items():
            for seed, ratio in enumerate(np.asarray(by_seed)):
                rows.append(pd.DataFrame({"t": t, "s": prices, "source": source, "seed": seed, "ratio": ratio}))
    return pd.concat(rows, ignore_index=True)


@eqx.filter_jit
def _on_every_input(networks: Hedge, inputs: Float[Array, "points 2"]) -> Float[Array, "seeds points"]:
    return eqx.filter_vmap(lambda network: jax.vmap(network)(inputs))(networks)


def final_losses(
    loss: MultilevelLoss, trained: dict[str, HedgingParams], level: int, samples: int, key: Key[Array, ""]
) -> pd.DataFrame:
    """For each method: mean loss, its deviation over seeds, and the Monte Carlo standard error from batch means.

    The losses of single paths are too heavy-tailed for a standard error from their variance. The means of sixteen
    batches are closer to normal.
    """
    keys = jax.random.split(key, 16)

    def batch_means(params):
        return jax.lax.map(lambda key: mean_loss(loss, params, level, samples // 16, key), keys)

    compiled, rows = eqx.filter_jit(eqx.filter_vmap(batch_means)), {}
    for method, params in trained.items():
        means = np.asarray(compiled(params))  # (seeds, batches)
        deviation = np.std(means.mean(axis=1), ddof=1) if len(means) > 1 else np.nan
        error = np.std(means.mean(axis=0), ddof=1) / 4
        rows[method] = {"loss": means.mean(), "deviation over seeds": deviation, "standard error": error}
    return pd.DataFrame(rows).T
