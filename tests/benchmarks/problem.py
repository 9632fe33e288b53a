"""The problem of the benchmarks: the paper's, as any SDE step by step, and as it is trained, all steps at once."""

import time

import jax

import dmlmc
from dmlmc import hedging

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
LOSS = hedging.hedging_loss()
TRAINED = hedging.FastHedgingLoss()
PARAMS = hedging.initial_params(jax.random.key(1))


def compiled(function, *arguments):
    """The compiled function and the seconds that took, tracing included."""
    began = time.perf_counter()
    made = jax.jit(function).lower(*arguments).compile()
    return made, time.perf_counter() - began
