"""The hedging problem: its two formulations against each other, against diffrax, and against Black-Scholes."""

import dataclasses

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from scipy import integrate, stats

import dmlmc
from dmlmc import brownian, hedging

MARKETS = [
    hedging.Market(),
    hedging.Market(drift=-0.3, volatility=0.4, strike=1.1, spot=1.2, maturity=0.5),
]


class StoredPath(diffrax.AbstractBrownianPath):
    """Brownian motion that is known at the points of a grid and asked for nothing else."""

    values: jax.Array
    step: float
    levy_area = diffrax.BrownianIncrement

    @property
    def t0(self):
        return 0.0

    @property
    def t1(self):
        return self.step * (self.values.shape[0] - 1)

    def evaluate(self, t0, t1=None, left=True, use_levy=False):
        def at(t):
            return self.values[jnp.round(t / self.step).astype(int)]

        return at(t0) if t1 is None else at(t1) - at(t0)


def assert_trees_close(actual, expected, rtol):
    actual, expected = jax.tree.leaves(actual), jax.tree.leaves(expected)
    assert len(actual) == len(expected) > 0
    for left, right in zip(actual, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=rtol, atol=rtol * float(jnp.max(jnp.abs(right))))


@pytest.mark.parametrize("market, level", [*((MARKETS[0], level) for level in range(4)), (MARKETS[1], 2)])
def test_fast_equals_generic(x64, market, level):
    params = hedging.initial_params(jr.key(0), market)
    fast, generic = hedging.FastHedgingLoss(market, 5), hedging.hedging_loss(market, 5)
    noises = generic.batch(jr.split(jr.key(level), 3), level)
    np.testing.assert_array_equal(noises, fast.batch(jr.split(jr.key(level), 3), level))
    weights = jnp.array([1.0, -0.7, 0.3])  # so that samples do not stand in for each other

    def value_and_gradient(loss):
        def weighted(params):
            return weights @ loss.losses(params, noises) + 2 * weights @ loss.differences(params, noises, level)

        return eqx.filter_jit(eqx.filter_value_and_grad(weighted))(params)

    assert_trees_close(value_and_gradient(fast), value_and_gradient(generic), rtol=1e-11)

    @eqx.filter_jit
    def one_by_one_and_together(params):
        alone = fast.loss(params, noises[0]), fast.difference(params, noises[0], level)
        return alone, (fast.losses(params, noises)[0], fast.differences(params, noises, level)[0])

    assert_trees_close(*one_by_one_and_together(params), rtol=1e-11)


@pytest.mark.parametrize("make", [hedging.hedging_loss, hedging.FastHedgingLoss])
def test_gradient_against_finite_differences(x64, make):
    loss, params = make(coarsest_steps=4), hedging.initial_params(jr.key(0))
    noise = loss.sample(jr.key(1), 2)
    trainable, static = eqx.partition(params, eqx.is_inexact_array)
    flat, unflatten = jax.flatten_util.ravel_pytree(trainable)

    @jax.jit
    def value(flat):
        return loss.difference(eqx.combine(unflatten(flat), static), noise, 2)

    gradient = jax.grad(value)(flat)
    for direction in jr.normal(jr.key(2), (3, flat.size)):
        step = 1e-5
        slope = (value(flat + step * direction) - value(flat - step * direction)) / (2 * step)
        np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-7)


@pytest.mark.parametrize("printed_drift", [False, True])
def test_generic_against_diffrax(x64, printed_drift):
    market, level = hedging.Market(drift=0.7, volatility=0.8, strike=1.5), 2
    loss = hedging.hedging_loss(market, printed_drift=printed_drift)
    params = hedging.initial_params(jr.key(0), market)
    noise = loss.sample(jr.key(1), level)
    steps = noise.shape[0]

    def drift(t, y, params):
        change = market.drift * (1.0 if printed_drift else y[0])
        return jnp.array([change, params.network(jnp.array([t, y[0]])) * change])

    def diffusion(t, y, params):
        change = market.volatility * y[0]
        return jnp.array([[change], [params.network(jnp.array([t, y[0]])) * change]])

    control = StoredPath(brownian.path(noise), market.maturity / steps)
    terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, control))
    solution = diffrax.diffeqsolve(
        terms,
        diffrax.ItoMilstein(),
        0.0,
        market.maturity,
        market.maturity / steps,
        jnp.array([market.spot, 0.0]),
        params,
    )
    price, profit = solution.ys[-1]
    expected = (max(price - market.strike, 0.0) - profit - params.price) ** 2
    np.testing.assert_allclose(loss.loss(params, noise), expected, rtol=1e-10)


@pytest.mark.parametrize("market", MARKETS)
def test_closed_forms_against_quadrature(x64, market):
    def mean_payoff(drift, spot, left):
        def integrand(z):
            exponent = (drift - market.volatility**2 / 2) * left + market.volatility * np.sqrt(left) * z
            return max(spot * np.exp(exponent) - market.strike, 0.0) * stats.norm.pdf(z)

        kink = (np.log(market.strike / spot) - (drift - market.volatility**2 / 2) * left) / market.volatility
        return integrate.quad(integrand, kink / np.sqrt(left), 12.0, epsabs=1e-13, epsrel=1e-12)[0]

    T = market.maturity
    np.testing.assert_allclose(hedging.expected_payoff(market), mean_payoff(market.drift, market.spot, T), rtol=1e-9)
    np.testing.assert_allclose(hedging.black_scholes_price(market), mean_payoff(0.0, market.spot, T), rtol=1e-9)
    for t, s in ((0.0, market.spot), (0.6 * T, 0.8 * market.strike), (0.9 * T, 1.3 * market.strike)):
        step = 1e-4 * s
        slope = (mean_payoff(0.0, s + step, T - t) - mean_payoff(0.0, s - step, T - t)) / (2 * step)
        np.testing.assert_allclose(hedging.black_scholes_delta(market, t, s), slope, rtol=1e-5)


def test_paper_numbers():
    assert hedging.black_scholes_price(hedging.Market()) == pytest.approx(0.1099, abs=5e-5)
    assert hedging.expected_payoff(hedging.Market()) == pytest.approx(0.9589, abs=5e-5)


def test_delta_at_the_edges():
    market = hedging.Market()
    delta = lambda t, s: hedging.black_scholes_delta(market, t, s)  # noqa: E731
    times, prices = jnp.array([1.0, 1.0, 1.0, 0.5, 1.0]), jnp.array([2.0, 3.0, 4.0, 0.0, 0.0])
    assert delta(times, prices).tolist() == [0.0, 0.5, 1.0, 0.0, 0.0]
    for derivative in (jax.grad(delta, 0), jax.grad(delta, 1)):
        assert np.all(np.isfinite(jax.vmap(derivative)(times, prices)))


def test_black_scholes_hedge_is_the_floor_and_falls_at_rate_three_halves(x64):
    # With a smooth delta the squared error of Milstein would fall like dt^2. The kink of the payoff makes the third
    # derivative of the value blow up: E|L1 L1 G|^2 grows like 1/(T - t)^(3/2), and the sum of dt^3 over steps, so
    # weighted, is of order dt^(3/2).
    market = hedging.Market(drift=0.1, volatility=0.2, strike=1.0)
    loss = hedging.FastHedgingLoss(market)
    floor = hedging.HedgingParams(hedging.BlackScholesHedge(market), jnp.array(hedging.black_scholes_price(market)))
    levels, samples = np.arange(2, 7), 4096
    means, errors = [], []
    for level in levels:
        losses = np.asarray(eqx.filter_jit(loss.losses)(floor, loss.batch(jr.split(jr.key(level), samples), level)))
        means.append(losses.mean())
        errors.append(losses.std() / samples**0.5 / losses.mean())  # standard error of the logarithm
    weights = (levels - levels.mean()) / np.sum((levels - levels.mean()) ** 2)
    slope = -weights @ np.log2(means)
    error = np.sqrt(np.sum((weights * np.array(errors) / np.log(2)) ** 2))
    assert error < 0.1
    assert abs(slope - 1.5) < 4 * error + 0.1


def test_settings_are_checked():
    for wrong in ({"volatility": 0.0}, {"strike": -1.0}, {"drift": float("nan")}, {"maturity": float("inf")}):
        with pytest.raises(ValueError, match="Market: " + next(iter(wrong))):
            hedging.Market(**wrong)
    with pytest.raises(dataclasses.FrozenInstanceError):
        hedging.Market().drift = 2.0
    with pytest.raises(ValueError, match="rows"):
        hedging.FastHedgingLoss(rows=0)


@pytest.mark.parametrize("samples", [1, 5, 12])
def test_chunks_of_samples_do_not_change_the_gradient(x64, samples):
    params = hedging.initial_params(jr.key(0))

    def gradient(rows):
        estimator = dmlmc.naive(hedging.FastHedgingLoss(rows=rows), level=1, samples=samples)
        return estimator.estimate(params, (), 0, jr.key(1))[0]

    assert_trees_close(gradient(rows=80), gradient(rows=10**6), rtol=1e-12)


@pytest.mark.parametrize("method", ["naive", "MLMC", "delayed MLMC"])
def test_a_short_training_lowers_the_loss(method, paper_rates):
    loss = hedging.FastHedgingLoss()
    plan = dmlmc.plan(paper_rates, max_level=2, level0_samples=256)
    estimator = {
        "naive": dmlmc.naive(loss, 2, 128),
        "MLMC": dmlmc.mlmc(loss, plan),
        "delayed MLMC": dmlmc.delayed_mlmc(loss, plan),
    }[method]
    params = hedging.initial_params(jr.key(0))
    _, record = dmlmc.train(
        estimator,
        optax.sgd(1e-3),
        params,
        100,
        jr.split(jr.key(1), 2),
        progress=False,
        evaluate_every=100,
        validation=lambda params: dmlmc.mean_loss(loss, params, 2, 1024, jr.key(2)),
    )
    assert record["method"].unique().tolist() == [method]
    before, after = (record[record["step"] == step]["loss"].to_numpy() for step in (0, 100))
    assert np.all(after < 0.8 * before)
