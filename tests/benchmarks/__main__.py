"""``make bench``: measure, print tables and write ``figures/data/benchmarks.json``. Takes fifteen minutes.

Some ratios of the run are appended to ``figures/data/benchmark_runs.json``, to see how much runs differ.

Absolute times depend on the machine and its load. Compare ratios within one run. On a GPU, ``make bench SCALE=64``
multiplies all batches but the smallest by 64, so that it has enough to do.
"""

import os

import jax
import jax.numpy as jnp

from dmlmc.calibration.timing import in_turn
from dmlmc.experiments.wall_clock import append_run
from tests.benchmarks import environments, latency, memory, peers, problem, results, torch_peer

FEW, MANY = 4, 512  # paths at level 0 in the latency-bound regime, and in the experiment
COMPARED = {  # key in the file: the other implementation, and which of ours
    "against_diffrax": ("diffrax.diffeqsolve", "dmlmc"),
    "against_scan": ("lax.scan", "dmlmc"),
    "against_diffrax_any_sde": ("diffrax.diffeqsolve", "dmlmc, any SDE"),
    "against_scan_any_sde": ("lax.scan", "dmlmc, any SDE"),
    "against_diffrax_step_any_sde": ("dmlmc, diffrax's Milstein", "dmlmc, any SDE"),
}


def matmul_rate(sizes=(1024, 4096)):
    """Floating point operations per second of a large matrix product, as the best this machine can do.

    A GPU needs the larger product to be busy.
    """
    rates = []
    for size in sizes:
        left = jnp.ones((size, size))
        product, _ = problem.compiled(jnp.matmul, left, left)
        seconds = in_turn({"matmul": lambda product=product, left=left: product(left, left)}).seconds["matmul"]
        rates.append(2 * size**3 / seconds)
    return max(rates)


def regimes(scale):
    """Seconds per step: few paths and many levels, the experiment's batch, and l_max = 6 against the batch."""
    settings = {
        "latency_bound": [(level, FEW) for level in range(2, 11)],
        "compute_bound": [(level, MANY * scale) for level in (2, 4, 6)],
        "against_samples": [(6, samples * scale) for samples in (16, 64, 256)],
    }
    found = {}
    for regime, cases in settings.items():
        print(f"\n{regime}\n l_max    N  MLMC/delayed (spans)  delayed/level 0 (spans)")
        found[regime] = {}
        for level, samples in cases:
            # Short calls are more sensitive to other load on the machine, so they get more repeats.
            entry = latency.measure(level, samples, repeats=45 if samples == FEW and level <= 6 else 7)
            found[regime][str(samples if regime == "against_samples" else level)] = entry
            print(
                f"{level:6}{samples:5}{entry['mlmc_over_delayed']:14.1f} ({entry['mlmc_over_delayed_by_span']:.1f})"
                f"{entry['delayed_over_level0']:18.1f} ({entry['delayed_over_level0_by_span']:.1f})",
                flush=True,
            )
    return found


def gradients(scale):
    """Each gradient in every implementation, the ratios, and how close ours is to the matmul rate."""
    print("\ngradients at the experiment's settings", flush=True)
    cases = peers.cases(MANY * scale)
    rate, operations = matmul_rate(), peers.floating_point_operations(cases)
    measured = peers.measure(cases)
    whole = peers.whole_programs(cases)
    found: dict = {"gradients": measured, "whole_program_compile_seconds": whole}
    for key, (way, ours) in COMPARED.items():
        found[key] = ratio = peers.ratios(measured, whole, way, ours)
        levels = ", ".join(f"{value:.1f}" for value in ratio["levels"].values())
        print(f"{way} over {ours}: naive {ratio['naive']:.1f}, levels {levels}, compile {ratio['compile']:.1f}")
    if torch_peer.INSTALLED:
        _, level, samples, _ = cases[0]
        found["against_torchsde"] = {"naive, Euler": torch_peer.ratio(level, samples, problem.KEY)}
        print(f"torchsde over ours, naive, Euler: {found['against_torchsde']['naive, Euler']:.1f}")
    else:
        print("torchsde is not installed: left out (pip install torchsde into .venv to add it)")
    found["floor"] = {
        name: {"flops": count, "share_of_matmul_rate": count / rate / measured[name]["dmlmc"]["seconds"]}
        for name, count in operations.items()
    }
    shares = {name: f"{one['share_of_matmul_rate']:.0%}" for name, one in found["floor"].items()}
    print("share of the matmul rate:", shares)
    return found | {"matmul_flops_per_second": rate}


def main(arguments=None):
    scale, load = results.scale_from(arguments, str(__doc__)), os.getloadavg()[0]
    found = memory.measure(scale) | regimes(scale) | gradients(scale)
    found |= {"chain": latency.chain(1024 * scale), "parts": latency.parts(6, FEW)}
    if jax.default_backend() == "cpu":
        found["environments"] = environments.measure(scale)
    spreads = [
        (max(one["repeats"]) - min(one["repeats"])) / one["seconds"]
        for regime in ("latency_bound", "compute_bound", "against_samples")
        for entry in found[regime].values()
        for one in entry["methods"]
    ]
    found["spread"] = {"median": sorted(spreads)[len(spreads) // 2], "largest": max(spreads)}
    found["machine"] = results.machine(scale) | {"load_before": load}
    results.save(found, keep=False)
    append_run(results.RUNS, found)
    print(f"\nspread of the repeats: median {found['spread']['median']:.0%}")
    print(f"written to {results.OUTPUT.name} and {results.RUNS.name}")


if __name__ == "__main__":
    main()
