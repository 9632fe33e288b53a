"""Seconds per SGD step against l_max and the batch, for the general SDE loss, which precomputes nothing."""

from functools import partial

import jax

import dmlmc
from dmlmc.calibration.timing import chain_seconds, in_turn, method_seconds, seconds_ratio
from tests.benchmarks import peers, problem


def measure(max_level, level0_samples, repeats):
    """All methods at one l_max: the rows of their table, and the ratios to compare."""
    table = method_seconds(problem.LOSS, problem.PARAMS, problem.RATES, max_level, level0_samples, repeats=repeats)
    predicted = table.set_index("method").predicted
    entry = {"methods": table.to_dict("records")}
    for name, over, under in (
        ("mlmc_over_delayed", "MLMC", "delayed MLMC"),
        ("delayed_over_level0", "delayed MLMC", "level 0"),
    ):
        found = seconds_ratio(table, over, under)
        entry |= {name: found.estimate, f"{name}_interval": [found.low, found.high]}
        entry[f"{name}_by_span"] = predicted[over] / predicted[under]
    return entry


def chain(most, level=3):
    """Seconds of an SGD step at one level against the number of paths, up to ``most``."""
    counts = [2**k for k in range(0, most.bit_length(), 2)]
    return chain_seconds(problem.LOSS, problem.PARAMS, level, counts).to_dict("records")


def parts(max_level, level0_samples):
    """Seconds of an MLMC gradient: all levels together, each level alone, and only the noise of all levels."""
    plan = dmlmc.plan(problem.RATES, max_level, level0_samples=level0_samples, allocation="paper")
    gradients = [peers.ours(problem.LOSS, level, samples, coupled=True) for level, samples in enumerate(plan.samples)]

    def noise(leaves, key):
        return [problem.LOSS.batch(jax.random.split(key, samples), level) for level, samples in enumerate(plan.samples)]

    functions = {"all levels": problem.of_leaves(problem.together(gradients)), "noise": noise}
    functions |= {f"level {level}": problem.of_leaves(gradient) for level, gradient in enumerate(gradients)}
    programs = {
        name: problem.compiled(function, problem.LEAVES, problem.KEY)[0] for name, function in functions.items()
    }
    calls = {name: partial(made, problem.LEAVES, problem.KEY) for name, made in programs.items()}
    seconds = in_turn(calls, repeats=45).seconds
    alone = sum(value for name, value in seconds.items() if name.startswith("level"))
    return {"seconds": seconds.to_dict(), "levels_alone_over_all": alone / seconds["all levels"]}
