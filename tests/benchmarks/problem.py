"""The problem of the benchmarks: the paper's, as any SDE step by step, and as it is trained, all steps at once."""

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
    """The compiled function and the seconds that took, tracing included."""
    began = time.perf_counter()
    made = jax.jit(function).lower(*arguments).compile()
    return made, time.perf_counter() - began


def of_leaves(gradient):
    """A function of parameters and a key, as one of plain arrays, which can be compiled ahead of its use."""
    return lambda leaves, key: eqx.filter(gradient(eqx.combine(leaves, STATIC), key), eqx.is_inexact_array)


def together(gradients):
    """Several gradients as one function."""
    return lambda params, key: [gradient(params, key) for gradient in gradients]
