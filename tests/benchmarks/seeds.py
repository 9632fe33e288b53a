"""Steps of Figure 2 with all seeds of a device side by side, over one after the other.

``python -m tests.benchmarks.seeds`` splits the CPU into a device per core, as notebook 03 does. Takes a few minutes.
"""

import os

import equinox as eqx
import jax
import jax.random as jr
import optax

import dmlmc
from dmlmc.calibration.interval import median_ratio
from dmlmc.calibration.timing import in_turn
from dmlmc.devices import even_mesh
from dmlmc.experiments import hedging
from dmlmc.training.evaluation import Start
from dmlmc.training.program import Program, copied

SEEDS = 10
STEPS = {"naive": 2, "MLMC": 4, "delayed MLMC": 64}  # of one call; delayed MLMC takes a whole cycle


def compiled(estimator: dmlmc.GradientEstimator, seeds_at_once: int | None) -> Program:
    """A run of all seeds, ready to take steps."""
    keys = jr.split(jr.key(0), SEEDS)
    start, mesh = Start(eqx.filter_vmap(hedging.initial_params)(keys)), even_mesh(SEEDS)
    made = Program(estimator, optax.sgd(1e-3), start, keys, evaluate=None, mesh=mesh, seeds_at_once=seeds_at_once)
    made.compile()
    return made


def measure(report=print) -> None:
    """Print the ratio of seconds of each method, with its interval."""
    loss = hedging.FastHedgingLoss(rows=640)
    plan = dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=1.0), 6, level0_samples=512, allocation="paper")
    for estimator in (
        dmlmc.naive(loss, 6, plan.naive_samples()),
        dmlmc.mlmc(loss, plan),
        dmlmc.delayed_mlmc(loss, plan),
    ):
        steps = STEPS[estimator.method]
        programs = {"side by side": compiled(estimator, None), "in turn": compiled(estimator, 1)}
        calls = {
            name: lambda made=made, steps=steps: made.advance(copied(made.initial), 0, steps)
            for name, made in programs.items()
        }
        timed = in_turn(calls, repeats=9)
        ratio = median_ratio(timed.repeats["side by side"], timed.repeats["in turn"])
        report(f"{estimator.method}: side by side {timed.seconds['side by side'] / steps:.2g} s, over in turn {ratio}")


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    measure()
