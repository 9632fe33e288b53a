"""Seconds per SGD step against l_max, with few paths (latency-bound) and with the paper's batch (compute-bound)."""

from dmlmc.timing import method_seconds
from tests.benchmarks import problem


def measure(max_level, level0_samples):
    """The methods at one l_max: their table as records, and the ratios to look at."""
    table = method_seconds(problem.LOSS, problem.PARAMS, problem.RATES, max_level, level0_samples)
    seconds, predicted = (table.set_index("method")[column] for column in ("seconds", "predicted"))
    return {
        "mlmc_over_delayed": seconds["MLMC"] / seconds["delayed MLMC"],
        "mlmc_over_delayed_by_span": predicted["MLMC"] / predicted["delayed MLMC"],
        "delayed_over_level0": seconds["delayed MLMC"] / seconds["level 0"],
        "delayed_over_level0_by_span": predicted["delayed MLMC"] / predicted["level 0"],
        "methods": table.to_dict("records"),
    }
