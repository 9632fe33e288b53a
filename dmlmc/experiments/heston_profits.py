"""What hedges in the Heston model earn on simulated paths, and the exact ones beside the learned ones."""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Key

from dmlmc.experiments.heston import Hedge, gains, heston_loss, start, trading_profit
from dmlmc.experiments.heston_prices import Heston, Holdings, replicating_hedge

ExactHedge = Callable[[Heston, float, np.ndarray, np.ndarray], Holdings]


@eqx.filter_jit
def market_paths(
    model: Heston, dates: int, paths: int, key: Key[Array, ""], *, level: int = 2
) -> Float[Array, "{paths} {dates} 3"]:
    """(S, v, swap) at equidistant dates up to maturity, with ``2^level`` steps from one to the next.

    >>> market_paths(Heston(), 4, 10, jax.random.key(0)).shape
    (10, 4, 3)
    """
    world = heston_loss(model, cost=0.0, coarsest_steps=dates)
    return jax.vmap(lambda noise: world.states(None, noise))(world.batch(jax.random.split(key, paths), level))


@eqx.filter_jit
def profits(
    model: Heston, hedge: Hedge | None, states: Float[Array, "paths dates 3"], cost: float = 0.0
) -> Float[Array, " paths"]:
    """Profit of trading at the dates, less the payoff of the option sold; ``None`` is no hedge."""
    payoffs = jnp.maximum(states[:, -1, 0] - model.strike, 0.0)
    if hedge is None:
        return -payoffs
    return jax.vmap(lambda one: trading_profit(model, hedge, one, cost))(states) - payoffs


def exact_profits(model: Heston, hedge: ExactHedge, states: Float[Array, "paths dates 3"]) -> Float[Array, " paths"]:
    """``profits`` of ``replicating_hedge`` or ``stock_hedge``."""
    first = jnp.broadcast_to(start(model), (len(states), 1, 3))
    path = np.asarray(jnp.concatenate([first, states], axis=1), np.float64)
    dates = np.arange(states.shape[1]) * model.maturity / states.shape[1]
    held = [hedge(model, t, path[:, i, 0], np.maximum(path[:, i, 1], 0.0)) for i, t in enumerate(dates)]
    holdings = jnp.asarray(np.moveaxis(np.array(held), (0, 1, 2), (1, 2, 0)))
    return jax.vmap(gains)(holdings, jnp.asarray(path)) - jnp.maximum(states[:, -1, 0] - model.strike, 0.0)


def risk_table(results: Mapping[str, Float[Array, " paths"]], tail: float) -> pd.DataFrame:
    """By hedge: the cash for which it breaks even, its deviation, and the cash that covers the mean of the worst tail.

    >>> risk_table({"none": jnp.arange(-10.0, 0.0)}, 0.2).round(2).to_dict("records")
    [{'fair cash': 5.5, 'deviation': 2.87, 'expected shortfall': 9.5}]
    """
    rows = {}
    for name, result in results.items():
        losses = np.sort(-np.asarray(result, np.float64))
        worst = losses[-max(round(tail * len(losses)), 1) :]
        rows[name] = {"fair cash": losses.mean(), "deviation": losses.std(), "expected shortfall": worst.mean()}
    return pd.DataFrame(rows).T


def hedge_curves(model: Heston, hedge: Hedge, times: list[float]) -> pd.DataFrame:
    """Learned and replicating holdings against the price, at the long-run variance.

    ``hedge`` has a leading axis of seeds. The columns are ``t, s, instrument, source, seed, holding``.
    """
    rows, v = [], model.long_variance
    for t in times:
        deviation = max(t, 0.1 * model.maturity) ** 0.5 * v**0.5
        prices = model.spot * np.exp(np.linspace(-2 * deviation, 2 * deviation, 41))
        learned = _on_prices(hedge, t, jnp.asarray(prices), jnp.asarray(v))
        exact = np.stack(replicating_hedge(model, t, prices, v), axis=1)[None]
        for source, by_seed in (("exact", exact), ("learned", np.asarray(learned))):
            for seed, holdings in enumerate(by_seed):
                for instrument, holding in zip(("stock", "variance swap"), holdings.T, strict=False):
                    row = {"t": t, "s": prices, "instrument": instrument, "source": source, "seed": seed}
                    rows.append(pd.DataFrame({**row, "holding": holding}))
    return pd.concat(rows, ignore_index=True)


@eqx.filter_jit
def _on_prices(hedges: Hedge, t: float, prices: Float[Array, " points"], v: Float[Array, ""]):
    return eqx.filter_vmap(lambda hedge: jax.vmap(lambda s: hedge(t, s, v.astype(s.dtype)))(prices))(hedges)
