"""``make bench``: measure, print tables and write ``figures/data/benchmarks.json``. Takes fifteen minutes.

Absolute times depend on the machine and its load. Compare ratios within one run.
"""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp

from dmlmc._internal.files import write
from dmlmc.calibration.timing import in_turn
from tests.benchmarks import latency, peers, problem, torch_peer

OUTPUT = Path(__file__).parents[2] / "figures" / "data" / "benchmarks.json"
FEW = 4  # paths at level 0 in the latency-bound regime
COMPARED = {  # key in the file: the other implementation, and which of ours
    "against_diffrax": ("diffrax.diffeqsolve", "dmlmc"),
    "against_scan": ("lax.scan", "dmlmc"),
    "against_diffrax_any_sde": ("diffrax.diffeqsolve", "dmlmc, any SDE"),
    "against_scan_any_sde": ("lax.scan", "dmlmc, any SDE"),
    "against_diffrax_step_any_sde": ("dmlmc, diffrax's Milstein", "dmlmc, any SDE"),
}


def matmul_rate(size=1024):
    """Floating point operations per second of a large matrix product, as the best this machine can do."""
    left = jnp.ones((size, size))
    product, _ = problem.compiled(jnp.matmul, left, left)
    return 2 * size**3 / in_turn({"matmul": lambda: product(left, left)}).seconds["matmul"]


def regimes():
    """Seconds per step: few paths and many levels, the experiment's batch, and l_max = 6 against the batch."""
    settings = {
        "latency_bound": [(level, FEW) for level in range(2, 11)],
        "compute_bound": [(level, 512) for level in (2, 4, 6)],
        "against_samples": [(6, samples) for samples in (16, 64, 256)],
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


def gradients():
    """Each gradient in every implementation, the ratios, and how close ours is to the matmul rate."""
    print("\ngradients at the experiment's settings", flush=True)
    measured = peers.measure()
    whole = peers.whole_programs()
    found: dict = {"gradients": measured, "whole_program_compile_seconds": whole}
    for key, (way, ours) in COMPARED.items():
        found[key] = ratio = peers.ratios(measured, whole, way, ours)
        levels = ", ".join(f"{value:.1f}" for value in ratio["levels"].values())
        print(f"{way} over {ours}: naive {ratio['naive']:.1f}, levels {levels}, compile {ratio['compile']:.1f}")
    if torch_peer.INSTALLED:
        _, level, samples, _ = next(iter(peers.cases()))
        found["against_torchsde"] = {"naive, Euler": torch_peer.ratio(level, samples, problem.KEY)}
        print(f"torchsde over ours, naive, Euler: {found['against_torchsde']['naive, Euler']:.1f}")
    else:
        print("torchsde is not installed: left out (pip install torchsde into .venv to add it)")
    rate, operations = matmul_rate(), peers.floating_point_operations()
    found["floor"] = {
        name: {"flops": count, "share_of_matmul_rate": count / rate / measured[name]["dmlmc"]["seconds"]}
        for name, count in operations.items()
    }
    shares = {name: f"{one['share_of_matmul_rate']:.0%}" for name, one in found["floor"].items()}
    print("share of the matmul rate:", shares)
    return found | {"matmul_flops_per_second": rate}


def main():
    load = os.getloadavg()[0]
    results = regimes() | gradients() | {"chain": latency.chain(), "parts": latency.parts(6, FEW)}
    spreads = [
        (max(one["repeats"]) - min(one["repeats"])) / one["seconds"]
        for regime in ("latency_bound", "compute_bound", "against_samples")
        for entry in results[regime].values()
        for one in entry["methods"]
    ]
    results["spread"] = {"median": sorted(spreads)[len(spreads) // 2], "largest": max(spreads)}
    results["versions"] = {name: version(name) for name in ("jax", "diffrax", "equinox")}
    results["machine"] = {"processor": platform.machine(), "cores": os.cpu_count(), "load_before": load}
    results["machine"] |= {"device": jax.devices()[0].device_kind}
    write(OUTPUT, json.dumps(results, indent=1) + "\n")
    print(f"\nspread of the repeats: median {results['spread']['median']:.0%}; written to {OUTPUT.name}")


if __name__ == "__main__":
    main()
