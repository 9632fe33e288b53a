"""Where results go, and what every benchmark says about its machine."""

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from dmlmc._internal.checks import integer
from dmlmc._internal.files import write

OUTPUT = Path(__file__).parents[2] / "figures" / "data" / "benchmarks.json"
RUNS = OUTPUT.with_name("benchmark_runs.json")  # the ratios of every run, which the next one does not overwrite


def scale_from(arguments: list[str] | None, description: str) -> int:
    """The factor of all large batches, from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--scale", type=int, default=1, help="factor of all large batches, for larger machines")
    return integer("benchmarks: --scale", parser.parse_args(arguments).scale, minimum=1)


def machine(scale: int) -> dict[str, Any]:
    """What ran, with which sizes and versions."""
    devices = jax.devices()
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "platform": devices[0].platform,
        "device": devices[0].device_kind,
        "devices": len(devices),
        "scale": scale,
        "versions": {name: version(name) for name in ("jax", "diffrax", "equinox")},
    }


def save(found: dict[str, Any], *, keep: bool) -> None:
    """Write the results. With ``keep``, those of other benchmarks in the file stay."""
    before = json.loads(OUTPUT.read_text()) if keep and OUTPUT.exists() else {}
    write(OUTPUT, json.dumps(before | found, indent=1) + "\n")
