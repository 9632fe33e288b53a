"""SGD with any gradient estimator and any optax optimiser: many seeds in one compiled program."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax.sharding import Mesh
from jaxtyping import Array, Key, PyTree
from tqdm import tqdm

from dmlmc._internal import array_checks, checks
from dmlmc.devices import SEEDS, check_mesh, gather, one_device
from dmlmc.estimators import GradientEstimator, check_estimator
from dmlmc.training.checkpoint import Store, alone
from dmlmc.training.program import Program
from dmlmc.training.record import Record
from dmlmc.training.step import Run

_TICK = 0.25  # seconds: chunks grow until one takes this long, so that the progress bar moves and costs little


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
    params: PyTree,
    steps: int,
    key: Key[Array, ""] | Key[Array, " seeds"],
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

    - ``estimator``: from ``dmlmc.naive``, ``dmlmc.mlmc`` or ``dmlmc.delayed_mlmc``, or your own.
    - ``optimiser``: any optax optimiser that needs only gradients and parameters, such as ``optax.sgd(1e-3)``.
    - ``key``: one key for one run, or an array of keys, shape ``(seeds,)``, for several runs in one compiled program.
      The returned parameters then have a leading seed axis. A run depends on its own key and settings only.
    - ``params``: where every run starts, or, with ``params_per_seed=True``, one start per seed along a leading axis.
    - ``validation(params)``: a scalar to record at step 0, every ``evaluate_every`` steps (default: about 50 times)
      and at the end. ``lambda params: dmlmc.mean_loss(loss, params, level, samples, key)`` uses fixed noise.
    - ``directory``: where to keep a checkpoint, written every ``checkpoint_every`` steps (default: at each evaluation)
      and at the end. A run that finds its own checkpoint there continues from it, and ends as if never interrupted.
      Two runs at once cannot share a directory.
    - ``chunk_steps``: steps between two updates of the progress bar. It affects nothing else.
    - ``mesh``: devices to share the work, of one process or several, such as ``dmlmc.mesh(samples=4, seeds=2)``. The
      numbers are the same up to the order of summation. The seeds must divide equally, the samples need not. Default:
      the mesh of the estimator, or else one device. With several processes each makes the same call and gets the same
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
    if directory is None:
        checkpoint_every = max(1, steps)
    if chunk_steps is not None:
        chunk_steps = _interval("chunk_steps", chunk_steps, default=1)
    keys = jnp.atleast_1d(array_checks.random_key("train: key", key, several=True))
    program = Program(
        estimator,
        optimiser,
        _one_start_per_seed(params, len(keys), params_per_seed),
        keys,
        validation=None if validation is None else _checked(validation),
        mesh=_mesh(mesh, estimator.mesh, len(keys)),
    )
    store = Store(checks.directory("train: directory", directory), program, estimator.method, evaluate_every)
    with alone(store.directory if program.leads else None):
        run, record = store.load(steps)
        program.compile()
        stops = _Stops(steps, evaluate_every, checkpoint_every, chunk_steps)
        run = _loop(estimator.method, program, run, record, stops, store, progress=progress)
    trained = program.params(run)
    if key.ndim == 0:
        trained = jax.tree.map(lambda leaf: leaf[0] if eqx.is_inexact_array(leaf) else leaf, trained)
    return trained, record.table(estimator)


class _Stops(NamedTuple):
    """The steps at which the compiled program returns to Python."""

    steps: int
    evaluate_every: int
    checkpoint_every: int
    chunk_steps: int | None

    def after(self, step: int, chunk: int) -> int:
        multiples = (step - step % every + every for every in (self.evaluate_every, self.checkpoint_every))
        return min(self.steps, step + chunk, *multiples)


def _loop(
    method: str, program: Program, run: Run, record: Record, stops: _Stops, store: Store, *, progress: bool
) -> Run:
    """Advance a run to its last step, and note, save and show what happens on the way."""
    chunk = stops.chunk_steps or 1
    disable = not (progress and program.leads)
    with tqdm(total=stops.steps, initial=record.step, desc=method, unit="step", disable=disable) as bar:
        _evaluate(method, program, run, record, stops)
        while (first := record.step) < stops.steps:
            last = stops.after(first, chunk)
            began = time.perf_counter()
            run = program.advance(run, first, last)
            elapsed = float(program.values(time.perf_counter() - began)[0])  # all processes use one clock
            record.advance(last, elapsed)
            _stop_if_diverged(method, run)
            _evaluate(method, program, run, record, stops)
            if last == stops.steps or last % stops.checkpoint_every == 0:
                store.save(run, record)
            bar.update(last - first)
            if program.validates:
                bar.set_postfix(loss=f"{record.mean_loss():.4g}", refresh=False)
            if stops.chunk_steps is None and elapsed < _TICK and last == first + chunk:
                chunk *= 2
    return run


def _evaluate(method: str, program: Program, run: Run, record: Record, stops: _Stops) -> None:
    if not record.is_due(stops.evaluate_every, stops.steps):
        return
    losses = program.evaluate(run)
    if program.validates and not np.all(np.isfinite(losses)):
        seed = int(np.argmin(np.isfinite(losses)))
        raise DivergenceError(
            f"{method}, seed {seed}: the loss is {losses[seed]} at step {record.step}; "
            "a smaller learning rate or clipped gradients may help."
        )
    record.add(losses)


def _stop_if_diverged(method: str, run: Run) -> None:
    diverged_at = np.asarray(gather(run.diverged_at))
    if np.any(diverged_at >= 0):
        seed = int(np.argmax(diverged_at >= 0))
        first = int(diverged_at[seed])
        hint = "a smaller learning rate or clipped gradients may help" if first else "look at params and at the loss"
        raise DivergenceError(f"{method}, seed {seed}: the gradient is not finite at step {first}; {hint}.")


def _interval(name: str, value: int | None, *, default: int) -> int:
    return default if value is None else checks.integer(f"train: {name}", value, minimum=1)


def _one_start_per_seed(params: PyTree, seeds: int, params_per_seed: bool) -> PyTree:
    """The parameters with a leading seed axis on every array that is trained."""
    trainable, static = eqx.partition(params, eqx.is_inexact_array)
    if not params_per_seed:
        return eqx.combine(jax.tree.map(lambda leaf: jnp.repeat(leaf[None], seeds, axis=0), trainable), static)
    for leaf in jax.tree.leaves(trainable):
        if leaf.ndim == 0 or leaf.shape[0] != seeds:
            raise ValueError(
                f"train: with params_per_seed=True every array of params needs a leading axis of length {seeds}, "
                f"one entry per key, got shape {leaf.shape}."
            )
    return params


def _checked(validation: Callable[[Any], Any]) -> Callable[[Any], Array]:
    return lambda params: array_checks.returned("train: validation", validation(params), (), float)


def _mesh(given: Mesh | None, of_estimator: Mesh | None, seeds: int) -> Mesh:
    mesh = of_estimator if given is None else check_mesh("train", given)
    if mesh is None:
        return one_device()
    if of_estimator not in (None, mesh):
        raise ValueError(f"train: mesh must be that of the estimator if both are given, got {mesh} and {of_estimator}.")
    if seeds % mesh.shape.get(SEEDS, 1):
        raise ValueError(
            f"train: mesh must share the seeds equally, got {mesh.shape[SEEDS]} along {SEEDS!r} for {seeds} seeds "
            "(one key per seed)."
        )
    return mesh
