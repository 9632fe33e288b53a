"""Bytes of a step: what each estimator keeps from step to step, and what a compiled step needs beside it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

import dmlmc
from tests.helpers.problems import neural_loss, neural_params

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
PLANS = {
    "held": dmlmc.plan(RATES, 6, level0_samples=512),
    "paper": dmlmc.plan(RATES, 4, level0_samples=16, allocation="paper"),
    "slow": dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=0.5), 4, level0_samples=16),
    "own periods": dmlmc.plan(RATES, 3, samples=[8, 4, 2, 1], periods=[1, 3, 1, 5]),
    "level 0 stale": dmlmc.plan(RATES, 1, samples=[8, 4], periods=[2, 3]),
    "no delay": dmlmc.plan(RATES, 2, samples=[8, 4, 2], periods=[1, 1, 1]),
}


class Simple(dmlmc.MultilevelLoss):
    """A loss of any parameters, which is traced quickly."""

    def sample(self, key, level):
        return jr.normal(key, (level + 1,))

    def coarsen(self, noise):
        return noise[:-1]

    def loss(self, params, noise):
        leaves = jax.tree.leaves(eqx.filter(params, eqx.is_inexact_array))
        return jnp.sum(noise) * sum(jnp.sum(leaf) for leaf in leaves)


def bytes_of(tree):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def states(estimator, params):
    """The state before the first step and after it."""
    state = eqx.filter_eval_shape(estimator.init, params)
    _, after = eqx.filter_eval_shape(estimator.estimate, params, state, 0, jr.key(0))
    return state, after


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_delayed_mlmc_keeps_one_gradient_and_one_flag_per_stale_level(plan):
    params = neural_params()  # with a function and an integer among its leaves, which have no gradient
    gradient = bytes_of(eqx.filter(params, eqx.is_inexact_array))
    assert gradient == 4 * (2 * 4 + 4 + 4 * 2 + 2 + 2)
    stale = sum(period > 1 for period in plan.periods)
    for state in states(dmlmc.delayed_mlmc(Simple(), plan), params):
        assert bytes_of(state) == stale * (gradient + 1)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_mlmc_and_naive_keep_nothing(plan):
    for estimator in (dmlmc.mlmc(Simple(), plan), dmlmc.naive(Simple(), plan.max_level, 3)):
        assert states(estimator, neural_params()) == ((), ())


@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("samples", [(512, 390, 296, 224), (3, 2, 1, 7)], ids=str)
@pytest.mark.parametrize(
    ("options", "paths", "times"),
    [({}, 2, 1), ({"antithetic": True, "copies": 2}, 6, 1), ({"observation_times": [0.25, 0.5, 1.0]}, 2, 3)],
    ids=["plain", "antithetic copies", "observed"],
)
def test_streaming_mlmc_keeps_the_states_of_its_pairs_in_flight(stride, samples, options, paths, times):
    loss, plan = neural_loss(**options), dmlmc.plan(RATES, 3, samples=samples, allocation="paper")
    streamed = {level: count for level, count in enumerate(samples) if 2**level > stride}
    of_pair, iterations = paths * 2 * 4, loss.coarsest_steps * stride // 2  # a state has two floats
    kept = iterations * sum(count * 2**level // stride for level, count in streamed.items())
    # On the way forward, and back: a state each. At the observation times: states of both ways, and derivatives.
    few = iterations + 2 + 3 * times
    expected = of_pair * (kept + few * sum(streamed.values())) + jnp.array(0).nbytes
    init = dmlmc.streaming_mlmc(loss, plan, stride=stride).init
    assert bytes_of(eqx.filter_eval_shape(init, neural_params())) == expected


@pytest.mark.parametrize("plan", [PLANS["held"], PLANS["paper"]], ids=["held", "paper"])
def test_streaming_mlmc_keeps_what_its_docstring_says(plan):
    loss = neural_loss()
    pairs = loss.coarsest_steps // 2 * sum(2**level * count for level, count in enumerate(plan.samples) if level)
    state, after = states(dmlmc.streaming_mlmc(loss, plan), neural_params())
    assert bytes_of(state.kept) == pairs * 2 * 2 * 4 and bytes_of(after) == bytes_of(state)


def small_loss(**options):
    return dmlmc.SDELoss(
        drift=lambda t, y, params: -params * y,
        diffusion=lambda t, y, params: 0.3 * jnp.ones((1, 1)),
        terminal=lambda y, params: (y[0] - 0.5) ** 2,
        **{"y0": jnp.ones(1), "noise_dim": 1, "t1": 1.0, "coarsest_steps": 4, **options},
    )


MAKERS = {
    "naive": lambda loss, plan: dmlmc.naive(loss, plan.max_level, plan.samples[-1]),
    "MLMC": dmlmc.mlmc,
    "delayed MLMC": dmlmc.delayed_mlmc,
    "streaming MLMC": dmlmc.streaming_mlmc,
}


def temporaries(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_temporaries_do_not_grow_with_the_number_of_steps(make):
    estimator, params = make(small_loss(), dmlmc.plan(RATES, 1, samples=[4, 2])), jnp.array(1.0)

    def of_run(steps):
        def one(step, run):
            gradient, state = estimator.estimate(*run, step, jr.key(0))
            return run[0] - 0.1 * gradient, state

        return temporaries(lambda run: jax.lax.fori_loop(0, steps, one, run), (params, estimator.init(params)))

    assert of_run(10) == of_run(10_000)


@pytest.mark.parametrize("method", ["naive", "delayed MLMC"])
def test_with_samples_at_once_temporaries_do_not_grow_with_samples(method):
    level, params = 1, jnp.array(1.0)
    steps = 16 * 2**level

    def growth(**options):
        def of_step(samples):
            plan = dmlmc.plan(RATES, level, samples=[samples, samples], periods=[1, 2], allocation="paper")
            estimator = MAKERS[method](small_loss(coarsest_steps=16, **options), plan)
            return temporaries(estimator.estimate, params, estimator.init(params), 0, jr.key(0))

        return (of_step(128) - of_step(64)) / 64

    # A sample of a level has a key (8 bytes, and a copy in order), a number and a weight. Its path has state and noise.
    assert growth(samples_at_once=16) <= (2 * 8 + 4 + 4) * (level + 1) < steps * (4 + 4) <= growth()
