"""Compile time and seconds per step of the engine, side by side in one process: ``make bench``.

Absolute times depend on the machine and on what else it is doing. The ratios within one run are what to compare.
"""

import json
import os
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import dmlmc
from dmlmc.program import Program

OUTPUT = Path(__file__).parents[2] / "figures" / "data" / "benchmarks.json"
REPEATS = 5


class Unchanged(diffrax.ItoMilstein):
    """diffrax's own Milstein step, which a subclass keeps from being replaced by ours."""


def hedging_like_loss(solver=None):
    """The size of the paper's problem: a 2-32-32-1 network that steers a two-dimensional state."""

    def position(t, y, params):
        return jnp.stack([y[0], params(jnp.stack([t, y[0]])) * y[0]])

    return dmlmc.SDELoss(
        drift=position,
        diffusion=lambda t, y, params: position(t, y, params)[:, None],
        terminal=lambda y, params: (jax.nn.relu(y[0] - 3) - y[1]) ** 2,
        y0=jnp.array([1.0, 0.0]),
        t1=1.0,
        coarsest_steps=10,
        noise_dim=1,
        solver=solver,
    )


def measure(estimator, params, steps):
    """Compile seconds of the whole training program, then the median over repeats of seconds per step."""
    keys = jax.random.split(jax.random.key(0), 1)
    options = {"params_per_seed": False, "validation": None, "devices": None}
    program = Program(estimator, optax.sgd(1e-3), params, keys, **options)
    began = time.perf_counter()
    program.compile()
    compiled = time.perf_counter() - began
    run = program.advance(program.initial, 0, steps)
    seconds = []
    for repeat in range(1, REPEATS + 1):
        began = time.perf_counter()
        run = program.advance(run, repeat * steps, (repeat + 1) * steps)
        seconds.append((time.perf_counter() - began) / steps)
    spread = (max(seconds) - min(seconds)) / statistics.median(seconds)
    return {"compile_seconds": compiled, "seconds_per_step": statistics.median(seconds), "spread": spread}


def main():
    plan = dmlmc.plan(dmlmc.Rates(1.8, 1.0, 1.0), max_level=6, level0_samples=512)
    params = eqx.nn.MLP(2, "scalar", 32, 2, jax.nn.silu, jax.nn.sigmoid, key=jax.random.key(1))
    loss, theirs = hedging_like_loss(), hedging_like_loss(Unchanged())
    cases = {
        "naive": (dmlmc.naive(loss, 6, plan.naive_samples()), 2),
        "MLMC": (dmlmc.mlmc(loss, plan), 4),
        "delayed MLMC": (dmlmc.delayed_mlmc(loss, plan), 64),
        "naive, diffrax's Milstein": (dmlmc.naive(theirs, 6, plan.naive_samples()), 2),
        "delayed MLMC, diffrax's Milstein": (dmlmc.delayed_mlmc(theirs, plan), 64),
    }
    results = {}
    print(f"{'at six levels':34}{'compile [s]':>12}{'step [ms]':>12}{'spread':>9}")
    for name, (estimator, steps) in cases.items():
        found = results[name] = measure(estimator, params, steps)
        milliseconds = 1e3 * found["seconds_per_step"]
        print(f"{name:34}{found['compile_seconds']:12.1f}{milliseconds:12.2f}{found['spread']:9.0%}", flush=True)
    versions = {name: version(name) for name in ("jax", "diffrax", "equinox")}
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"engine": results, "versions": versions, "machine": machine}, indent=1) + "\n")


if __name__ == "__main__":
    main()
