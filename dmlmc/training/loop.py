"""SGD with any gradient estimator and any optax optimiser: many seeds in one compiled program."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax.sharding import Mesh
from jaxtyping import Array, Key, PyTree

from dmlmc._internal import array_checks, checks
from dmlmc.devices import one_device
from dmlmc.estimators import GradientEstimator, check_estimator
from dmlmc.training.divergence import RAISE, RECORD
from dmlmc.training.driver import Driver, checked_settings, mesh_for
from dmlmc.training.evaluation import Evaluation, start_of


def train(
    estimator: GradientEstimator,
    optimiser: optax.GradientTransformation,
    params: PyTree | Evaluation,
    steps: int,
    key: Key[Array, ""] | Key[Array, " seeds"],
    *,
    params_per_seed: bool = False,
    validation: Callable[[Any], Array] | None = None,
    metrics: Callable[[Any], dict[str, Array]] | None = None,
    callback: Callable[[Evaluation], bool | None] | None = None,
    evaluate_every: int | None = None,
    on_divergence: str | None = None,
    directory: str | Path | None = None,
    checkpoint_every: int | None = None,
    chunk_steps: int | None = None,
    mesh: Mesh | None = None,
    seeds_at_once: int | None = None,
    progress: bool = True,
) -> tuple[Any, pd.DataFrame]:
    """Run ``steps`` steps of SGD and return the trained parameters and a record.

    - ``estimator``: from ``dmlmc.naive``, ``dmlmc.mlmc`` or ``dmlmc.delayed_mlmc``, or your own.
    - ``optimiser``: any optax optimiser that needs only gradients and parameters, such as ``optax.sgd(1e-3)``.
    - ``key``: one key for one run, or an array of keys, shape ``(seeds,)``, for several runs in one compiled program.
      The returned parameters then have a leading seed axis. A run depends on its own key and settings only.
    - ``params``: where every run starts, or, with ``params_per_seed=True``, one start per seed along a leading axis. Or
      a ``dmlmc.Evaluation``, what a callback got: the run goes on from there, with its step (``steps`` is the total),
      its optimiser's state and its costs. The estimator may have another plan: it adopts the gradients that are held.
      Levels that are new are computed at the first step, which is counted as one at which all levels are.
    - ``validation(params)``: a scalar to record at step 0, every ``evaluate_every`` steps (default: about 50 times)
      and at the end. ``lambda params: dmlmc.mean_loss(loss, params, level, samples, key)`` uses fixed noise.
    - ``metrics(params)``: a dict of more scalars to record then. They may be infinite or NaN.
    - ``callback(info)``: called then with a ``dmlmc.Evaluation``, and once more by a run that goes on from a checkpoint
      at such a step. If it returns True, the run ends there, with its record and checkpoint. Two examples are below.
      With several processes the leading one decides.
    - ``on_divergence``: for a gradient or a validation loss that is not finite, ``"raise"`` raises a
      ``dmlmc.DivergenceError`` (the default for one key). ``"record"`` (the default for several) warns and notes the
      step. The other seeds go on as if nothing had happened, and the run ends when none is left.
    - ``directory``: where to keep a checkpoint, written every ``checkpoint_every`` steps (default: at each evaluation)
      and at the end. A run that finds its own checkpoint there continues from it, and ends as if never interrupted.
      Two runs at once cannot share a directory.
    - ``chunk_steps``: steps between two updates of the progress bar. It affects nothing else.
    - ``mesh``: devices to share the work, of one process or several, such as ``dmlmc.mesh(samples=4, seeds=2)``. The
      numbers are the same up to the order of summation. The seeds must divide equally, the samples need not. Default:
      the mesh of the estimator, or else one device. With several processes each makes the same call and gets the same
      result; one of them writes the checkpoint, in a directory that all can read.
    - ``seeds_at_once``: how many seeds a device trains side by side, by default all of its own. Fewer need less memory,
      and are faster where the arrays of one seed fill the cache of a core. The numbers are the same up to rounding.
    - ``progress``: whether to show a bar.

    The record is a tidy DataFrame with the columns ``method, seed, step, work, span, seconds, loss``, the metrics, and
    ``diverged_at``: work and span are cumulative, in level-0 units; seconds are those of training all seeds together,
    without compilation and evaluation; ``diverged_at`` is the first step at which the gradient was not finite, or the
    evaluation at which the loss was not, and NaN if there is none.

    A checkpoint is read by the run that wrote it. The version of dmlmc, the method, its work and span per step, the
    mesh, ``evaluate_every``, the names of metrics, the key, and the start with its states must be the same. So must
    the programs of a step and of an evaluation as jax prints them. Another version of jax prints them differently: then
    the parameters, the loss and the metrics after the first step are compared instead, to half the digits of their
    dtype. This does not see a change that only affects later steps, such as another schedule of learning rates.

    >>> import dmlmc
    >>> rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    >>> estimator = dmlmc.delayed_mlmc(loss, dmlmc.plan(rates, max_level=3, level0_samples=64))
    >>> settings = {"validation": lambda params: loss.mean(params, 3), "evaluate_every": 20, "progress": False}
    >>> keys = jax.random.split(jax.random.key(0), 5)
    >>> params, record = train(estimator, optax.sgd(0.1), jnp.ones(2), steps=40, key=keys, **settings)
    >>> params.shape, len(record), record.columns.tolist()
    ((5, 2), 15, ['method', 'seed', 'step', 'work', 'span', 'seconds', 'loss', 'diverged_at'])

    Stop early, and keep the best parameters:

    >>> def small_enough(info):
    ...     return info.loss < 0.01
    >>> _, record = train(estimator, optax.sgd(0.1), jnp.ones(2), 400, keys[0], callback=small_enough, **settings)
    >>> int(record.step.iloc[-1])
    20

    >>> best = []
    >>> def keep_the_best(info):
    ...     best[:] = min([*best, info], key=lambda seen: seen.loss),
    >>> _, record = train(estimator, optax.sgd(0.1), jnp.ones(2), 400, keys[0], callback=keep_the_best, **settings)
    >>> bool(best[0].loss == record.loss.min() < record.loss.iloc[-1])
    True
    """
    check_estimator("train: estimator", estimator)
    steps = checks.integer("train: steps", steps, minimum=0, maximum=np.iinfo(np.int32).max)
    point = params.params if isinstance(params, Evaluation) else params
    array_checks.parameters("train: params", point)
    array_checks.optimiser("train: optimiser", optimiser, point)
    keys = jnp.atleast_1d(array_checks.random_key("train: key", key, several=True))
    default = RECORD if key.ndim else RAISE
    policy = default if on_divergence is None else checks.one_of("train: on_divergence", on_divergence, (RAISE, RECORD))
    start = start_of("train", params, optimiser, key, steps, checks.truth("train: params_per_seed", params_per_seed))
    settings = checked_settings(
        "train", start.step, steps, validation=validation, metrics=metrics, callback=callback,
        evaluate_every=evaluate_every, directory=directory, checkpoint_every=checkpoint_every, chunk_steps=chunk_steps,
        progress=progress, on_divergence=policy, one_seed=key.ndim == 0, seeds_at_once=seeds_at_once,
    )  # fmt: skip
    chosen = mesh_for("train", mesh, estimator.mesh, len(keys), one_device)
    driver = Driver(estimator, optimiser, start, keys, settings, chosen)
    trained, record = driver.run()
    if settings.one_seed:
        trained = jax.tree.map(lambda leaf: leaf[0] if eqx.is_inexact_array(leaf) else leaf, trained)
    return trained, record.table(estimator.method, *driver.costs(record.steps))
