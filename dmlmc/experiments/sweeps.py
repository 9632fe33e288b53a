"""Train with many optimisers, learning rates and seeds in one compiled program, and compare the final losses."""

from collections.abc import Callable, Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int, Key, PyTree

from dmlmc._internal.checks import integer, positive
from dmlmc.calibration.interval import mean_interval
from dmlmc.devices import even_mesh
from dmlmc.estimators import GradientEstimator
from dmlmc.experiments.comparison import common_targets, in_json, ratio_to_reach
from dmlmc.schedule import DELAYED, MLMC, cumulative
from dmlmc.training.step import sgd_steps, start_run

Optimisers = Mapping[str, tuple[Callable[..., optax.GradientTransformation], Sequence[float]]]


def sweep(
    estimator: GradientEstimator,
    optimisers: Optimisers,
    params: PyTree,
    keys: Key[Array, " seeds"],
    *,
    steps: int,
    validation: Callable[[PyTree], Float[Array, ""]],
    evaluate_every: int,
) -> tuple[PyTree, pd.DataFrame]:
    """Train from ``params`` (one start per seed) with every optimiser at each of its learning rates, with ``keys``.

    ``optimisers`` maps a name to a function of the learning rate and the rates to try, as in
    ``{"Adam": (optax.adam, [0.01, 0.1])}``. ``dmlmc.train`` compiles one program per optimiser and rate. This function
    compiles one for all, because compilation dominates for a neural SDE. Runs that diverge have an infinite loss.

    Returns the trained parameters, with a leading axis over runs, and a record like that of ``dmlmc.train``. Instead of
    ``seconds`` it has the columns ``optimiser``, ``learning_rate`` and ``run``, the index on that axis.

    >>> import dmlmc
    >>> loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1e-6, rates=dmlmc.Rates(b=1.8, c=1.0, d=1.0))
    >>> _, record = sweep(
    ...     dmlmc.naive(loss, level=0, samples=1), {"SGD": (optax.sgd, [0.5, 1.0])}, jnp.ones((1, 2)),
    ...     jax.random.key(0)[None], steps=2, validation=lambda params: loss.mean(params, 0), evaluate_every=1,
    ... )
    >>> record.loss.round(2).tolist()  # halved at each step, hence a quarter of the square, or gone at once
    [1.0, 0.25, 0.06, 1.0, 0.0, 0.0]
    """
    steps = integer("sweep: steps", steps, minimum=1)
    every = integer("sweep: evaluate_every", evaluate_every, minimum=1)
    runs = pd.DataFrame(
        [
            (name, positive(f"sweep: a learning rate of {name}", rate), seed)
            for name, (_, rates) in optimisers.items()
            for rate in rates
            for seed in range(len(keys))
        ],
        columns=["optimiser", "learning_rate", "seed"],
    )
    evaluated = np.array([*range(0, steps, every), steps])
    trainable, static = eqx.partition(params, eqx.is_inexact_array)
    run = one_run(estimator, [make for make, _ in optimisers.values()], static, validation, evaluated)
    each = PartitionSpec("runs")
    mesh = Mesh(even_mesh(len(runs)).devices.ravel(), ("runs",))
    spread = jax.jit(jax.shard_map(jax.vmap(run), mesh=mesh, in_specs=each, out_specs=each, check_vma=False))
    seeds = runs.seed.to_numpy()
    which = jnp.array([list(optimisers).index(name) for name in runs.optimiser])
    starts = jax.tree.map(lambda leaf: leaf[seeds], trainable)
    last, losses = spread(which, jnp.array(runs.learning_rate.to_numpy(), float), starts, keys[seeds])
    return eqx.combine(last, static), _record(estimator, runs, evaluated, np.asarray(losses, dtype=float))


def _record(
    estimator: GradientEstimator,
    runs: pd.DataFrame,
    evaluated: Int[np.ndarray, " evaluations"],
    losses: Float[np.ndarray, "runs evaluations"],
) -> pd.DataFrame:
    record = runs.loc[runs.index.repeat(len(evaluated))].reset_index(names="run")
    record.insert(0, "method", estimator.method)
    for name, per_step in (("work", estimator.work), ("span", estimator.span)):
        record[name] = np.tile(cumulative(per_step, int(evaluated[-1]))[evaluated], len(runs))
    record["step"] = np.tile(evaluated, len(runs))
    record["loss"] = np.where(np.isfinite(losses), losses, np.inf).ravel()
    return record


def params_of(trained: PyTree, run: int) -> PyTree:
    """The parameters of one run, copied off the devices of the sweep."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[run]) if eqx.is_array(leaf) else leaf, trained)


def one_run(
    estimator: GradientEstimator,
    makers: Sequence[Callable[..., optax.GradientTransformation]],
    static: PyTree,
    validation: Callable[[PyTree], Float[Array, ""]],
    evaluated: Int[np.ndarray, " evaluations"],
) -> Callable[[Int[Array, ""], Float[Array, ""], PyTree, Key[Array, ""]], tuple[PyTree, Float[Array, " evaluations"]]]:
    """``run(which, rate, trainable, key)``, which returns the trained leaves and the losses at steps ``evaluated``."""
    bounds = jnp.array([0, *evaluated[:-1]]), jnp.array(evaluated)

    def run(which, rate, trainable, key):
        optimiser = _one_of([make(rate) for make in makers], which)

        def stretch(run, bounds):
            first, last = bounds
            run = sgd_steps(estimator, optimiser, static, run, first, last, key)
            return run, validation(eqx.combine(run.params, static))

        last, losses = jax.lax.scan(stretch, start_run(estimator, optimiser, trainable, static), bounds)
        return last.params, losses

    return run


def _one_of(optimisers: Sequence[optax.GradientTransformation], which: Int[Array, ""]) -> optax.GradientTransformation:
    """The optimiser at a traced index. All of them are updated, which costs little compared with a simulation."""

    def init(params):
        return [one.init(params) for one in optimisers]

    def update(grads, states, params=None):
        answers = [one.update(grads, state, params) for one, state in zip(optimisers, states, strict=True)]
        chosen = jax.tree.map(lambda *leaves: jnp.stack(leaves)[which], *(updates for updates, _ in answers))
        return chosen, [state for _, state in answers]

    return optax.GradientTransformation(init, update)


def after_training(record: pd.DataFrame) -> pd.DataFrame:
    """The last loss by method, optimiser and learning rate: mean over seeds and its 95% t-interval.

    The mean is infinite if a run diverged.

    >>> last = {"method": "MLMC", "optimiser": "SGD", "learning_rate": 0.1, "step": 9}
    >>> after_training(pd.DataFrame([{**last, "seed": seed, "loss": loss} for seed, loss in enumerate([1.0, 3.0])]))
      method optimiser  learning_rate  loss        low       high
    0   MLMC       SGD            0.1   2.0 -10.706205  14.706205
    """
    last = record[record.step == record.step.max()]
    rows = []
    for names, runs in last.groupby(["method", "optimiser", "learning_rate"], sort=False):
        finite = np.all(np.isfinite(runs.loss))
        found = mean_interval(runs.loss) if finite else (np.inf, np.nan, np.nan)
        rows.append((*names, *found))
    return pd.DataFrame(rows, columns=["method", "optimiser", "learning_rate", "loss", "low", "high"])


def best_rates(record: pd.DataFrame) -> pd.DataFrame:
    """The rows of ``after_training`` with the smallest loss for each method and optimiser."""
    table = after_training(record)
    return table.loc[table.groupby(["optimiser", "method"], sort=False).loss.idxmin()].reset_index(drop=True)


def span_ratios(record: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Span of MLMC over span of delayed MLMC, to losses that all their runs reach for good.

    ``record`` is of one optimiser and learning rate. The result is empty if there is no such loss.
    """
    pair = record[record.method.isin([MLMC, DELAYED])]
    try:
        targets = common_targets(pair)
    except ValueError:
        return {}
    return {f"{target:g}": in_json(ratio_to_reach(pair, target, "span")) for target in targets}
