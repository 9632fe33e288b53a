"""Profit and loss of hedges in the Heston model: exact hedges as truth."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmlmc.experiments import heston_profits
from dmlmc.experiments.black_scholes import Market
from dmlmc.experiments.heston import BlackScholesHedge, initial_trader
from dmlmc.experiments.heston_prices import BOTH, STOCK, Heston, call_price, exact_hedges

MODEL = Heston()
DELTA = BlackScholesHedge(Market(0.0, 0.2, 1.0, 1.0, 1.0))


@pytest.fixture(scope="module")
def states():
    return heston_profits.market_paths(MODEL, 16, 600, jax.random.key(0))


def exact_profits(states):
    holdings = heston_profits.exact_holdings(MODEL, states)
    return {name: heston_profits.holding_profits(MODEL, one, states) for name, one in holdings.items()}


def test_every_hedge_breaks_even_at_the_price_and_better_hedges_deviate_less(states):
    results = {
        "none": heston_profits.profits(MODEL, None, states),
        "delta": heston_profits.profits(MODEL, DELTA, states),
    } | exact_profits(states)
    table = heston_profits.risk_table(results, 0.1)
    errors = np.abs(table["fair cash"] - call_price(MODEL).price) / (table.deviation / 600**0.5)
    assert np.all(errors < 4)
    assert table.deviation.is_monotonic_decreasing and table.deviation[BOTH] < 0.8 * table.deviation[STOCK]
    assert table["expected shortfall"].is_monotonic_decreasing


def test_the_replicating_hedge_is_better_with_more_dates(states):
    rare, often = exact_profits(states[:, 3::4])[BOTH], exact_profits(states)[BOTH]
    assert np.std(often) < 0.7 * np.std(rare)


def test_the_unhedgeable_risk_is_what_the_swaps_remove(states):
    replicating, found = heston_profits.exact_holdings(MODEL, states)[BOTH], exact_profits(states)
    risk = heston_profits.unhedgeable_risk(MODEL, replicating, states)
    assert risk == pytest.approx(np.std(found[STOCK] - found[BOTH]), rel=0.1)
    assert 0.5 * np.std(found[STOCK]) < risk < np.std(found[STOCK])


def test_given_holdings_earn_what_the_hedge_that_holds_them_earns(states):
    trader = initial_trader(jax.random.key(2), swap=True)
    path = np.concatenate([np.broadcast_to([1.0, 0.04, 0.04], (600, 1, 3)), states], axis=1)[:, :-1]
    held = jax.vmap(jax.vmap(trader.hedge))(
        jnp.broadcast_to(jnp.arange(16) / 16, (600, 16)), path[..., 0], path[..., 1]
    )
    earned = heston_profits.profits(MODEL, trader.hedge, states)
    np.testing.assert_allclose(heston_profits.holding_profits(MODEL, np.asarray(held), states), earned, atol=1e-5)


def test_profits_by_seed_are_those_of_each_seed_and_their_risks_have_intervals(states):
    traders = eqx.filter_vmap(initial_trader)(jax.random.split(jax.random.key(0), 2))
    found = heston_profits.profits_by_seed(MODEL, traders.hedge, states, 0.01)
    last = jax.tree.map(lambda leaf: leaf[1] if eqx.is_array(leaf) else leaf, traders.hedge)
    np.testing.assert_allclose(found[1], heston_profits.profits(MODEL, last, states, 0.01), atol=1e-6)
    pooled = heston_profits.risk_table({"both seeds": found}, 0.1).loc["both seeds"]
    assert pooled["deviation"] == pytest.approx(np.std(np.asarray(found, np.float64)))
    table = heston_profits.residual_table({STOCK: np.array([0.1, 0.3])}, {STOCK: 0.05}, {STOCK: jnp.ones(2)}, 0.07)
    assert table.loc[STOCK].tolist() == ["0.2000 [-1.0706, 1.4706]", "0.0500", "1.0000 [1.0000, 1.0000]", "0.0700"]


def test_costs_are_paid(states):
    free, costly = (np.asarray(heston_profits.profits(MODEL, DELTA, states, cost)) for cost in (0.0, 0.01))
    assert np.all(free - costly > 0.004)  # half a share is bought at the start


def test_the_curves_have_every_seed_and_the_exact_hedge():
    hedges = eqx.filter_vmap(lambda key: initial_trader(key, swap=True))(jax.random.split(jax.random.key(0), 2)).hedge
    curves = heston_profits.hedge_curves(MODEL, hedges, [0.5])
    assert set(curves.source) == {"exact", "learned"} and curves[curves.source == "learned"].seed.nunique() == 2
    row = curves[(curves.source == "exact") & (curves.instrument == "variance swap")].iloc[20]
    assert row.holding == pytest.approx(float(exact_hedges(MODEL, 0.5, row.s, 0.04)[BOTH].swap))
    learned = curves[(curves.source == "learned") & (curves.instrument == "stock") & (curves.seed == 1)].iloc[20]
    one = jax.tree.map(lambda leaf: leaf[1] if eqx.is_array(leaf) else leaf, hedges)
    expected = one(0.5, jnp.array(learned.s), jnp.array(0.04))[0]
    assert learned.holding == pytest.approx(float(expected), rel=1e-4)
