"""Run the notebooks headlessly, in order: ``python -m dmlmc.reproduce --profile paper``.

Executed copies go to ``notebooks/executed/<profile>/``, figures and their data to ``figures/`` or ``figures/quick/``.
A notebook whose code, package, parameters and lock are those of its last finished run is skipped. Any parameter of a
notebook can be set, as in ``--seeds 3 --max-level 4``; it goes to every selected notebook that has it.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmlmc import notebooks, summary
from dmlmc._files import write

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
PROFILES = {"quick": "../figures/quick", "paper": "../figures"}  # and where each one's figures go

# A notebook's own default parameters are its quick profile; these are the sizes of the paper.
PAPER: dict[str, dict[str, Any]] = {
    "00_start_here": {"profile": "paper", "output": "../figures"},
    "01_assumptions": {
        "profile": "paper",
        "max_level": 6,
        "level0_samples": 512,
        "stops": [0, 10, 50, 200, 500, 1000],
        "samples": 2048,
        "output": "../figures",
    },
    "02_theorem": {
        "profile": "paper",
        "run_cases": [[1, 1.0, 16], [3, 0.5, 64], [3, 2.0, 16], [5, 1.0, 64]],
        "run_steps": [10, 100, 400],
        "seeds": 100,
        "exact_levels": [0, 2, 4, 6, 8],
        "exact_steps": [10, 100, 1000],
        "trade_levels": [2, 4, 6, 8],
        "proof_level": 6,
        "proof_steps": 4000,
        "proof_seeds": 20,
        "map_level": 3,
        "map_points": 60,
        "map_runs": [1.5, 2.5],
        "hedging_level": 6,
        "hedging_samples": 512,
        "hedging_steps": 100,
        "output": "../figures",
    },
    "03_deep_hedging": {
        "profile": "paper",
        "seeds": 10,
        "max_level": 6,
        "level0_samples": 512,
        "steps": 800,
        "delayed_steps": 4000,
        "evaluate_every": 80,
        "validation_paths": 2048,
        "floor_paths": 65536,
        "final_paths": 8192,
        "output": "../figures",
    },
    "04_wall_clock": {
        "profile": "paper",
        "levels": [2, 4, 6],
        "repeats": 5,
        "output": "../figures",
    },
    "05_your_own_sde": {
        "profile": "paper",
        "max_level": 3,
        "level0_samples": 64,
        "steps": 400,
        "seeds": 4,
        "sgd_rates": [0.1, 0.2, 0.4],
        "momentum_rates": [0.01, 0.02, 0.04],
        "adam_rates": [0.005, 0.01, 0.02],
        "validation_paths": 512,
        "budget": 30_000,
        "period_factors": [1, 16],
        "momenta": [0.0, 0.3, 0.5, 0.7, 0.9],
        "output": "../figures",
    },
}


class Job:
    """One notebook at one profile: its parameters, its executed copy, and the stamp of its last finished run."""

    def __init__(self, notebook: Path, profile: str, overrides: dict[str, Any]):
        defaults = notebooks.defaults(notebook)
        self.notebook, self.name = notebook, notebook.stem
        self.parameters = dict(PAPER.get(self.name, {})) if profile == "paper" else {}
        self.parameters |= {name: value for name, value in overrides.items() if name in defaults}
        self.executed = notebook.parent / "executed" / profile / notebook.name
        self.stamp = self.executed.with_suffix(".json")
        output = {**defaults, **self.parameters}.get("output")
        self.output = None if output is None else notebook.parent / output

    def last_run(self) -> dict[str, Any] | None:
        """The stamp of the last finished run, if its inputs are today's and all it wrote is still there."""
        if not self.stamp.exists() or not self.executed.exists():
            return None
        stamp = json.loads(self.stamp.read_text())
        current = stamp["fingerprint"] == notebooks.fingerprint(self.notebook, self.parameters)
        return stamp if current and all((self.notebook.parent / path).exists() for path in stamp["outputs"]) else None

    def run(self, label: str) -> notebooks.Outcome:
        """Execute the notebook, and stamp the run if it finished."""
        self.stamp.unlink(missing_ok=True)
        inputs, before = notebooks.fingerprint(self.notebook, self.parameters), self._written()
        outcome = notebooks.execute(self.notebook, self.executed, self.parameters, label)
        if outcome.failure is None:
            outputs = [path for path, when in self._written().items() if before.get(path) != when]
            stamp = {"fingerprint": inputs, **outcome._asdict(), "outputs": sorted(outputs)}
            write(self.stamp, json.dumps(stamp, indent=1) + "\n")
        return outcome

    def _written(self) -> dict[str, int]:
        files = [] if self.output is None else [path for path in self.output.rglob("*") if path.is_file()]
        return {os.path.relpath(path, self.notebook.parent): path.stat().st_mtime_ns for path in files}


def jobs(profile: str, only: Sequence[str] = (), overrides: dict[str, Any] | None = None) -> list[Job]:
    """The notebooks to run: all of them, or those whose names begin with one of ``only``."""
    if profile not in PROFILES:
        raise ValueError(f"reproduce: profile must be 'quick' or 'paper', got {profile!r}.")
    found = notebooks.numbered(NOTEBOOKS)
    for start in only:
        if not any(path.stem.startswith(start) for path in found):
            names = ", ".join(path.stem for path in found)
            raise ValueError(f"reproduce: only must begin the name of a notebook ({names}), got {start!r}.")
    chosen = [path for path in found if not only or path.stem.startswith(tuple(only))]
    known = {path.stem: list(notebooks.defaults(path)) for path in chosen}
    unknown = [name for name in overrides or {} if not any(name in names for names in known.values())]
    if unknown:
        listing = "\n".join(f"  {stem}: {', '.join(names)}" for stem, names in known.items())
        raise ValueError(
            f"reproduce: no selected notebook has the parameter {', '.join(unknown)}; they have\n{listing}"
        )
    return [Job(path, profile, overrides or {}) for path in chosen]


def reproduce(selected: Sequence[Job], *, force: bool = False, in_place: bool = False) -> dict[str, str]:
    """Run what is not up to date, one notebook after another, and return the failures by notebook.

    A failure does not stop the notebooks after it. ``in_place`` puts the cleaned outputs into the notebooks themselves.
    """
    failures = {}
    for count, job in enumerate(selected, start=1):
        last = None if force else job.last_run()
        if last is not None:
            report = f"up to date, {_cost(last['seconds'], last['peak_bytes'])} when it ran"
        else:
            outcome = job.run(f"{count}/{len(selected)} {job.name}")
            report = _cost(outcome.seconds, outcome.peak_bytes)
            if outcome.failure is not None:
                failures[job.name] = outcome.failure
                report = f"FAILED after {report}, in {outcome.failure}\n  what was done is in {job.executed}"
        if in_place and job.name not in failures:
            notebooks.refresh(job.notebook, job.executed)
        print(f"{job.name}: {report}", flush=True)
    return failures


def _cost(seconds: float, peak_bytes: int) -> str:
    return f"{seconds:.0f} s, {peak_bytes / 2**20:.0f} MiB at its peak"


def pairs(arguments: Sequence[str]) -> dict[str, Any]:
    """Parameters from a command line.

    >>> pairs(["--seeds", "3", "--max-level=4", "--output", "elsewhere"])
    {'seeds': 3, 'max_level': 4, 'output': 'elsewhere'}
    """
    found, rest = {}, list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("--") or not (equals or rest):
            raise ValueError(f"reproduce: a parameter must be given as --name value, got {name!r}.")
        found[name[2:].replace("-", "_")] = notebooks.literal(value if equals else rest.pop(0))
    return found


def command_line() -> argparse.ArgumentParser:
    """The options; what they do not know is taken for parameters of the notebooks."""
    parser = argparse.ArgumentParser(
        "python -m dmlmc.reproduce",
        description=__doc__,
        epilog="Any other --name value sets a parameter of the notebooks.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--profile", choices=PROFILES, default="paper", help="sizes of the runs (default: paper)")
    parser.add_argument("--only", action="append", default=[], metavar="03", help="this notebook; may be repeated")
    parser.add_argument("--force", action="store_true", help="run also what is up to date")
    parser.add_argument("--list", action="store_true", help="list the notebooks and their parameters, and run nothing")
    parser.add_argument("--in-place", action="store_true", help="put cleaned quick outputs into the notebooks")
    return parser


def listing(selected: Sequence[Job]) -> str:
    """Each notebook, whether it is up to date, and its parameters as they would be passed."""
    lines = []
    for job in selected:
        lines.append(f"{job.name}: {'to run' if job.last_run() is None else 'up to date'}")
        values = notebooks.defaults(job.notebook) | job.parameters
        lines += [f"    --{name.replace('_', '-')} {value!r}" for name, value in values.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 0, 1 if a notebook failed, 2 for wrong arguments, 130 after an interrupt."""
    parser = command_line()
    options, others = parser.parse_known_args(arguments)
    try:
        overrides = pairs(others)
        selected = jobs(options.profile, options.only, overrides)
    except ValueError as error:
        parser.error(str(error).removeprefix("reproduce: "))
    if options.in_place and (options.profile != "quick" or overrides):
        parser.error("--in-place is for the quick profile with the notebooks' own parameters")
    if options.list:
        print(listing(selected))
        return 0
    try:
        failures = reproduce(selected, force=options.force, in_place=options.in_place)
    except KeyboardInterrupt:
        print("\ninterrupted; what was finished stays, and the same command goes on from there", file=sys.stderr)
        return 130
    data = NOTEBOOKS / overrides.get("output", PROFILES[options.profile]) / "data"
    claims = summary.judge(data, failed=failures)
    write(data / "summary.json", summary.to_json(claims))
    print(f"\n{summary.as_text(claims)}\n\nwritten to {(data / 'summary.json').resolve()}", flush=True)
    for name, failure in failures.items():
        print(f"{name} FAILED in {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
