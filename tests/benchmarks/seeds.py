"""Steps with all seeds of a device side by side, over a few at a time: those of Figure 2, and of notebook 04's sweep.

``python -m tests.benchmarks.seeds`` splits the CPU into a device per core, as these notebooks do. Takes a few minutes.
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
from dmlmc.training.divergence import SILENT
from dmlmc.training.driver import checked_settings
from dmlmc.training.evaluation import Start
from dmlmc.training.program import Program, copied
from dmlmc.training.sweep import prepared_sweep

SEEDS = 10  # in Figure 2
STEPS = {"naive": 2, "MLMC": 4, "delayed MLMC": 64}  # of one call; delayed MLMC takes a whole cycle


def compiled(estimator: dmlmc.GradientEstimator, seeds_at_once: int | None) -> Program:
    """A run of all seeds of Figure 2, ready to take steps."""
    keys = jr.split(jr.key(0), SEEDS)
    start, mesh = Start(eqx.filter_vmap(hedging.initial_params)(keys)), even_mesh(SEEDS)
    made = Program(estimator, optax.sgd(1e-3), start, keys, evaluate=None, mesh=mesh, seeds_at_once=seeds_at_once)
    made.compile()
    return made


def swept(estimator: dmlmc.GradientEstimator, seeds_at_once: int | None) -> Program:
    """A sweep of Adam over seven learning rates and eight seeds, ready to take steps."""
    keys = jr.split(jr.key(0), 8)
    unused = dict.fromkeys(["metrics", "callback", "evaluate_every", "directory", "checkpoint_every", "chunk_steps"])
    settings = checked_settings(
        "seeds", 0, 64, validation=lambda params: params.price, progress=False, on_divergence=SILENT, one_seed=False,
        seeds_at_once=seeds_at_once, **unused,
    )  # fmt: skip
    optimisers = {"Adam": (optax.adam, [0.001, 0.002, 0.004, 0.006, 0.01, 0.02, 0.04])}
    made = prepared_sweep(estimator, optimisers, eqx.filter_vmap(hedging.initial_params)(keys), keys, settings)
    made.compile()
    return made.driver.program


def compare(name: str, few: str, steps: int, programs: tuple[Program, Program], report=print) -> None:
    """Print seconds per step side by side, and their ratio to those of ``few`` at a time, with its interval."""
    calls = {
        way: lambda made=made: made.advance(copied(made.initial), 0, steps)
        for way, made in zip(("side by side", few), programs, strict=True)
    }
    timed = in_turn(calls, repeats=9)
    ratio = median_ratio(timed.repeats["side by side"], timed.repeats[few])
    report(f"{name}: side by side {timed.seconds['side by side'] / steps:.2g} s, over {few} {ratio}")


def measure() -> None:
    """Compare the three methods in Figure 2, and MLMC and delayed MLMC in a sweep."""
    loss, rates = hedging.FastHedgingLoss(rows=640), dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    plan = dmlmc.plan(rates, 6, level0_samples=512, allocation="paper")
    for estimator in (
        dmlmc.naive(loss, 6, plan.naive_samples()),
        dmlmc.mlmc(loss, plan),
        dmlmc.delayed_mlmc(loss, plan),
    ):
        both = compiled(estimator, None), compiled(estimator, 1)
        compare(f"Figure 2, {estimator.method}", "one at a time", STEPS[estimator.method], both)
    plan = dmlmc.plan(rates, 6, level0_samples=8)
    for estimator in (dmlmc.mlmc(loss, plan), dmlmc.delayed_mlmc(loss, plan)):
        both = swept(estimator, None), swept(estimator, 4)
        compare(f"sweep, {estimator.method}", "four at a time", STEPS[estimator.method], both)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    measure()
