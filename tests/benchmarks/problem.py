"""The problem of the benchmarks: the paper's, step by step, so that nothing of it can be precomputed."""

import time

import jax

import dmlmc
from dmlmc import hedging

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
LOSS = hedging.hedging_loss()
PARAMS = hedging.initial_params(jax.random.key(1))


def compiled(function, *arguments):
    """The compiled function and the seconds that took, tracing included."""
    began = time.perf_counter()
    made = jax.jit(function).lower(*arguments).compile()
    return made, time.perf_counter() - began
