"""What ``train`` and ``sweep`` share: the loop over chunks of steps, with evaluations, callbacks and checkpoints."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key, PyTree

from dmlmc._internal import checks
from dmlmc._internal.progress import progress_bar
from dmlmc.devices import SEEDS, check_mesh, gather
from dmlmc.estimators import GradientEstimator
from dmlmc.held import all_computed
from dmlmc.schedule import cumulative
from dmlmc.training import divergence
from dmlmc.training.checkpoint import alone
from dmlmc.training.evaluation import Evaluation, Start, evaluated, without_seeds
from dmlmc.training.program import Program, copied
from dmlmc.training.record import Record
from dmlmc.training.step import Run
from dmlmc.training.store import Store

_TICK = 0.25  # seconds: chunks grow until one takes this long, so that the progress bar moves and costs little


class Settings(NamedTuple):
    """The options that mean the same in ``train`` and ``sweep``, and the name of the one that was called."""

    name: str
    steps: int
    validation: Callable[[Any], Any] | None
    metrics: Callable[[Any], Any] | None
    callback: Callable[[Evaluation], Any] | None
    evaluate_every: int
    directory: Path | None
    checkpoint_every: int
    chunk_steps: int | None
    progress: bool
    on_divergence: str
    one_seed: bool  # callbacks then see no axis over seeds
    seeds_at_once: int | None

    def next_stop(self, step: int, chunk: int) -> int:
        """The step at which the compiled program returns to Python next."""
        multiples = (step - step % every + every for every in (self.evaluate_every, self.checkpoint_every))
        return min(self.steps, step + chunk, *multiples)


def checked_settings(
    name: str,
    first: int,
    steps: int,
    *,
    validation: Any,
    metrics: Any,
    callback: Any,
    evaluate_every: Any,
    directory: Any,
    checkpoint_every: Any,
    chunk_steps: Any,
    progress: bool,
    on_divergence: str,
    one_seed: bool,
    seeds_at_once: Any,
) -> Settings:
    """The options of a user, checked and with their defaults filled in, for a run from step ``first``."""
    for option, function in (("validation", validation), ("metrics", metrics)):
        if function is not None:
            checks.function(f"{name}: {option}", function, "params")
    if callback is not None:
        checks.function(f"{name}: callback", callback, "info")

    def interval(option, value, default):
        return default if value is None else checks.integer(f"{name}: {option}", value, minimum=1)

    every = interval("evaluate_every", evaluate_every, max(1, (steps - first) // 50))
    saved = interval("checkpoint_every", checkpoint_every, every)
    directory = checks.directory(f"{name}: directory", directory)
    return Settings(
        name, steps, validation, metrics, callback, every, directory,
        max(1, steps) if directory is None else saved,
        interval("chunk_steps", chunk_steps, None), progress, on_divergence, one_seed,
        interval("seeds_at_once", seeds_at_once, None),
    )  # fmt: skip


class Driver:
    """One call of ``train`` or ``sweep``."""

    def __init__(
        self,
        estimator: GradientEstimator,
        optimiser: optax.GradientTransformation,
        start: Start,
        keys: Key[Array, " seeds"],
        settings: Settings,
        mesh: Mesh,
    ):
        self.estimator, self.start, self.settings = estimator, start, settings
        evaluate = evaluated(settings.name, settings.validation, settings.metrics)
        self.program = Program(
            estimator, optimiser, start, keys, evaluate=evaluate, mesh=mesh, seeds_at_once=settings.seeds_at_once
        )
        # A plan with levels that are new computes them at its first step: count it as one at which all are refreshed.
        self.costs_of_first = start.step if all_computed(gather(self.program.initial.estimator_state)) else 0

    def run(self) -> tuple[PyTree, Record]:
        """The trained parameters, with an axis over seeds, and the record."""
        settings, program = self.settings, self.program
        beginning = Record.at(self.start.step, self.start.seconds, len(program.keys))
        directory, every = settings.directory, settings.evaluate_every
        store = Store(settings.name, directory, program, self.estimator, every, beginning)
        with alone(store.directory if program.leads else None):
            run, self.record = store.load(settings.steps)
            divergence.check_loaded(self.estimator.method, self.record, settings.on_divergence)
            program.compile()
            run = self._loop(run, store)
        return program.params(run), self.record

    def _loop(self, run: Run, store: Store) -> Run:
        """Advance a run to its last step, and note, save and show what happens on the way."""
        settings, program, record, method = self.settings, self.program, self.record, self.estimator.method
        chunk = settings.chunk_steps or 1
        shown = settings.progress and program.leads
        with progress_bar(total=settings.steps, initial=record.step, desc=method, unit="step", shown=shown) as bar:
            # A run that goes on from an evaluated step asks again whether it should.
            stopped = self._call_back(run) if record.is_evaluated() else self._evaluate(run)
            if stopped:
                store.save(run, record)
            while (first := record.step) < settings.steps and not stopped:
                last = settings.next_stop(first, chunk)
                began = time.perf_counter()
                run = program.advance(run, first, last)
                elapsed = float(program.values(time.perf_counter() - began)[0])  # all processes use one clock
                record.advance(last, elapsed)
                divergence.note_gradients(method, record, np.asarray(gather(run.diverged_at)), self.policy)
                stopped = self._evaluate(run)
                if stopped or last == settings.steps or last % settings.checkpoint_every == 0:
                    store.save(run, record)
                bar.update(last - first)
                if settings.validation is not None:
                    bar.set_postfix(loss=f"{record.mean_loss():.4g}", refresh=False)
                if settings.chunk_steps is None and elapsed < _TICK and last == first + chunk:
                    chunk *= 2
        return run

    @property
    def policy(self) -> str:
        """What to do about seeds that diverge. One process warns, all raise."""
        chosen = self.settings.on_divergence
        return divergence.SILENT if chosen == divergence.RECORD and not self.program.leads else chosen

    def _evaluate(self, run: Run) -> bool:
        """Evaluate the present step if it is due, and say whether the run ends with it."""
        if not self.record.is_due(self.settings.evaluate_every, self.settings.steps):
            return False
        losses, metrics = self.program.evaluate(run)
        if self.settings.validation is not None:
            divergence.note_losses(self.estimator.method, self.record, losses, self.policy)
        self.record.add(losses, metrics)
        return self._call_back(run)

    def _call_back(self, run: Run) -> bool:
        nothing_left = self.record.all_diverged() and self.settings.on_divergence != divergence.SILENT
        if self.settings.callback is None:
            return nothing_left
        answer = self.settings.callback(self._info(run))
        stops = answer is not None and checks.truth(f"{self.settings.name}: what callback returns", answer)
        return bool(self.program.values(stops)[0]) or nothing_left

    def _info(self, run: Run) -> Evaluation:
        record, copy = self.record, copied(gather(run))  # the memory of the run itself is reused at the next step
        work, span = (float(cost[-1]) for cost in self.costs([record.step]))
        info = Evaluation(
            step=record.step,
            params=self.program.params(copy),
            loss=record.losses[-1].copy(),
            metrics={name: values.copy() for name, values in record.metrics[-1].items()},
            work=work,
            span=span,
            seconds=record.seconds,
            optimiser_state=copy.optimiser_state,
            estimator_state=copy.estimator_state,
        )
        return without_seeds(info) if self.settings.one_seed else info

    def costs(self, steps: list[int]) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
        """Work and span spent until these steps."""
        first, last = self.start.step, max(steps)

        def spent(before, per_step):
            def from_start(step):
                return per_step(np.where(step == 0, self.costs_of_first, first + step))

            return (before + cumulative(from_start, last - first))[np.asarray(steps) - first]

        return spent(self.start.work, self.estimator.work), spent(self.start.span, self.estimator.span)


def mesh_for(name: str, given: Mesh | None, of_estimator: Mesh | None, seeds: int, default: Callable[[], Mesh]) -> Mesh:
    """The mesh to run on: the one given, that of the estimator, or the default."""
    mesh = of_estimator if given is None else check_mesh(name, given)
    if mesh is None:
        return default()
    if of_estimator not in (None, mesh):
        raise ValueError(
            f"{name}: mesh must be that of the estimator if both are given, got {mesh} and {of_estimator}."
        )
    if seeds % mesh.shape.get(SEEDS, 1):
        raise ValueError(
            f"{name}: mesh must share the seeds equally, got {mesh.shape[SEEDS]} along {SEEDS!r} for {seeds} seeds "
            "(one key per seed)."
        )
    return mesh
