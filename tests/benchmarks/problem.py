"""The problem of the benchmarks."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp

import dmlmc

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)


def drift(t, y, params):
    return jnp.stack([y[0], params(jnp.stack([t, y[0]])) * y[0]])


def diffusion(t, y, params):
    return drift(t, y, params)[:, None]


def terminal(y, params):
    return (jax.nn.relu(y[0] - 3) - y[1]) ** 2


START = (1.0, 0.0)


def loss(solver=None):
    """The size of the paper's problem: a 2-32-32-1 network that steers a two-dimensional state."""
    return dmlmc.SDELoss(drift, diffusion, terminal, jnp.array(START), 1.0, 10, noise_dim=1, solver=solver)


def network():
    return eqx.nn.MLP(2, "scalar", 32, 2, jax.nn.silu, jax.nn.sigmoid, key=jax.random.key(1))


def timed(function, *arguments):
    """What a function returns, and the seconds it took."""
    began = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - began


def compiled(function, *arguments):
    """The compiled function and the seconds that took, tracing included."""
    return timed(lambda: jax.jit(function).lower(*arguments).compile())
