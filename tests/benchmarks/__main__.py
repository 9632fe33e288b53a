"""Measure, print a table and write ``figures/data/benchmarks.json``: ``make bench``.

Absolute times depend on the machine and on what else it is doing. The ratios within one run are what to compare.
"""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp

from dmlmc._files import write
from dmlmc.timing import in_turn
from tests.benchmarks import latency, peers, problem

OUTPUT = Path(__file__).parents[2] / "figures" / "data" / "benchmarks.json"
FEW = 4  # paths at level 0 in the latency-bound regime


def matmul_rate(size=1024):
    """Floating point operations per second of a large matrix product: what this machine can do at best."""
    left = jnp.ones((size, size))
    product, _ = problem.compiled(jnp.matmul, left, left)
    return 2 * size**3 / in_turn({"matmul": lambda: product(left, left)}).seconds["matmul"]


def regimes():
    found = {"latency_bound": {}, "compute_bound": {}}
    for regime, level0_samples, levels in (("latency_bound", FEW, range(2, 11, 2)), ("compute_bound", 512, (2, 4, 6))):
        print(f"\n{regime}: {level0_samples} paths at level 0\n l_max  MLMC/delayed (spans)  delayed/level 0 (spans)")
        for level in levels:
            entry = found[regime][str(level)] = latency.measure(level, level0_samples)
            print(
                f"{level:6}{entry['mlmc_over_delayed']:14.1f} ({entry['mlmc_over_delayed_by_span']:.1f})"
                f"{entry['delayed_over_level0']:18.1f} ({entry['delayed_over_level0_by_span']:.1f})",
                flush=True,
            )
    return found


def main():
    results = regimes()
    results["gradients"] = found = peers.measure()
    for key, way in (
        ("against_diffrax", "diffrax.diffeqsolve"),
        ("against_scan", "lax.scan"),
        ("against_diffrax_step", "dmlmc, diffrax's Milstein"),
    ):
        results[key] = ratio = peers.ratios(found, way)
        levels = ", ".join(f"{value:.1f}" for value in ratio["levels"].values())
        print(f"\n{way} over ours: naive {ratio['naive']:.1f}, levels {levels}, compile {ratio['compile']:.1f}")
    rate = matmul_rate()
    results["floor"] = {
        name: {"share_of_matmul_rate": entry["dmlmc"]["flops"] / rate / entry["dmlmc"]["seconds"]}
        for name, entry in found.items()
    }
    print(
        "\nshare of the matmul rate:",
        {name: f"{one['share_of_matmul_rate']:.1%}" for name, one in results["floor"].items()},
    )
    results["versions"] = {name: version(name) for name in ("jax", "diffrax", "equinox")}
    results["machine"] = {"processor": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    results["machine"] |= {"matmul_flops_per_second": rate, "device": jax.devices()[0].device_kind}
    write(OUTPUT, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
