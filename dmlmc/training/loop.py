"""SGD with any gradient estimator and any optax optimiser: many seeds in one compiled program."""

import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array
from jax.sharding import Mesh
from tqdm import tqdm

from dmlmc._internal import array_checks, checks
from dmlmc.devices import gather
from dmlmc.estimators import GradientEstimator, check_estimator
from dmlmc.schedule import cumulative
from dmlmc.training import checkpoint
from dmlmc.training.program import Program, Run

_TICK = 0.25  # seconds: chunks grow until one takes this long, so that the progress bar moves but costs nothing


class DivergenceError(FloatingPointError):
    """A gradient or a validation loss stopped being finite; the message names the method, the seed and the step.

    >>> import dmlmc
    >>> loss = dmlmc.QuadraticLoss(dimension=1, L=1.0, M=1.0, rates=dmlmc.Rates(b=1.8, c=1.0, d=1.0))
    >>> try:
    ...     train(dmlmc.naive(loss, 0, 1), optax.sgd(1e30), jnp.ones(1), 9, jax.random.key(0), progress=False)
    ... except DivergenceError as error:
    ...     print(str(error).partition(" at")[0])
    naive, seed 0: the gradient is not finite
    """


def train(
    estimator: GradientEstimator,
    optimiser: optax.GradientTransformation,
    params: Any,
    steps: int,
    key: Array,
    *,
    params_per_seed: bool = False,
    validation: Callable[[Any], Array] | None = None,
    evaluate_every: int | None = None,
    directory: str | Path | None = None,
    checkpoint_every: int | None = None,
    chunk_steps: int | None = None,
    mesh: Mesh | None = None,
    progress: bool = True,
) -> tuple[Any, pd.DataFrame]:
    """Run ``steps`` steps of SGD and return the trained parameters and a record.

    - ``estimator``: from ``dmlmc.naive``, ``dmlmc.mlmc``, ``dmlmc.delayed_mlmc`` or of your own.
    - ``optimiser``: any of optax's that needs gradients and parameters only, such as ``optax.sgd(1e-3)``.
    - ``key``: one key for one run, or an array of keys, shape ``(seeds,)``, for several runs in one compiled program.
      The returned parameters then have a leading seed axis. A run depends on its own key and settings only.
    - ``params``: where every run starts, or, with ``params_per_seed=True``, one start per seed along a leading axis.
    - ``validation(params)``: a scalar to record at step 0, every ``evaluate_every`` steps (default: about 50 times)
      and at the end. ``lambda params: dmlmc.mean_loss(loss, params, level, samples, key)`` uses fixed noise.
    - ``directory``: where to keep a checkpoint, written every ``checkpoint_every`` steps (default: at each evaluation)
      and at the end. A run that finds one of its own there goes on from it, and ends as if never interrupted. Two
      runs at once cannot share a directory.
    - ``chunk_steps``: steps between two looks at the progress bar. Affects nothing else.
    - ``mesh``: devices to share the work, of one process or several, such as ``dmlmc.mesh(samples=4, seeds=2)``. The
      numbers are the same up to the order of summation. Seeds are shared equally, samples of any number. Default: that
      of the estimator, or else one device. With several processes each calls ``train`` alike and gets the same
      result; one of them writes the checkpoint, in a directory that all can read.
    - ``progress``: whether to show a bar.

    The record is a tidy DataFrame with the columns ``method, seed, step, work, span, seconds, loss``: work and span
    are cumulative, in level-0 units; seconds are those of training all seeds together, without compilation and
    evaluation.

    >>> import dmlmc
    >>> rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    >>> estimator = dmlmc.delayed_mlmc(loss, dmlmc.plan(rates, max_level=3, level0_samples=64))
    >>> params, record = train(
    ...     estimator, optax.sgd(0.1), jnp.ones(2), steps=40, key=jax.random.split(jax.random.key(0), 5),
    ...     validation=lambda params: loss.mean(params, 3), evaluate_every=20, progress=False,
    ... )
    >>> params.shape, len(record), record.columns.tolist()
    ((5, 2), 15, ['method', 'seed', 'step', 'work', 'span', 'seconds', 'loss'])
    """
    check_estimator("train: estimator", estimator)
    array_checks.parameters("train: params", params)
    array_checks.optimiser("train: optimiser", optimiser, params)
    if validation is not None:
        checks.function("train: validation", validation, "params")
    steps = checks.integer("train: steps", steps, minimum=0, maximum=np.iinfo(np.int32).max)
    evaluate_every = _interval("evaluate_every", evaluate_every, default=max(1, steps // 50))
    checkpoint_every = _interval("checkpoint_every", checkpoint_every, default=evaluate_every)
    chunk = _interval("chunk_steps", chunk_steps, default=1)
    keys = jnp.atleast_1d(array_checks.random_key("train: key", key, several=True))
    program = Program(
        estimator, optimiser, params, keys, params_per_seed=params_per_seed, validation=validation, mesh=mesh
    )
    journal = _Journal(estimator.method, program, evaluate_every, checks.directory("train: directory", directory))
    with checkpoint.alone(journal.directory if program.leads else None):
        run = journal.resume(steps)
        program.compile()
        shown = progress and program.leads
        with tqdm(total=steps, initial=journal.step, desc=estimator.method, unit="step", disable=not shown) as bar:
            journal.write(run, last=journal.step == steps, save=False)
            while (first := journal.step) < steps:
                stops = [steps, first + chunk, first - first % evaluate_every + evaluate_every]
                if directory is not None:
                    stops.append(first - first % checkpoint_every + checkpoint_every)
                last = min(stops)
                began = time.perf_counter()
                run = program.advance(run, first, last)
                elapsed = program.values(time.perf_counter() - began)[0]  # one clock for all: chunks stay alike
                journal.advance(run, last, elapsed)
                journal.write(run, last=last == steps, save=last % checkpoint_every == 0 or last == steps)
                bar.update(last - first)
                if program.validates:
                    bar.set_postfix(loss=f"{journal.mean_loss():.4g}", refresh=False)
                if chunk_steps is None and elapsed < _TICK and last == first + chunk:
                    chunk *= 2
    trained = program.params(run)
    if key.ndim == 0:
        trained = jax.tree.map(lambda leaf: leaf[0] if eqx.is_inexact_array(leaf) else leaf, trained)
    return trained, journal.record(estimator)


class _Journal:
    """Where a run stands, what was measured along the way, and the file that both are kept in."""

    def __init__(self, method: str, program: Program, evaluate_every: int, directory: Path | None):
        self.method, self.program, self.evaluate_every = method, program, evaluate_every
        self.directory = directory
        self.step, self.seconds = 0, 0.0
        self.steps: list[int] = []
        self.times: list[float] = []
        self.losses: list[np.ndarray] = []
        if directory is not None:
            versions = {"dmlmc version": version("dmlmc"), "jax version": jax.__version__, "method": method}
            self.identity = {**versions, **program.fingerprints(), "evaluate_every": str(evaluate_every)}

    def resume(self, steps: int) -> Run:
        """The run as the checkpoint left it, or at its start."""
        found = None
        if self.directory is not None:
            self.program.values(0)  # whoever was writing a checkpoint has done so
            seen = self.program.values((self.directory / checkpoint.FILE_NAME).exists())
            if seen.min() != seen.max():
                raise ValueError(f"train: directory must be one that all processes can read, got {self.directory}.")
            found = checkpoint.load(self.directory, self.identity, self.program.initial)
        if found is None:
            return self.program.initial
        run, columns = found
        self.step, self.seconds = int(columns["position"][0]), float(columns["position"][1])
        if self.step > steps:
            raise ValueError(
                f"train: steps must be at least {self.step}, where the run in {self.directory} is already, got {steps}."
            )
        self.steps, self.times = columns["step"].tolist(), columns["seconds"].tolist()
        self.losses = list(columns["loss"])
        if self.steps and self.steps[-1] % self.evaluate_every:  # the end of a shorter run, off the grid of this one
            self.steps, self.times, self.losses = self.steps[:-1], self.times[:-1], self.losses[:-1]
        return run

    def advance(self, run: Run, step: int, seconds: float) -> None:
        """Note that the run has reached a step, unless it went astray on the way."""
        self.step, self.seconds = step, self.seconds + seconds
        diverged_at = np.asarray(gather(run.diverged_at))
        if np.any(diverged_at >= 0):
            seed = int(np.argmax(diverged_at >= 0))
            first = int(diverged_at[seed])
            hint = (
                "a smaller learning rate or clipped gradients may help" if first else "look at params and at the loss"
            )
            raise DivergenceError(f"{self.method}, seed {seed}: the gradient is not finite at step {first}; {hint}.")

    def write(self, run: Run, *, last: bool, save: bool) -> None:
        """Evaluate if it is time to, then save if asked to."""
        if (last or self.step % self.evaluate_every == 0) and self.step not in self.steps[-1:]:
            losses = self.program.evaluate(run)
            if self.program.validates and not np.all(np.isfinite(losses)):
                seed = int(np.argmin(np.isfinite(losses)))
                raise DivergenceError(
                    f"{self.method}, seed {seed}: the loss is {losses[seed]} at step {self.step}; "
                    "a smaller learning rate or clipped gradients may help."
                )
            self.steps.append(self.step)
            self.times.append(self.seconds)
            self.losses.append(losses)
        if save and self.directory is not None:
            columns = {"step": np.array(self.steps), "seconds": np.array(self.times), "loss": np.array(self.losses)}
            position = np.array([self.step, self.seconds])
            run = gather(run)
            if self.program.leads:
                checkpoint.save(self.directory, self.identity, run, {**columns, "position": position})

    def mean_loss(self) -> float:
        return float(np.mean(self.losses[-1])) if self.losses else np.nan

    def record(self, estimator: GradientEstimator) -> pd.DataFrame:
        seeds = len(self.losses[0])
        work, span = (cumulative(cost, self.step)[self.steps] for cost in (estimator.work, estimator.span))
        return pd.DataFrame(
            {
                "method": estimator.method,
                "seed": np.repeat(np.arange(seeds), len(self.steps)),
                "step": np.tile(self.steps, seeds),
                "work": np.tile(work, seeds),
                "span": np.tile(span, seeds),
                "seconds": np.tile(self.times, seeds),
                "loss": np.stack(self.losses, axis=1).ravel(),
            }
        )


def _interval(name: str, value: int | None, *, default: int) -> int:
    return default if value is None else checks.integer(f"train: {name}", value, minimum=1)
