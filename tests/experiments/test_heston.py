"""Deep hedging in the Heston model: the simulated market, the orders of its coupled pairs, the losses."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmlmc
from dmlmc.experiments.black_scholes import Market
from dmlmc.experiments.heston import (
    LEAST,
    BlackScholesHedge,
    HedgeNetwork,
    Trader,
    gains,
    heston_loss,
    initial_trader,
    market_diffusion,
    smoothed,
    start,
    trading_profit,
)
from dmlmc.experiments.heston_prices import Heston, call_price, mean_variance, swap_value
from dmlmc.paths import coupled_paths

MODEL = Heston(variance=0.09)  # away from its long-run mean, so that the mean moves


initial = eqx.filter_jit(initial_trader)


@eqx.filter_jit
def simulated(loss, level, paths, seed=0, trader=None):
    noises = loss.batch(jax.random.split(jax.random.key(seed), paths), level)
    return jax.vmap(lambda noise: loss.states(trader, noise))(noises)


@pytest.fixture(scope="module")
def market():
    """States at eight dates, for two grids."""
    world = heston_loss(MODEL, cost=0.0)
    return {level: np.asarray(simulated(world, level, 20_000)) for level in (0, 3)}


def within(values, mean, errors=4.0):
    """Is the mean of samples within some standard errors of what it should be?"""
    return abs(np.mean(values) - mean) < errors * np.std(values) / len(values) ** 0.5


@pytest.mark.parametrize("level", [0, 3])
def test_stock_and_swap_are_martingales_on_every_grid(market, level):
    for date in (0, 3, 7):
        assert within(market[level][:, date, 0], MODEL.spot)
        assert within(market[level][:, date, 2], float(swap_value(MODEL, 0.0, MODEL.variance)))


@pytest.mark.parametrize("level", [0, 3])
def test_the_variance_has_the_mean_of_its_linear_recursion_on_every_grid(market, level):
    steps = 8 * 2**level
    for date in (0, 3, 7):
        left = (1 - MODEL.reversion * MODEL.maturity / steps) ** ((date + 1) * 2**level)
        mean = MODEL.long_variance + (MODEL.variance - MODEL.long_variance) * left
        assert within(market[level][:, date, 1], mean)
        if level == 3:
            assert mean == pytest.approx(float(mean_variance(MODEL, (date + 1) / 8)), rel=0.01)


def test_the_variance_stays_valid_and_is_rarely_truncated(market):
    coarse, fine = (np.mean(market[level][:, :, 1] < LEAST) for level in (0, 3))
    assert coarse < 0.01 and fine < 1e-4
    below = jnp.array([1.0, -0.01, 0.04])
    matrix, slope = jax.jvp(lambda y: market_diffusion(MODEL, 0.5, y), (below,), (jnp.ones(3),))
    assert np.all(np.isfinite(matrix)) and np.all(np.isfinite(slope)) and matrix[0, 0] == pytest.approx(LEAST**0.5)
    assert np.all(np.isfinite(market[0])) and np.all(market[3][:, :, 0] > 0)


def test_the_simulated_swap_is_the_closed_form_of_its_value():
    """What it is worth at maturity is the integral of v: the gap halves with the step, and more."""
    gaps = []
    for steps in (16, 64):
        states = np.asarray(simulated(heston_loss(MODEL, cost=0.0, coarsest_steps=steps), 0, 1000))
        variances = np.concatenate([np.full((1000, 1), MODEL.variance), states[:, :, 1]], axis=1)
        accrued = np.mean(variances[:, :-1] + variances[:, 1:], axis=1) / 2 * MODEL.maturity
        gaps.append(np.std(states[:, -1, 2] - accrued) / np.std(accrued))
    assert gaps[0] < 0.1 and gaps[1] < gaps[0] / 2.5


def test_the_monte_carlo_price_is_that_of_the_characteristic_function(market):
    payoffs = np.maximum(market[3][:, -1, 0] - MODEL.strike, 0.0)
    assert within(payoffs, call_price(MODEL).price, errors=3.0)
    assert not within(payoffs, 1.03 * call_price(MODEL).price, errors=3.0)


def test_v_alone_has_strong_order_one_and_the_stock_only_in_antithetic_pairs():
    world = heston_loss(MODEL, cost=0.0)

    @eqx.filter_jit
    def pairs(level):
        def of_one(noise):
            simulator = world.simulator(None, None, noise.dtype)
            return [last for last, _ in coupled_paths(simulator, world._grid(noise), noise, antithetic=True)]

        return jax.vmap(of_one)(world.batch(jax.random.split(jax.random.key(0), 4000), level))

    variances = {"v": [], "stock": [], "antithetic stock": []}
    for level in (2, 3, 4):
        coarse, fine, swapped = (np.asarray(path, np.float64) for path in pairs(level))
        variances["v"].append(np.var(fine[:, 1] - coarse[:, 1]))
        variances["stock"].append(np.var(fine[:, 0] - coarse[:, 0]))
        variances["antithetic stock"].append(np.var((fine[:, 0] + swapped[:, 0]) / 2 - coarse[:, 0]))
    order = {name: np.log2(values[0] / values[-1]) / 2 for name, values in variances.items()}
    assert order["v"] > 1.6 and 0.7 < order["stock"] < 1.3 and order["antithetic stock"] > 1.6, order


def test_the_objectives_are_what_they_say():
    price, flat = 1.3, Trader(eqx.filter_jit(HedgeNetwork)(MODEL, 1, jax.random.key(0)), jnp.array(0.1))
    quadratic, tail = (eqx.filter_jit(heston_loss(MODEL, tail=tail).terminal) for tail in (None, 0.1))
    y = jnp.array([price, 0.04, 0.05])  # payoff 0.3, profit 0.05, cash 0.1
    assert float(quadratic(y, flat)) == pytest.approx(0.15**2, rel=1e-4)
    assert float(tail(y, flat)) == pytest.approx(0.1 + 0.15 / 0.1, rel=1e-4)
    assert float(tail(y.at[2].set(0.3), flat)) == pytest.approx(0.1, rel=1e-4)
    rounded = eqx.filter_jit(smoothed(heston_loss(MODEL), 0.05).terminal.objective)
    assert float(rounded(jnp.array(1.0), jnp.array(0.0), flat)) == pytest.approx(
        (0.05 * np.log(2) - 0.1) ** 2, rel=1e-3
    )


def test_the_least_expected_shortfall_over_the_cash_is_the_mean_of_the_tail():
    loss, paths = heston_loss(MODEL, tail=0.1, cost=0.0), 4000
    trader = Trader(BlackScholesHedge(Market(0.0, 0.2, 1.0, 1.0, 1.0)), jnp.array(0.0))
    states = simulated(loss, 0, paths)
    profits = jax.jit(jax.vmap(lambda one: trading_profit(MODEL, trader.hedge, one)))(states)
    needed = np.sort(np.maximum(np.asarray(states)[:, -1, 0] - 1, 0) - np.asarray(profits))

    @jax.jit
    def mean_loss(cash):
        with_cash = eqx.tree_at(lambda one: one.cash, trader, cash)
        return jnp.mean(jax.vmap(lambda one: loss.terminal(one, with_cash))(states))

    losses = [float(mean_loss(jnp.array(cash))) for cash in needed[[-500, -401, -300]]]
    assert losses[1] == pytest.approx(needed[-400:].mean(), rel=1e-4) and losses[1] == min(losses)


def test_trades_cost_a_share_of_their_value():
    states = jnp.array([[1.0, 0.04, 0.5], [1.2, 0.04, 0.6], [1.1, 0.04, 0.4]])
    holdings = jnp.array([[0.5, 1.0], [0.2, 3.0]])
    free = 0.5 * 0.2 + 1.0 * 0.1 - 0.2 * 0.1 - 3.0 * 0.2
    trades = 0.5 * 1.0 + 1.0 * 0.5 + 0.3 * 1.2 + 2.0 * 0.6

    @jax.jit
    def found():
        return gains(holdings, states), gains(holdings, states, cost=0.01), gains(holdings[:, :1], states)

    np.testing.assert_allclose(found(), [free, free - 0.01 * trades, 0.5 * 0.2 - 0.2 * 0.1], rtol=1e-5)


def test_continuous_trading_by_euler_is_trading_at_every_step():
    trader = initial(jax.random.key(3), MODEL, swap=True)
    euler = {"solver": diffrax.Euler(), "antithetic": False, "coarsest_steps": 4}
    continuous, dates = heston_loss(MODEL, **euler), heston_loss(MODEL, cost=0.0, **euler)
    noise = continuous.sample(jax.random.key(1), 0)
    one, other = eqx.filter_jit(lambda trader: (continuous.loss(trader, noise), dates.loss(trader, noise)))(trader)
    np.testing.assert_allclose(one, other, rtol=1e-4)


def test_a_loss_of_another_smoothing_compiles_nothing():
    loss, trader = heston_loss(MODEL, cost=0.0, coarsest_steps=2), initial(jax.random.key(0), MODEL)
    traced = []

    @eqx.filter_jit
    def value(loss, noise):
        traced.append(1)
        return loss.loss(trader, noise)

    noise = loss.sample(jax.random.key(2), 0)
    assert float(value(loss, noise)) != float(value(smoothed(loss, 0.2), noise)) and len(traced) == 1


def test_training_finds_the_price():
    loss = heston_loss(cost=0.0, coarsest_steps=4, antithetic=False)
    trained, _ = dmlmc.train(
        dmlmc.naive(loss, 0, 256), optax.adam(0.01), initial(jax.random.key(0), swap=True), 200,
        jax.random.key(1), progress=False,
    )  # fmt: skip
    assert float(trained.cash) == pytest.approx(float(call_price(Heston()).price), rel=0.1)


@pytest.mark.parametrize("wrong", [{"tail": 1.0}, {"cost": -0.1}, {"smoothing": -1.0}, {"antithetic": 1}], ids=str)
def test_wrong_arguments_are_named(wrong):
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        heston_loss(**wrong)


def test_the_start_is_today():
    np.testing.assert_allclose(start(Heston(spot=2.0)), [2.0, 0.04, 0.04], rtol=1e-6)
