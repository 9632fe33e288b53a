"""Bytes of one step of each estimator, beside what theory says: ``python -m tests.benchmarks.memory``, about a minute.

The problem is deep hedging as any SDE. Plans are held ones, so all methods but naive have the same noise over many
steps, and naive that of one step. Beside parameters and gradient, a compiled step needs

- the state of the estimator: one gradient and one flag per stale level for delayed MLMC, pairs of states for streaming
  MLMC (its docstring has the formula; five more per pair, and a chunk that comes next), nothing for naive and MLMC;
- temporaries. Levels follow each other and share memory, so the largest level counts. It stores the states and
  increments of its paths at every time step. The backward pass recomputes one time step at a time (two of streaming
  MLMC), and stores what its derivative needs, for all paths that take the step together: this is what grows with the
  width of the network.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import dmlmc
from dmlmc.experiments import hedging
from dmlmc.experiments.streaming_costs import estimator_of
from dmlmc.schedule import DELAYED, MLMC, NAIVE, STREAMING
from tests.benchmarks import problem, results

BASE = {"max_level": 2, "level0_samples": 64, "width": 32, "samples_at_once": None}
CASES: list[dict[str, Any]] = [
    {},
    {"max_level": 6},
    {"level0_samples": 256},
    {"level0_samples": 256, "samples_at_once": 64},
    {"width": 128},
]
METHODS = (NAIVE, MLMC, DELAYED, STREAMING)
# Buffers are assigned before LLVM runs. On a CPU the bytes are the same without its passes, in half the time.
WITHOUT_LLVM = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def bytes_of(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def params_of(width: int) -> hedging.HedgingParams:
    network = eqx.nn.MLP(2, "scalar", width, 2, jax.nn.silu, jax.nn.sigmoid, key=jr.key(1))
    return eqx.tree_at(lambda params: params.network, problem.PARAMS, network)


def lowered(estimator: dmlmc.GradientEstimator, params: Any) -> Any:
    """One step as a program that is not compiled yet. It reuses the memory of the old state, as a training run does."""
    leaves, static = eqx.partition(params, eqx.is_inexact_array)

    def step(leaves, state, step, key):
        return estimator.estimate(eqx.combine(leaves, static), state, step, key)

    return jax.jit(step, donate_argnums=1).lower(leaves, estimator.init(params), jnp.array(0), problem.KEY)


def bytes_of_one_time_step(loss: dmlmc.SDELoss, params: Any) -> int:
    """What the derivative of one time step of one path needs: that of three paths without that of two."""
    leaves, static = eqx.partition(params, eqx.is_inexact_array)

    def derivative(leaves, states):
        def advance(leaves, states):
            simulator = loss.simulator(eqx.combine(leaves, static), None, loss.dtype)
            _, carried = simulator.start(jnp.zeros(2), jnp.zeros((1, loss.noise_dim)))
            dw = jnp.ones(loss.noise_dim)
            return jax.vmap(lambda y: simulator.step((y, carried), 0.0, 0.1, dw)[0])(states)

        return jax.vjp(advance, leaves, states)[1]

    two, three = (jax.eval_shape(derivative, leaves, jnp.ones((paths, len(loss.y0)))) for paths in (2, 3))
    return bytes_of(three) - bytes_of(two)


def predicted(method: str, plan: dmlmc.Plan, loss: dmlmc.SDELoss, params: Any) -> dict[str, int]:
    """Bytes of state and temporaries by theory."""
    one, item = bytes_of_one_time_step(loss, params), jnp.dtype(loss.dtype).itemsize
    state, increment, chunk = item * len(loss.y0), item * loss.noise_dim, loss.coarsest_steps // 2

    def of_level(level, samples, coupled):
        # A fine step advances all fine paths and half of the coarse ones, and stores the states of both.
        together, states, increments = (1.5, 2, 1.5) if coupled else (1, 1, 1)
        stored = loss.coarsest_steps * 2**level * (states * state + increments * increment)
        chunks = math.ceil(samples / (loss.at_once or samples))
        return math.ceil(samples / chunks) * (together * one + stored)

    if method == NAIVE:
        held, temporaries = 0, of_level(plan.max_level, plan.naive_samples(), False)
    elif method == STREAMING:
        pairs, kept = sum(plan.samples[1:]), sum(n << level for level, n in enumerate(plan.samples) if level)
        groups = math.ceil(pairs / (loss.at_once or pairs))
        held = jnp.array(0).nbytes + 2 * state * (chunk * kept + (chunk + 5) * pairs)
        # An iteration is two fine steps and a coarse one of a pair, or two of level 0.
        of_pairs = pairs * (3 * one + 2 * chunk * state)
        temporaries = (of_pairs + plan.samples[0] * (2 * one + chunk * state)) / groups
    else:
        plan = plan.without_delay() if method == MLMC else plan
        held = sum(period > 1 for period in plan.periods) * (bytes_of(eqx.filter(params, eqx.is_inexact_array)) + 1)
        temporaries = max(of_level(level, n, level > 0) for level, n in enumerate(plan.samples))
    return {"predicted_state": held, "predicted_temporaries": round(temporaries)}


def measure(scale: int = 1, report=print) -> dict[str, Any]:
    """A row for each case and method. Traced one by one, compiled side by side."""
    rows, programs = [], []
    for case in CASES:
        sizes = BASE | case
        sizes["level0_samples"] *= scale
        sizes["samples_at_once"] = sizes["samples_at_once"] and sizes["samples_at_once"] * scale
        loss, params = hedging.hedging_loss(samples_at_once=sizes["samples_at_once"]), params_of(sizes["width"])
        plan = dmlmc.plan(problem.RATES, sizes["max_level"], level0_samples=sizes["level0_samples"])
        parameters = bytes_of(eqx.filter(params, eqx.is_inexact_array))
        for method in METHODS:
            estimator = estimator_of(method, loss, plan)
            programs.append(lowered(estimator, params))
            row = {"method": method, **sizes, "parameters": parameters, "state": bytes_of(estimator.init(params))}
            rows.append(row | predicted(method, plan, loss, params))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        analyses = pool.map(lambda one: one.compile(compiler_options=WITHOUT_LLVM).memory_analysis(), programs)
        for row, found in zip(rows, analyses, strict=True):
            row |= _counted(found)
            report(
                f"{row['method']:15} l_max {row['max_level']}, N_0 {row['level0_samples']:4}, width {row['width']:3}, "
                f"at once {row['samples_at_once'] or 'all'}: state {row['state']} ({row['predicted_state']}), "
                f"temporaries {row['temporaries']} ({row['predicted_temporaries']}), peak {row['peak']}",
                flush=True,
            )
    return {"memory": {"unit": "bytes", "machine": results.machine(scale), "rows": rows}}


def _counted(found: Any) -> dict[str, int]:
    argument, output, temp, alias = (
        getattr(found, f"{name}_size_in_bytes") for name in ("argument", "output", "temp", "alias")
    )
    counts = {"arguments": argument, "outputs": output, "temporaries": temp, "reused": alias}
    return counts | {"peak": argument + output + temp - alias}


if __name__ == "__main__":
    results.save(measure(results.scale_from(None, str(__doc__))), keep=True)
