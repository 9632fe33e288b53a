"""Notebooks as jobs: select them, skip those that are up to date, run several in parallel."""

import json
import os
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from dmlmc._internal.files import write
from dmlmc.reproduce import copies, notebooks
from dmlmc.reproduce.profiles import PAPER, PROFILES

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


class Job:
    """One notebook at one profile: its parameters, its executed copy, and a JSON stamp of its last finished run."""

    def __init__(self, notebook: Path, profile: str, overrides: dict[str, Any]):
        defaults = notebooks.defaults(notebook)
        self.notebook, self.name = notebook, notebook.stem
        self.parameters = dict(PAPER.get(self.name, {})) if profile == "paper" else {}
        own = {name: value for name, value in overrides.items() if name in defaults}
        self.parameters |= own
        elsewhere = Path(own.get("output", PROFILES[profile])) != Path(PROFILES[profile])
        self.executed = notebook.parent / "executed" / ("elsewhere" if elsewhere else profile) / notebook.name
        self.size = "with other parameters" if own else copies.SIZES[profile]
        self.stamp = self.executed.with_suffix(".json")
        output = {**defaults, **self.parameters}.get("output")
        self.output = None if output is None else notebook.parent / output

    def last_run(self) -> dict[str, Any] | None:
        """The stamp of the last finished run, or None if its inputs have changed or a file it wrote is missing."""
        if not self.stamp.exists() or not self.executed.exists():
            return None
        stamp = json.loads(self.stamp.read_text())
        current = stamp.get("inputs") == notebooks.hash_of_inputs(self.notebook, self.parameters)
        current &= stamp["inputs"] == copies.run_of(self.executed).get("inputs")
        return stamp if current and all((self.notebook.parent / path).exists() for path in stamp["outputs"]) else None

    def start(self, label: str, row: int) -> None:
        """Start to run the notebook, with its progress bar in the given row of the terminal."""
        self.stamp.unlink(missing_ok=True)
        for torn in self.executed.parent.glob(f".*.{self.name}.*"):  # left by a run that was killed while writing
            torn.unlink(missing_ok=True)
        self.inputs, self.before = notebooks.hash_of_inputs(self.notebook, self.parameters), self._written()
        self.commit = notebooks.commit_of_inputs(self.notebook)
        self.running = notebooks.Running(self.notebook, self.executed, self.parameters, label, row)

    def finish(self) -> notebooks.Outcome:
        """Wait for the run to end. Write its stamp if it succeeded. A run without a stamp counts as failed."""
        outcome = self.running.outcome()
        if outcome.failure is None:
            # Notebooks that run in parallel may list each other's files. Then a rerun may run too many, never too few.
            outputs = [path for path, when in self._written().items() if self.before.get(path) != when]
            flags = os.environ.get("XLA_FLAGS", "").strip()
            how = {"inputs": self.inputs, "commit": self.commit, "xla_flags": flags}
            stamp = {**how, **outcome._asdict(), "outputs": sorted(outputs)}
            try:
                self.present(stamp)
                write(self.stamp, json.dumps(stamp, indent=1) + "\n")
            except (OSError, ValueError) as error:  # a full disk, or edited code; the other notebooks can still run
                return outcome._replace(failure=f"writing {self.stamp}: {error}")
        return outcome

    def present(self, stamp: dict[str, Any]) -> None:
        """Rewrite the executed copy for readers, with the notebook's text of today."""
        copies.present(self.notebook, self.executed, self.parameters, self.size, stamp)

    def _written(self) -> dict[str, int]:
        files = [] if self.output is None else [path for path in self.output.rglob("*") if path.is_file()]
        return {os.path.relpath(path, self.notebook.parent): path.stat().st_mtime_ns for path in files}


def jobs(profile: str, only: Sequence[str] = (), overrides: dict[str, Any] | None = None) -> list[Job]:
    """The notebooks to run: all of them, or those whose names start with one of ``only``."""
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


def run(selected: Sequence[Job], *, force: bool = False, in_place: bool = False, at_once: int = 1) -> dict[str, str]:
    """Run the jobs that are not up to date, ``at_once`` in parallel, and return the failures by notebook.

    The other notebooks still run after a failure. ``in_place`` writes the cleaned outputs into the notebooks.
    """
    failures: dict[str, str] = {}
    running: dict[int, Job] = {}  # by the row of the progress bar
    try:
        for count, job in enumerate(selected, start=1):
            last = None if force else job.last_run()
            if last is not None:
                job.present(last)
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
    """Wait until one of the running notebooks ends, remove it from ``running``, and return its failure, if any."""
    ended = wait([job.running.receiver for job in running.values()])
    row = next(row for row, job in running.items() if job.running.receiver in ended)
    outcome = running[row].finish()
    job, cost = running.pop(row), _cost(outcome.seconds, outcome.peak_bytes)
    if outcome.failure is None:
        _report(job, cost, in_place)
        return {}
    _report(job, f"FAILED after {cost}, in {outcome.failure}\n  outputs so far: {job.executed}", in_place=False)
    return {job.name: outcome.failure}


def _report(job: Job, report: str, in_place: bool) -> None:
    if in_place:
        copies.refresh(job.notebook, job.executed)
    print(f"{job.name}: {report}", flush=True)


def _cost(seconds: float, peak_bytes: int) -> str:
    return f"{seconds:.0f} s, {peak_bytes / 2**20:.0f} MiB at its peak"
