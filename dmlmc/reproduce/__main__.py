"""Run the notebooks headlessly, in order: ``python -m dmlmc.reproduce --profile paper``.

Executed copies go to ``notebooks/executed/<profile>/``, figures and their data to ``figures/`` or ``figures/quick/``.
A notebook is skipped if nothing changed since its last finished run: its code, its parameters, the files it reads, the
package and the lock. Any parameter of a notebook can be set, as in ``--seeds 3 --max-level 4``; it goes to every
selected notebook that has it.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from dmlmc._internal.checks import integer
from dmlmc._internal.files import write
from dmlmc.reproduce import notebooks, summary
from dmlmc.reproduce.profiles import AT_ONCE, PAPER, PROFILES

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


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

    def start(self, label: str, row: int) -> None:
        """Begin to execute the notebook, with its bar in a row of the screen."""
        self.stamp.unlink(missing_ok=True)
        self.inputs, self.before = notebooks.fingerprint(self.notebook, self.parameters), self._written()
        self.running = notebooks.Running(self.notebook, self.executed, self.parameters, label, row)

    def finish(self) -> notebooks.Outcome:
        """Wait for the end, and stamp the run if it was a good one."""
        outcome = self.running.outcome()
        if outcome.failure is None:
            # Of notebooks side by side, one may claim the other's files: then one too many runs again, never too few.
            outputs = [path for path, when in self._written().items() if self.before.get(path) != when]
            stamp = {"fingerprint": self.inputs, **outcome._asdict(), "outputs": sorted(outputs)}
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


def reproduce(
    selected: Sequence[Job], *, force: bool = False, in_place: bool = False, at_once: int = 1
) -> dict[str, str]:
    """Run what is not up to date, in order, ``at_once`` notebooks side by side, and return the failures by notebook.

    A failure does not stop the notebooks after it. ``in_place`` puts the cleaned outputs into the notebooks themselves.
    """
    failures: dict[str, str] = {}
    running: dict[int, Job] = {}  # by the row of its bar
    try:
        for count, job in enumerate(selected, start=1):
            last = None if force else job.last_run()
            if last is not None:
                _report(job, f"up to date, {_cost(last['seconds'], last['peak_bytes'])} when it ran", in_place)
                continue
            if len(running) == at_once:
                failures |= _finish_one(running, in_place)
            row = min(set(range(at_once)) - set(running))
            job.start(f"{count}/{len(selected)} {job.name}", row)
            running[row] = job
        while running:
            failures |= _finish_one(running, in_place)
    finally:
        for job in running.values():
            job.running.stop()
    return failures


def _finish_one(running: dict[int, Job], in_place: bool) -> dict[str, str]:
    """Wait until one of the running notebooks ends, take it from them, and return its failure, if it failed."""
    ended = wait([job.running.receiver for job in running.values()])
    row = next(row for row, job in running.items() if job.running.receiver in ended)
    outcome = running[row].finish()
    job, cost = running.pop(row), _cost(outcome.seconds, outcome.peak_bytes)
    if outcome.failure is None:
        _report(job, cost, in_place)
        return {}
    _report(job, f"FAILED after {cost}, in {outcome.failure}\n  what was done is in {job.executed}", in_place=False)
    return {job.name: outcome.failure}


def _report(job: Job, report: str, in_place: bool) -> None:
    if in_place:
        notebooks.refresh(job.notebook, job.executed)
    print(f"{job.name}: {report}", flush=True)


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
    parser.add_argument(
        "--at-once",
        type=int,
        metavar="N",
        help=f"notebooks side by side (default: {AT_ONCE['quick']} if quick, else 1)",
    )
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
        at_once = AT_ONCE[options.profile] if options.at_once is None else options.at_once
        integer("reproduce: --at-once", at_once, minimum=1)
    except ValueError as error:
        parser.error(str(error).removeprefix("reproduce: "))
    if options.in_place and (options.profile != "quick" or overrides):
        parser.error("--in-place is for the quick profile with the notebooks' own parameters")
    if options.list:
        print(listing(selected))
        return 0
    try:
        failures = reproduce(selected, force=options.force, in_place=options.in_place, at_once=at_once)
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
