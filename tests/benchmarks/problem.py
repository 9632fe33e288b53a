"""The paper's problem, as the general SDE loss (``LOSS``) and as the fast loss used for training (``TRAINED``)."""

import time

import equinox as eqx
import jax

import dmlmc
from dmlmc.experiments import hedging

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
LOSS = hedging.hedging_loss()
TRAINED = hedging.FastHedgingLoss()
PARAMS = hedging.initial_params(jax.random.key(1))
LEAVES, STATIC = eqx.partition(PARAMS, eqx.is_inexact_array)
KEY = jax.random.key(0)


def compiled(function, *arguments):
    """The compiled function, and the seconds to trace and compile it."""
    began = time.perf_counter()
    made = jax.jit(function).lower(*arguments).compile()
    return made, time.perf_counter() - began


def of_leaves(gradient):
    """``gradient(params, key)`` as a function of arrays only, which can be compiled ahead of time."""
    return lambda leaves, key: eqx.filter(gradient(eqx.combine(leaves, STATIC), key), eqx.is_inexact_array)


def together(gradients):
    """Several gradients as one function."""
    return lambda params, key: [gradient(params, key) for gradient in gradients]
