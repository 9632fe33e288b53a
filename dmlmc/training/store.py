"""The checkpoint of a training run: what identifies the run, when it is read and who writes it."""

from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np

from dmlmc.devices import gather
from dmlmc.estimators import GradientEstimator
from dmlmc.training.checkpoint import FILE_NAME, JAX, load, save
from dmlmc.training.first_step import Numbers
from dmlmc.training.program import Program, digest
from dmlmc.training.record import Record
from dmlmc.training.step import Run


class Store:
    """The checkpoint of a run, in a directory that all its processes can read. Without a directory it does nothing."""

    def __init__(
        self,
        name: str,
        directory: Path | None,
        program: Program,
        estimator: GradientEstimator,
        evaluate_every: int,
        beginning: Record,
    ):
        self.name, self.directory, self.program = name, directory, program
        self.evaluate_every, self.beginning = evaluate_every, beginning
        self._numbers: Numbers | None = None
        if directory is not None:
            first = np.arange(1024)  # costs show the periods, which the first step does not
            costs = [np.broadcast_to(np.asarray(cost(first), float), 1024) for cost in (estimator.work, estimator.span)]
            versions = {"dmlmc version": version("dmlmc"), JAX: jax.__version__, "method": estimator.method}
            rest = {"evaluate_every": str(evaluate_every), "work or span of a step": digest(costs)}
            self.identity = {**versions, **program.fingerprints(), **rest}

    def load(self, steps: int) -> tuple[Run, Record]:
        """The run and its record as the checkpoint has them, or a run at its start."""
        if self.directory is None:
            return self.program.initial, self.beginning
        self.program.values(0)  # barrier: wait for pending checkpoint writes
        seen = self.program.values((self.directory / FILE_NAME).exists())
        if seen.min() != seen.max():
            raise ValueError(f"{self.name}: directory must be one that all processes can read, got {self.directory}.")
        found = load(self.directory, self.identity, self.program.initial, self._first_step)
        self._first_step()  # now, because the memory of the start is reused
        if found is None:
            return self.program.initial, self.beginning
        record = Record.from_arrays(found[1], self.beginning.start, self.evaluate_every)
        if record.step > steps:
            raise ValueError(
                f"{self.name}: steps must be at least {record.step}, where the run in {self.directory} is already, "
                f"got {steps}."
            )
        return found[0], record

    def save(self, run: Run, record: Record) -> None:
        """Write the checkpoint, from the leading process."""
        if self.directory is not None:
            run = gather(run)
            if self.program.leads:
                save(self.directory, self.identity, run, record.arrays(), self._numbers)

    def _first_step(self) -> Numbers:
        if self._numbers is None:
            self._numbers = self.program.first_step()
        return self._numbers
