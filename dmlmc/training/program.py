"""The compiled program of a training run: many seeds at once, on one device or several."""

import hashlib
import re
import threading
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Key, PyTree

from dmlmc.devices import SEEDS, WHOLE, gather, gather_values, leads, place
from dmlmc.estimators import GradientEstimator
from dmlmc.held import carried_over
from dmlmc.training.evaluation import Start
from dmlmc.training.step import Run, sgd_steps, start_run

PRINTED = (
    "loss, plan, optimiser or learning rate",
    "validation or metrics",
)  # hashes of programs as this jax prints them


class Program:
    """``advance`` and ``evaluate`` for a batch of seeds, each traced once and compiled ahead of its use.

    Every array of ``start`` and of a ``Run`` has a leading seed axis. ``evaluate`` returns the loss and a dict of
    metrics, all scalars, or is None.
    """

    def __init__(
        self,
        estimator: GradientEstimator,
        optimiser: optax.GradientTransformation,
        start: Start,
        keys: Key[Array, " seeds"],
        *,
        evaluate: Callable[[Any], tuple[Array, dict[str, Array]]] | None,
        mesh: Mesh,
        seeds_at_once: int | None = None,
    ):
        trainable, self.static = eqx.partition(start.params, eqx.is_inexact_array)
        self.mesh, self.leads, self.first = mesh, leads(mesh), start.step
        by_seed = PartitionSpec(SEEDS) if SEEDS in mesh.axis_names else WHOLE
        self.keys, trainable = place((keys, trainable), NamedSharding(mesh, by_seed))
        spec: Any = by_seed
        of_run = Run(spec, spec, _by_seed(estimator.state_spec, mesh), spec)

        def compiled(function, *in_specs, out_specs=by_seed, **options):
            # Seeds do not communicate: shard_map gives every device its own. Devices that share samples carry the
            # same parameters, and the estimator adds up their shares.
            over_devices = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
            return jax.jit(over_devices, **options)

        begin = jax.vmap(lambda leaves: start_run(estimator, optimiser, leaves, self.static))
        self.initial = _going_on(compiled(begin, by_seed, out_specs=of_run)(trainable), start)

        def advance(runs, keys, first, last):
            return _map_seeds(
                lambda run, key: sgd_steps(estimator, optimiser, self.static, run, first, last, key),
                (runs, keys), seeds_at_once,
            )  # fmt: skip

        specs = of_run, by_seed, WHOLE, WHOLE
        zero = jnp.array(0)
        program = compiled(advance, *specs, out_specs=of_run, donate_argnums=0)
        self._advance = program.trace(self.initial, self.keys, zero, zero)
        self._evaluate, self.metrics = None, []
        if evaluate is not None:

            def evaluate_all(params):
                return _map_seeds(lambda leaves: evaluate(eqx.combine(leaves, self.static)), (params,), seeds_at_once)

            self._evaluate = compiled(evaluate_all, by_seed).trace(self.initial.params)
            self.metrics = list(self._evaluate.out_info[1])
        self._is_compiled = False

    def fingerprints(self) -> dict[str, str]:
        """What decides the numbers of this run, in short, to recognise its checkpoint."""
        return {
            "mesh": str(dict(self.mesh.shape)),
            "metrics": ", ".join(self.metrics),
            PRINTED[0]: fingerprint(self._advance, ()),
            PRINTED[1]: "none" if self._evaluate is None else fingerprint(self._evaluate, ()),
            "key or start": digest(gather((self.initial, self.keys, jnp.array(self.first)))),
        }

    def compile(self) -> None:
        """Compile now, so that the first step is as fast as any other."""
        if not self._is_compiled:
            self._advance = self._advance.lower().compile()
            self._evaluate = None if self._evaluate is None else _compiled_validation(self._evaluate, self.mesh)
            self._is_compiled = True

    def advance(self, run: Run, first: int, last: int) -> Run:
        """Steps ``first``, ..., ``last - 1`` for every seed. The memory of the given run is reused."""
        return jax.block_until_ready(self._advance(run, self.keys, jnp.array(first), jnp.array(last)))

    def evaluate(self, run: Run) -> tuple[Float[np.ndarray, " seeds"], dict[str, Float[np.ndarray, " seeds"]]]:
        """The validation loss of every seed, NaN if there is none, and its metrics."""
        if self._evaluate is None:
            return np.full(len(self.keys), np.nan), {}
        return jax.tree.map(lambda leaf: np.asarray(leaf, dtype=float), gather(self._evaluate(run.params)))

    def first_step(self) -> dict[str, list[np.ndarray]]:
        """Numbers to recognise this run by: the start, and what is there after the first step. Compiles."""
        self.compile()
        start = [np.asarray(leaf) for leaf in jax.tree.leaves(gather(self.initial.params))]
        run = self.advance(copied(self.initial), self.first, self.first + 1)
        losses, metrics = self.evaluate(run)
        after = [np.asarray(leaf) for leaf in jax.tree.leaves(gather(run.params))]
        return {"start": start, "parameters": after, "loss": [losses], "metrics": list(metrics.values())}

    def params(self, run: Run) -> PyTree:
        """The parameters of every seed, with a leading seed axis."""
        return eqx.combine(gather(run.params), self.static)

    def values(self, value: float) -> Float[np.ndarray, " devices"]:
        """The value that every process has, the leading one's first. A barrier: processes wait for each other here."""
        return gather_values(self.mesh, value) if self.mesh.is_multi_process else np.array([float(value)])


def _map_seeds(function: Callable[..., Any], arguments: tuple[PyTree, ...], at_once: int | None) -> PyTree:
    """``function`` of every seed's arguments: all side by side, or ``at_once`` and then the next."""
    if at_once is None or at_once >= len(jax.tree.leaves(arguments)[0]):
        return jax.vmap(function)(*arguments)
    return jax.lax.map(lambda of_seed: function(*of_seed), arguments, batch_size=None if at_once == 1 else at_once)


_one_at_a_time = threading.Lock()
_validation: dict[tuple[str, str], tuple[Any, Any]] = {}  # the last one: the traced program and the compiled one


def _compiled_validation(traced: Any, mesh: Mesh) -> Any:
    """Methods that are compared one after the other share a validation: compile it once.

    The traced program is kept, so that addresses in its text stay those of its own functions.
    """
    which = digest(traced.jaxpr.consts, str(traced.jaxpr)), str(mesh.devices.tolist())
    with _one_at_a_time:  # programs may be compiled in threads
        if which not in _validation:
            _validation.clear()
            _validation[which] = traced, traced.lower().compile()
        return _validation[which][1]


def _by_seed(spec: PyTree, mesh: Mesh) -> PyTree:
    """Where the state of a batch of seeds is, from where that of one seed is. Axes that a mesh does not have go."""

    def of_leaf(spec):
        axes = (SEEDS, *spec)
        return PartitionSpec(*(axis if axis in mesh.axis_names else None for axis in axes))

    return jax.tree.map(of_leaf, spec, is_leaf=lambda node: isinstance(node, PartitionSpec))


def _going_on(run: Run, start: Start) -> Run:
    """A fresh run with the states of the start, if it has any. That of the estimator may be of another plan."""
    optimiser_state = run.optimiser_state if start.optimiser_state is None else start.optimiser_state
    estimator_state = run.estimator_state
    if start.estimator_state is not None:
        estimator_state = carried_over(start.estimator_state, estimator_state)
    given = run._replace(optimiser_state=optimiser_state, estimator_state=estimator_state)
    # Copies, because ``advance`` reuses the memory of its run, and the start belongs to the caller.
    return jax.tree.map(lambda new, old: new if new is old else place(jnp.array(new), old.sharding), given, run)


@jax.jit
def copied(tree: PyTree) -> PyTree:
    """A copy in memory of its own, that ``advance`` does not reuse."""
    return jax.tree.map(jnp.copy, tree)


def fingerprint(program: Any, arrays: PyTree) -> str:
    """A hash of a traced program (``jax.jit(f).trace(...)``) and of arrays: what decides the numbers of a run.

    Every constant of the program counts, a learning rate for instance.
    """
    return digest((program.jaxpr.consts, arrays), same_in_every_process(str(program.jaxpr)))


def digest(arrays: PyTree, text: str = "") -> str:
    """A hash of arrays and text."""
    hashed = hashlib.sha256(text.encode())
    for array in jax.tree.leaves(arrays):
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        values = np.asarray(jax.random.key_data(array) if is_key else array)
        hashed.update(f"{values.shape}{values.dtype}".encode() + values.tobytes())
    return hashed.hexdigest()


def same_in_every_process(printed: str) -> str:
    """A printed program without what differs between processes: addresses of functions, and the order of sets.

    Python orders a set of strings, such as the axes of a mesh, differently in every process.

    >>> same_in_every_process("f at 0x7f3a over frozenset({'seeds', 'samples'})")
    "f at  over frozenset('samples', 'seeds')"
    """
    without_addresses = re.sub(r"0x[0-9a-f]+", "", printed)
    return re.sub(
        r"frozenset\(\{([^{}]*)\}\)",
        lambda found: f"frozenset({', '.join(sorted(found[1].split(', ')))})",
        without_addresses,
    )
