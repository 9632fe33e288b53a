"""Train with many optimisers, learning rates and seeds in one compiled program."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key, PyTree

from dmlmc._internal import array_checks, checks
from dmlmc.devices import SEEDS, even_mesh
from dmlmc.estimators import GradientEstimator, check_estimator
from dmlmc.training.divergence import SILENT
from dmlmc.training.driver import Driver, Settings, checked_settings, mesh_for
from dmlmc.training.evaluation import Evaluation, Start, one_start_per_seed
from dmlmc.training.record import OF_SWEEPS

Optimisers = Mapping[str, tuple[Callable[..., optax.GradientTransformation], Sequence[float]]]


def sweep(
    estimator: GradientEstimator,
    optimisers: Optimisers,
    params: PyTree,
    steps: int,
    key: Key[Array, ""] | Key[Array, " seeds"],
    *,
    params_per_seed: bool = False,
    validation: Callable[[Any], Array],
    metrics: Callable[[Any], dict[str, Array]] | None = None,
    callback: Callable[[Evaluation], bool | None] | None = None,
    evaluate_every: int | None = None,
    directory: str | Path | None = None,
    checkpoint_every: int | None = None,
    chunk_steps: int | None = None,
    mesh: Mesh | None = None,
    seeds_at_once: int | None = None,
    progress: bool = True,
) -> tuple[Any, pd.DataFrame]:
    """Train with every optimiser, at each of its learning rates, with each key: one compiled program for all.

    ``optimisers`` maps a name to a function of the learning rate and the rates to try, as in
    ``{"Adam": (optax.adam, [0.01, 0.1])}``. Everything else is as in ``dmlmc.train``: ``estimator``, ``params`` (one
    start per key with ``params_per_seed=True``), ``steps``, ``key``, ``validation``, which is needed here, ``metrics``,
    ``evaluate_every``, ``directory``, ``checkpoint_every``, ``chunk_steps`` and ``progress``. Each run is what
    ``dmlmc.train`` computes, up to rounding, which compiles a program per optimiser and rate.

    Returns the trained parameters, with a leading axis over runs, and a record like that of ``dmlmc.train`` with the
    columns ``optimiser``, ``learning_rate`` and ``run``, the index on that axis: all keys of the first rate, then those
    of the next. ``callback(info)`` sees this axis, too, and what it stops are all runs. A run that diverges has an
    infinite loss from then on, and the others go on. ``mesh`` must share the runs equally; by default they are spread
    over as many devices as do. ``seeds_at_once`` runs of a device are trained side by side, by default all of its own.

    >>> import dmlmc
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1e-6, rates=dmlmc.Rates(b=1.8, c=1.0, d=1.0))
    >>> _, record = sweep(
    ...     dmlmc.naive(loss, level=0, samples=1), {"SGD": (optax.sgd, [0.5, 1.0])}, jnp.ones(2), 2, jax.random.key(0),
    ...     validation=lambda params: loss.mean(params, 0), evaluate_every=1, progress=False,
    ... )
    >>> record.loss.round(2).tolist()  # halved at each step, hence a quarter of the square, or gone at once
    [1.0, 0.25, 0.06, 1.0, 0.0, 0.0]
    """
    check_estimator("sweep: estimator", estimator)
    steps = checks.integer("sweep: steps", steps, minimum=1, maximum=np.iinfo(np.int32).max)
    if isinstance(params, Evaluation):
        raise TypeError("sweep: params must be parameters, got an Evaluation; its params are a field of it.")
    array_checks.parameters("sweep: params", params)
    keys = jnp.atleast_1d(array_checks.random_key("sweep: key", key, several=True))
    starts = one_start_per_seed("sweep", params, len(keys), checks.truth("sweep: params_per_seed", params_per_seed))
    checks.function("sweep: validation", validation, "params")
    settings = checked_settings(
        "sweep", 0, steps, validation=validation, metrics=metrics, callback=callback, evaluate_every=evaluate_every,
        directory=directory, checkpoint_every=checkpoint_every, chunk_steps=chunk_steps, progress=progress,
        on_divergence=SILENT, one_seed=False, seeds_at_once=seeds_at_once,
    )  # fmt: skip
    return prepared_sweep(estimator, optimisers, starts, keys, settings, mesh).run()


class PreparedSweep(NamedTuple):
    """A traced sweep. ``compile`` may be called in a thread of its own, ``run`` compiles what is not compiled yet."""

    driver: Driver
    runs: pd.DataFrame

    def compile(self) -> None:
        """Compile the programs of this sweep."""
        self.driver.program.compile()

    def run(self) -> tuple[Any, pd.DataFrame]:
        """What ``sweep`` returns."""
        trained, record = self.driver.run()
        table = record.table(self.driver.estimator.method, *self.driver.costs(record.steps))
        described = self.runs.loc[table.pop("seed")].reset_index(names="run")
        for place, column in enumerate((*OF_SWEEPS, "seed"), start=1):
            table.insert(place, column, described[column])
        return trained, table.assign(loss=table.loss.where(np.isfinite(table.loss), np.inf))


def prepared_sweep(
    estimator: GradientEstimator,
    optimisers: Optimisers,
    starts: PyTree,
    keys: Key[Array, " seeds"],
    settings: Settings,
    mesh: Mesh | None = None,
) -> PreparedSweep:
    """A sweep that is ready to be compiled, from checked arguments. ``starts`` has a leading axis over seeds."""
    runs = _runs(optimisers, len(keys), starts)
    mesh = mesh_for("sweep", mesh, estimator.mesh, len(runs), lambda: _spread(len(runs)))
    optimiser = one_of([make for make, _ in optimisers.values()])
    start = _start(runs, optimisers, optimiser, starts)
    return PreparedSweep(Driver(estimator, optimiser, start, keys[runs.seed.to_numpy()], settings, mesh), runs)


def _runs(optimisers: Optimisers, seeds: int, params: PyTree) -> pd.DataFrame:
    """One row per run: ``optimiser, learning_rate, seed``."""
    wanted = 'sweep: optimisers must be like {"Adam": (optax.adam, [0.01, 0.1])}'
    if not isinstance(optimisers, Mapping) or not optimisers:
        raise TypeError(f"{wanted}, got {optimisers!r}.")
    rows: list[tuple[str, float, int]] = []
    for name, pair in optimisers.items():
        if not isinstance(name, str) or not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"{wanted}, got {name!r}: {pair!r}.")
        make, rates = pair
        checks.function(f"sweep: the optimiser {name}", make, "learning_rate")
        for rate in checks.numbers(f"sweep: the learning rates of {name}", rates):
            rate = checks.positive(f"sweep: a learning rate of {name}", float(rate))
            rows += [(name, rate, seed) for seed in range(seeds)]
        array_checks.optimiser(f"sweep: the optimiser {name}", make(rows[-1][1]), params)
    return pd.DataFrame(rows, columns=["optimiser", "learning_rate", "seed"])


class Chosen(NamedTuple):
    """The state of a run's optimiser: which one it is, its learning rate, and the states of all."""

    which: Int[Array, "..."]
    rate: Float[Array, "..."]
    states: list[PyTree]


def one_of(makers: Sequence[Callable[..., optax.GradientTransformation]]) -> optax.GradientTransformation:
    """The optimiser that its state chooses. All of them are updated, which costs little compared with a simulation."""

    def init(params):
        rate = jnp.array(1.0)
        return Chosen(jnp.array(0), rate, [make(rate).init(params) for make in makers])

    def update(grads, state, params=None):
        each = zip(makers, state.states, strict=True)
        answers = [make(state.rate).update(grads, own, params) for make, own in each]
        chosen = jax.tree.map(lambda *leaves: jnp.stack(leaves)[state.which], *(updates for updates, _ in answers))
        return chosen, state._replace(states=[own for _, own in answers])

    return optax.GradientTransformation(init, update)


def _start(
    runs: pd.DataFrame, optimisers: Optimisers, optimiser: optax.GradientTransformation, starts: PyTree
) -> Start:
    """The start of every run: that of its seed, with the state of its optimiser."""
    trainable, static = eqx.partition(starts, eqx.is_inexact_array)
    seeds = runs.seed.to_numpy()
    trainable = jax.tree.map(lambda leaf: leaf[seeds], trainable)
    which = jnp.array([list(optimisers).index(name) for name in runs.optimiser])
    rates = jnp.array(runs.learning_rate.to_numpy(), float)
    states = jax.jit(jax.vmap(optimiser.init))(trainable)._replace(which=which, rate=rates)
    return Start(eqx.combine(trainable, static), states)


def _spread(runs: int) -> Mesh:
    return Mesh(even_mesh(runs).devices.ravel(), (SEEDS,))
