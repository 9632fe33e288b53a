"""Steps of Figure 2 with all seeds side by side, over one seed after the other: ``python -m tests.benchmarks.seeds``.

Five seeds share a device, as ten do with the two cores of notebook 03, with the loss and the batches of that notebook.
Takes about two minutes.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

import dmlmc
from dmlmc import gradients
from dmlmc.calibration.interval import median_ratio
from dmlmc.calibration.timing import in_turn
from dmlmc.devices import one_device
from dmlmc.experiments import hedging
from dmlmc.training.evaluation import Start
from dmlmc.training.program import Program
from tests.benchmarks import problem, results

SEEDS, ROWS = 5, 640  # rows as in notebook 03
STEPS = {"naive": 2, "MLMC": 4, "delayed MLMC": 64}  # of one call; delayed MLMC takes a whole cycle


def programs(level0_samples: int) -> dict[str, Program]:
    """A compiled run for each method."""
    loss = hedging.FastHedgingLoss(rows=ROWS)
    plan = dmlmc.plan(problem.RATES, 6, level0_samples=level0_samples, allocation="paper")
    estimators = dmlmc.naive(loss, 6, plan.naive_samples()), dmlmc.mlmc(loss, plan), dmlmc.delayed_mlmc(loss, plan)
    keys = jr.split(jr.key(0), SEEDS)
    start = Start(eqx.filter_vmap(hedging.initial_params)(keys))
    made = {
        one.method: Program(one, optax.sgd(1e-3), start, keys, evaluate=None, mesh=one_device()) for one in estimators
    }
    for program in made.values():
        program.compile()
    return made


def measure(scale: int = 1, report=print) -> dict:
    """For each method: seconds of a step both ways, and their ratio with its interval."""
    after_each_other, kept = programs(512 * scale), gradients.one_seed_at_a_time
    gradients.one_seed_at_a_time = lambda function: function
    try:
        side_by_side = programs(512 * scale)
    finally:
        gradients.one_seed_at_a_time = kept
    found = {}
    for method, steps in STEPS.items():

        def call(program, steps=steps):
            return program.advance(jax.tree.map(jnp.copy, program.initial), 0, steps)

        timed = in_turn(
            {
                "side by side": lambda method=method: call(side_by_side[method]),
                "after each other": lambda method=method: call(after_each_other[method]),
            },
            repeats=9,
        )
        ratio = median_ratio(timed.repeats["side by side"], timed.repeats["after each other"])
        found[method] = {"seconds": (timed.seconds / steps).to_dict(), "ratio": ratio._asdict()}
        report(f"{method}: {SEEDS} seeds side by side over one after the other {ratio}", flush=True)
    return {"seeds": found | {"machine": results.machine(scale)}}


if __name__ == "__main__":
    results.save(measure(results.scale_from(None, str(__doc__))), keep=True)
