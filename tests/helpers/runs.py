"""Short training runs for the tests of training."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

import dmlmc

RATES = dmlmc.Rates(1.8, 1.0, 1.0)
PLAN = dmlmc.plan(RATES, 2, samples=[8, 4, 2], allocation="paper")
QUADRATIC = dmlmc.QuadraticLoss(dimension=3, L=1.0, M=1.0, rates=RATES)
KEYS = jax.random.split(jax.random.key(0), 4)


def run(steps=23, key=KEYS, optimiser=None, estimator=None, **options):
    settings = {"validation": lambda params: QUADRATIC.mean(params, 2), "evaluate_every": 5, "progress": False}
    return dmlmc.train(
        estimator or dmlmc.delayed_mlmc(QUADRATIC, PLAN),
        optimiser or optax.adam(0.1),
        options.pop("params", jnp.ones(3)),
        steps,
        key,
        **{**settings, **options},
    )


HALVING = dmlmc.GradientEstimator(
    lambda params: (), lambda params, state, step, key: (eqx.filter(params, eqx.is_inexact_array), state), "halving"
)


def halved(steps=23, key=KEYS, **options):
    """A run that halves its parameters at every step. It compiles in no time."""
    given = {"params": jnp.ones(2), "progress": False, **options}
    return dmlmc.train(HALVING, optax.sgd(0.5), steps=steps, key=key, **given)


def assert_same_run(one, other):
    """Equal bit for bit, except for the seconds."""
    np.testing.assert_array_equal(one[0], other[0])
    pd.testing.assert_frame_equal(one[1].drop(columns="seconds"), other[1].drop(columns="seconds"), check_exact=True)
