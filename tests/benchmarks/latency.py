"""Seconds per SGD step against l_max and against the batch, any SDE's loss: nothing of it can be precomputed."""

from dmlmc.timing import chain_seconds, method_seconds, seconds_ratio
from tests.benchmarks import problem


def measure(max_level, level0_samples):
    """The methods at one l_max: their table as records, and the ratios to look at."""
    table = method_seconds(problem.LOSS, problem.PARAMS, problem.RATES, max_level, level0_samples)
    predicted = table.set_index("method").predicted
    entry = {"methods": table.to_dict("records")}
    for name, over, under in (
        ("mlmc_over_delayed", "MLMC", "delayed MLMC"),
        ("delayed_over_level0", "delayed MLMC", "level 0"),
    ):
        found = seconds_ratio(table, over, under)
        entry |= {name: found.mean, f"{name}_interval": [found.low, found.high]}
        entry[f"{name}_by_span"] = predicted[over] / predicted[under]
    return entry


def chain(level=3):
    """One SGD step at a level against the number of paths."""
    return chain_seconds(problem.LOSS, problem.PARAMS, level, [2**k for k in range(0, 11, 2)]).to_dict("records")
