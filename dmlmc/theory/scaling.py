"""A model of the seconds of one SGD step on many devices, from the work and span of a plan. Nothing is measured.

The samples of every level are divided among P devices. A step takes the longer of chain and load, plus the sums:

- the chain: ``chain_seconds`` times the span of the step, for any P. ``chain_seconds`` is the time of one gradient of a
  single path at level 0, the latency of its sequential time steps;
- the load: ``path_seconds`` times the work of the busiest device, which has ``ceil(N_l / P)`` samples of every level
  that is due. ``path_seconds`` is the extra time of one more level-0 path on a device that already has many;
- the sums: ``hop_seconds * ceil(log2 P)`` to add up the gradients, once for every level that is due. Streaming MLMC
  adds up one gradient at every step. Its span is 1, and its load is that of its chunks, the mean work of its plan.

Levels due at the same step run in parallel in this model, as the paper counts span. A device that runs them one after
another, as XLA does today, needs less than three times as long at c = 1: its time without sums is at most the load
plus the sum of the chains, and that sum is less than twice the longest chain. No JAX.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from dmlmc._internal.checks import integer, positive, real
from dmlmc.allocation import plan
from dmlmc.rates import Rates
from dmlmc.schedule import DELAYED, MLMC, NAIVE, PAPER, STREAMING, Plan, level_cost
from dmlmc.theory.streaming import streaming_periods

MAX_LEVELS, DEVICES = (6, 8, 10, 12), (1, 8, 64, 1024, 4096)
LEVEL0_SAMPLES = 2**20  # with the 512 of the experiment the span limits a step even on one device
ASSUMED = {"chain_seconds": 1e-3, "path_seconds": 1e-6, "hop_seconds": 1e-5}
_LONGEST = 2**16  # average over at most this many steps of a cycle


def predicted_seconds(
    planned: Plan, devices: int, *, chain_seconds: float, path_seconds: float, hop_seconds: float = 0.0
) -> dict[str, float]:
    """Mean seconds of a step by method, in the model of this module. Naive has the samples for equal variance.

    With very many devices only the spans matter:

    >>> paper = plan(Rates(b=1.8, c=1.0, d=1.0), max_level=6, level0_samples=512, allocation="paper")
    >>> predicted_seconds(paper, devices=10**6, chain_seconds=1.0, path_seconds=1e-3)
    {'naive': 64.0, 'MLMC': 64.0, 'delayed MLMC': 4.0, 'streaming MLMC': 1.0}
    """
    devices = integer("predicted_seconds: devices", devices, minimum=1)
    chain = positive("predicted_seconds: chain_seconds", chain_seconds)
    path = positive("predicted_seconds: path_seconds", path_seconds)
    hop = real("predicted_seconds: hop_seconds", hop_seconds)
    if hop < 0:
        raise ValueError(f"predicted_seconds: hop_seconds must be at least 0, got {hop}.")
    top, one_sum = level_cost(planned.max_level, planned.rates.c), hop * math.ceil(math.log2(devices))

    def busiest(shared: Plan) -> Plan:
        """The samples of the busiest device: its load is the work of this plan."""
        return replace(shared, samples=tuple(-(-n // devices) for n in shared.samples))

    def of_plan(delayed: Plan) -> float:
        steps = np.arange(min(math.lcm(*delayed.periods), _LONGEST))
        due = sum(steps % period == 0 for period in delayed.periods)
        longer = np.maximum(chain * delayed.span(steps), path * busiest(delayed).work(steps))
        return float(np.mean(longer + one_sum * due))

    naive = max(chain * top, path * top * -(-planned.naive_samples() // devices))
    streamed = replace(planned, periods=streaming_periods(planned.max_level, planned.rates.c))
    return {
        NAIVE: naive + one_sum,
        MLMC: of_plan(planned.without_delay()),
        DELAYED: of_plan(planned),
        STREAMING: max(chain, path * busiest(streamed).mean_work()) + one_sum,
    }


def scaling_table() -> pd.DataFrame:
    """Seconds of a step in the model, for the assumed constants: columns ``max_level, method, devices, seconds``."""
    rows = []
    for max_level in MAX_LEVELS:
        planned = plan(Rates(b=1.8, c=1.0, d=1.0), max_level, level0_samples=LEVEL0_SAMPLES, allocation=PAPER)
        for devices in DEVICES:
            found = predicted_seconds(planned, devices, **ASSUMED)
            rows += [(max_level, method, devices, seconds) for method, seconds in found.items()]
    return pd.DataFrame(rows, columns=["max_level", "method", "devices", "seconds"])
