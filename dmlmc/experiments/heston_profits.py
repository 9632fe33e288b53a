"""What hedges in the Heston model earn on simulated paths, and the exact ones beside the learned ones."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from dmlmc.calibration.interval import Interval, mean_interval
from dmlmc.experiments.heston import TRADED, Hedge, heston_loss, start, trading_profit
from dmlmc.experiments.heston_prices import BOTH, Heston, exact_hedges, swap_slope


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


@eqx.filter_jit
def profits_by_seed(
    model: Heston, hedges: Hedge, states: Float[Array, "paths dates 3"], cost: float = 0.0
) -> Float[Array, "seeds paths"]:
    """``profits`` of hedges with a leading axis of seeds."""
    return eqx.filter_vmap(lambda hedge: profits(model, hedge, states, cost))(hedges)


def exact_holdings(
    model: Heston, states: Float[Array, "paths dates 3"]
) -> dict[str, Float[np.ndarray, "paths dates 2"]]:
    """What ``exact_hedges`` hold on paths, from time 0 to the last date but one."""
    path = _from_the_start(model, states)
    dates = np.arange(states.shape[1]) * model.maturity / states.shape[1]
    held = [exact_hedges(model, t, path[:, i, 0], np.maximum(path[:, i, 1], 0.0)) for i, t in enumerate(dates)]
    return {name: np.stack([np.stack(one[name], axis=-1) for one in held], axis=1) for name in held[0]}


def holding_profits(
    model: Heston, holdings: Float[np.ndarray, "paths dates 2"], states: Float[Array, "paths dates 3"]
) -> Float[np.ndarray, " paths"]:
    """``profits`` of given holdings, with free trades."""
    path = _from_the_start(model, states)
    earned = np.sum(holdings * np.diff(path[:, :, TRADED], axis=1), axis=(1, 2))
    return earned - np.maximum(path[:, -1, 0] - model.strike, 0.0)


def unhedgeable_risk(
    model: Heston, replicating: Float[np.ndarray, "paths dates 2"], states: Float[Array, "paths dates 3"]
) -> float:
    """The deviation that the best hedge with the stock alone leaves, however often it trades.

    Its square is the mean of the integral of ``(1 - rho^2) xi^2 v vega^2``. The vega is that of the swaps that the
    ``replicating`` hedge holds.
    """
    variance = np.maximum(_from_the_start(model, states)[:, :-1, 1], 0.0)
    dates = np.arange(states.shape[1]) * model.maturity / states.shape[1]
    vega = replicating[:, :, 1] * np.asarray(swap_slope(model, dates))
    rate = np.mean((1 - model.correlation**2) * model.noise**2 * variance * vega**2)
    return float((rate * model.maturity) ** 0.5)


def _from_the_start(model: Heston, states: Float[Array, "paths dates 3"]) -> Float[np.ndarray, "paths dates+1 3"]:
    first = np.broadcast_to(np.asarray(start(model)), (len(states), 1, 3))
    return np.concatenate([first, np.asarray(states)], axis=1).astype(np.float64)


def risk_table(results: Mapping[str, ArrayLike], tail: float) -> pd.DataFrame:
    """By hedge: the cash for which it breaks even, its deviation, and the cash that covers the mean of the worst tail.

    With an axis of seeds, those of all seeds together.

    >>> risk_table({"none": jnp.arange(-10.0, 0.0)}, 0.2).round(2).to_dict("records")
    [{'fair cash': 5.5, 'deviation': 2.87, 'expected shortfall': 9.5}]
    """
    rows = {}
    for name, result in results.items():
        losses = np.sort(-np.asarray(result, np.float64).ravel())
        worst = losses[-max(round(tail * len(losses)), 1) :]
        rows[name] = {"fair cash": losses.mean(), "deviation": losses.std(), "expected shortfall": worst.mean()}
    return pd.DataFrame(rows).T


def residual_table(
    learned: Mapping[str, ArrayLike],
    exact: Mapping[str, float],
    cash: Mapping[str, ArrayLike],
    price: float,
) -> pd.DataFrame:
    """By instruments: the deviation that learned and exact hedges leave, and the learned price beside the exact one.

    Learned numbers are means over seeds with 95% intervals.
    """
    rows = {}
    for name, risks in learned.items():
        row = {"residual risk, learned": _shown(mean_interval(risks)), "residual risk, exact": f"{exact[name]:.4f}"}
        rows[name] = row | {"price, learned": _shown(mean_interval(cash[name])), "price, exact": f"{price:.4f}"}
    return pd.DataFrame(rows).T.rename_axis("hedged with")


def _shown(interval: Interval) -> str:
    return "{:.4f} [{:.4f}, {:.4f}]".format(*interval)


def hedge_curves(model: Heston, hedge: Hedge, times: list[float]) -> pd.DataFrame:
    """Learned and replicating holdings against the price, at the long-run variance.

    ``hedge`` has a leading axis of seeds. The columns are ``t, s, instrument, source, seed, holding``.
    """
    rows, v = [], model.long_variance
    for t in times:
        deviation = max(t, 0.1 * model.maturity) ** 0.5 * v**0.5
        prices = model.spot * np.exp(np.linspace(-2 * deviation, 2 * deviation, 41))
        learned = _on_prices(hedge, t, jnp.asarray(prices), jnp.asarray(v))
        exact = np.stack(exact_hedges(model, t, prices, v)[BOTH], axis=1)[None]
        for source, by_seed in (("exact", exact), ("learned", np.asarray(learned))):
            for seed, holdings in enumerate(by_seed):
                for instrument, holding in zip(("stock", "variance swap"), holdings.T, strict=False):
                    row = {"t": t, "s": prices, "instrument": instrument, "source": source, "seed": seed}
                    rows.append(pd.DataFrame({**row, "holding": holding}))
    return pd.concat(rows, ignore_index=True)


@eqx.filter_jit
def _on_prices(hedges: Hedge, t: float, prices: Float[Array, " points"], v: Float[Array, ""]):
    return eqx.filter_vmap(lambda hedge: jax.vmap(lambda s: hedge(t, s, v.astype(s.dtype)))(prices))(hedges)
