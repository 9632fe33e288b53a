"""Profit and loss of hedges in the Heston model: exact hedges as truth."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmlmc.experiments import heston_profits
from dmlmc.experiments.black_scholes import Market
from dmlmc.experiments.heston import BlackScholesHedge, initial_trader
from dmlmc.experiments.heston_prices import Heston, call_price, replicating_hedge, stock_hedge

MODEL = Heston()
DELTA = BlackScholesHedge(Market(0.0, 0.2, 1.0, 1.0, 1.0))


@pytest.fixture(scope="module")
def states():
    return heston_profits.market_paths(MODEL, 16, 600, jax.random.key(0))


def test_every_hedge_breaks_even_at_the_price_and_better_hedges_deviate_less(states):
    results = {
        "none": heston_profits.profits(MODEL, None, states),
        "delta": heston_profits.profits(MODEL, DELTA, states),
        "stock": heston_profits.exact_profits(MODEL, stock_hedge, states),
        "both": heston_profits.exact_profits(MODEL, replicating_hedge, states),
    }
    table = heston_profits.risk_table(results, 0.1)
    errors = np.abs(table["fair cash"] - call_price(MODEL).price) / (table.deviation / 600**0.5)
    assert np.all(errors < 4)
    assert table.deviation.is_monotonic_decreasing and table.deviation["both"] < 0.8 * table.deviation["stock"]
    assert table["expected shortfall"].is_monotonic_decreasing


def test_the_replicating_hedge_is_better_with_more_dates(states):
    rare = heston_profits.exact_profits(MODEL, replicating_hedge, states[:, 3::4])
    often = heston_profits.exact_profits(MODEL, replicating_hedge, states)
    assert np.std(often) < 0.7 * np.std(rare)


def test_costs_are_paid(states):
    free, costly = (np.asarray(heston_profits.profits(MODEL, DELTA, states, cost)) for cost in (0.0, 0.01))
    assert np.all(free - costly > 0.004)  # half a share is bought at the start


def test_the_curves_have_every_seed_and_the_exact_hedge():
    hedges = eqx.filter_vmap(lambda key: initial_trader(key, swap=True))(jax.random.split(jax.random.key(0), 2)).hedge
    curves = heston_profits.hedge_curves(MODEL, hedges, [0.5])
    assert set(curves.source) == {"exact", "learned"} and curves[curves.source == "learned"].seed.nunique() == 2
    row = curves[(curves.source == "exact") & (curves.instrument == "variance swap")].iloc[20]
    assert row.holding == pytest.approx(float(replicating_hedge(MODEL, 0.5, row.s, 0.04).swap))
    learned = curves[(curves.source == "learned") & (curves.instrument == "stock") & (curves.seed == 1)].iloc[20]
    one = jax.tree.map(lambda leaf: leaf[1] if eqx.is_array(leaf) else leaf, hedges)
    expected = one(0.5, jnp.array(learned.s), jnp.array(0.04))[0]
    assert learned.holding == pytest.approx(float(expected), rel=1e-4)
