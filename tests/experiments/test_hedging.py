"""The two hedging losses, compared with each other, with diffrax and with Black-Scholes."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import dmlmc
from dmlmc.experiments import black_scholes, hedging
from tests.helpers.paths import path
from tests.helpers.problems import StoredPath

MARKETS = [
    black_scholes.Market(),
    black_scholes.Market(drift=-0.3, volatility=0.4, strike=1.1, spot=1.2, maturity=0.5),
]


initial_params = eqx.filter_jit(hedging.initial_params)


def assert_trees_close(actual, expected, rtol):
    actual, expected = jax.tree.leaves(actual), jax.tree.leaves(expected)
    assert len(actual) == len(expected) > 0
    for left, right in zip(actual, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=rtol, atol=rtol * float(jnp.max(jnp.abs(right))))


@pytest.mark.parametrize("market, level", [(MARKETS[0], 0), (MARKETS[0], 3), (MARKETS[1], 1)])
def test_fast_equals_generic(x64, market, level):
    params = initial_params(jr.key(0), market)
    fast, generic = hedging.FastHedgingLoss(market, 5), hedging.hedging_loss(market, 5)
    noises = generic.batch(jr.split(jr.key(level), 3), level)
    np.testing.assert_array_equal(noises, fast.batch(jr.split(jr.key(level), 3), level))
    weights = jnp.array([1.0, -0.7, 0.3])  # different weights detect swapped samples

    def value_and_gradient(loss):
        def weighted(params):
            return weights @ loss.losses(params, noises) + 2 * weights @ loss.differences(params, noises, level)

        return eqx.filter_jit(eqx.filter_value_and_grad(weighted))(params)

    assert_trees_close(value_and_gradient(fast), value_and_gradient(generic), rtol=1e-11)

    @eqx.filter_jit
    def single_and_batched(params):
        single = fast.loss(params, noises[0]), fast.difference(params, noises[0], level)
        return single, (fast.losses(params, noises)[0], fast.differences(params, noises, level)[0])

    assert_trees_close(*single_and_batched(params), rtol=1e-11)


def test_fast_euler_equals_diffrax_euler(x64):
    generic, params = hedging.hedging_loss(), initial_params(jr.key(0))
    euler = dmlmc.SDELoss(
        generic.drift, generic.diffusion, generic.terminal, generic.y0, generic.t1, 10, 1, solver=diffrax.Euler()
    )
    noises = generic.batch(jr.split(jr.key(1), 3), 1)

    @eqx.filter_jit
    def values(loss):
        return loss.losses(params, noises), loss.differences(params, noises, 1)

    assert_trees_close(values(hedging.FastHedgingLoss(euler=True)), values(euler), rtol=1e-11)


@pytest.mark.parametrize("make", [hedging.hedging_loss, hedging.FastHedgingLoss])
def test_gradient_agrees_with_finite_differences(x64, make):
    loss, params = make(coarsest_steps=4), initial_params(jr.key(0))
    noise = loss.sample(jr.key(1), 2)
    trainable, static = eqx.partition(params, eqx.is_inexact_array)
    flat, unflatten = jax.flatten_util.ravel_pytree(trainable)

    @jax.jit
    def value(flat):
        return loss.difference(eqx.combine(unflatten(flat), static), noise, 2)

    flat, gradient = np.asarray(flat), np.asarray(jax.jit(jax.grad(value))(flat))
    for direction in np.asarray(jr.normal(jr.key(2), (3, flat.size))):
        step = 1e-5
        slope = (value(flat + step * direction) - value(flat - step * direction)) / (2 * step)
        np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-7)


@pytest.mark.parametrize("printed_drift", [False, True])
def test_generic_equals_diffrax(x64, printed_drift):
    market, level = black_scholes.Market(drift=0.7, volatility=0.8, strike=1.5), 2
    loss = hedging.hedging_loss(market, printed_drift=printed_drift)
    params = initial_params(jr.key(0), market)
    noise = loss.sample(jr.key(1), level)
    steps = noise.shape[0]

    def drift(t, y, params):
        change = market.drift * (1.0 if printed_drift else y[0])
        return jnp.array([change, params.network(jnp.array([t, y[0]])) * change])

    def diffusion(t, y, params):
        change = market.volatility * y[0]
        return jnp.array([[change], [params.network(jnp.array([t, y[0]])) * change]])

    @eqx.filter_jit
    def solved_and_found(params, noise):
        control = StoredPath(path(noise), market.maturity)
        terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, control))
        start, dt = jnp.array([market.spot, 0.0]), market.maturity / steps
        solution = diffrax.diffeqsolve(terms, diffrax.ItoMilstein(), 0.0, market.maturity, dt, start, params)
        return solution.ys[-1], loss.loss(params, noise)

    (price, profit), found = jax.tree.map(np.asarray, solved_and_found(params, noise))
    expected = (max(price - market.strike, 0.0) - profit - float(params.price)) ** 2
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@eqx.filter_jit
def simulated(loss, params, key, level, samples):
    """Both schemes share it: which one it is, is an array of the loss."""
    return loss.losses(params, loss.batch(jr.split(key, samples), level))


@pytest.mark.parametrize(("euler", "order"), [(False, 1.5), (True, 1.0)])
def test_the_loss_of_the_black_scholes_hedge_falls_at_its_order(x64, euler, order):
    # With a smooth delta, the squared error of Milstein would fall like dt^2. The kink of the payoff makes the third
    # derivative of the value blow up: E|L1 L1 G|^2 grows like 1/(T - t)^(3/2), and the sum of dt^3 times that over the
    # steps is of order dt^(3/2). With Euler's scheme the profit is that of trading at the grid points, with error dt.
    market = black_scholes.Market(drift=0.1, volatility=0.2, strike=1.0)
    loss = hedging.FastHedgingLoss(market, euler=euler)
    floor = hedging.black_scholes_params(market)
    levels, samples = np.arange(2, 7), 4096
    means, errors = [], []
    for level in levels.tolist():
        losses = np.asarray(simulated(loss, floor, jr.key(level), level, samples))
        means.append(losses.mean())
        errors.append(losses.std() / samples**0.5 / losses.mean())  # standard error of the logarithm
    weights = (levels - levels.mean()) / np.sum((levels - levels.mean()) ** 2)
    slope = -weights @ np.log2(means)
    error = np.sqrt(np.sum((weights * np.array(errors) / np.log(2)) ** 2))
    assert abs(slope - order) < 4 * error < 0.3, (slope, error)


def test_a_loss_with_more_coarsest_steps_is_the_same_at_a_finer_level(x64):
    params = initial_params(jr.key(0))

    @eqx.filter_jit
    def drawn(loss, level):
        noise = loss.sample(jr.key(1), level)
        return noise, loss.loss(params, noise)

    noise, value = drawn(hedging.FastHedgingLoss(), 2)
    same_noise, same_value = drawn(hedging.FastHedgingLoss(coarsest_steps=40), 0)
    np.testing.assert_array_equal(noise, same_noise)
    assert float(value) == pytest.approx(float(same_value), rel=1e-12)


def test_rows_must_be_positive():
    with pytest.raises(ValueError, match="FastHedgingLoss: rows must be at least 1"):
        hedging.FastHedgingLoss(rows=0)


@pytest.mark.parametrize("samples", [1, 5, 12])
def test_the_number_of_rows_does_not_change_the_gradient(x64, samples):
    params = initial_params(jr.key(0))

    def gradient(rows):
        estimator = dmlmc.naive(hedging.FastHedgingLoss(rows=rows), level=1, samples=samples)
        return estimator.estimate(params, (), 0, jr.key(1))[0]

    assert_trees_close(gradient(rows=80), gradient(rows=10**6), rtol=1e-12)


@pytest.mark.parametrize("method", ["naive", "delayed MLMC"])
def test_a_short_training_lowers_the_loss(method, paper_rates):
    loss = hedging.FastHedgingLoss()
    plan = dmlmc.plan(paper_rates, max_level=1, level0_samples=64, allocation="paper")
    estimator = {"naive": dmlmc.naive(loss, 1, 32), "delayed MLMC": dmlmc.delayed_mlmc(loss, plan)}[method]
    params = initial_params(jr.key(0))
    _, record = dmlmc.train(
        estimator,
        optax.sgd(1e-3),
        params,
        100,
        jr.split(jr.key(1), 2),
        progress=False,
        evaluate_every=100,
        validation=lambda params: dmlmc.mean_loss(loss, params, 1, 512, jr.key(2)),
    )
    assert record["method"].unique().tolist() == [method]
    before, after = (record[record["step"] == step]["loss"].to_numpy() for step in (0, 100))
    assert np.all(after < 0.8 * before)


def test_hedge_curves_have_every_method_and_seed_and_the_delta():
    market = black_scholes.Market()
    keys = jr.split(jr.key(0), 3)
    trained = {"MLMC": eqx.filter_jit(eqx.filter_vmap(lambda key: hedging.initial_params(key, market)))(keys)}
    curves = hedging.hedge_curves(market, trained, [0.2, 0.7])
    assert curves.groupby("source").seed.nunique().to_dict() == {"Black-Scholes delta": 1, "MLMC": 3}
    row = curves[(curves.source == "MLMC") & (curves.seed == 1) & (curves.t == 0.7)].iloc[10]
    network = eqx.filter_jit(initial_params(keys[1], market).network)
    assert row.ratio == pytest.approx(float(network(jnp.array([0.7, row.s]))), rel=1e-5)
    exact = curves[curves.source == "Black-Scholes delta"]
    np.testing.assert_allclose(
        exact.ratio, black_scholes.black_scholes_delta(market, exact.t.values, exact.s.values), rtol=1e-5
    )


def test_final_losses_have_a_correct_standard_error():
    """Means over independent paths differ by no more than their standard errors allow."""
    loss = hedging.FastHedgingLoss(black_scholes.Market(volatility=0.3, strike=1.0))
    trained = {"naive": eqx.filter_jit(eqx.filter_vmap(hedging.initial_params))(jr.split(jr.key(0), 2))}
    one, other = (hedging.final_losses(loss, trained, 0, 4096, jr.key(seed)).loc["naive"] for seed in (1, 2))
    assert abs(one.loss - other.loss) < 4 * np.hypot(one["standard error"], other["standard error"])
    assert 0 < one["standard error"] < 0.2 * one.loss
    by_hand = [
        float(
            dmlmc.mean_loss(
                loss,
                jax.tree.map(lambda x, i=i: jnp.asarray(np.asarray(x)[i]) if eqx.is_array(x) else x, trained["naive"]),
                0,
                20_000,
                jr.key(3),
            )
        )
        for i in (0, 1)
    ]
    assert abs(one.loss - np.mean(by_hand)) < 4 * one["standard error"]
    assert one["deviation over seeds"] == pytest.approx(np.std(by_hand, ddof=1), rel=0.5)
