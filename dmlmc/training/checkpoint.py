"""Checkpoints: one file per run, written whole or not at all, locked, and read only by the run that wrote it."""

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlmc._internal.files import whole
from dmlmc.training.first_step import COMPARED, Numbers, as_dtype, differing
from dmlmc.training.program import PRINTED

try:
    import fcntl
except ImportError:  # Windows has none: two runs in one directory are not detected there
    fcntl = None  # type: ignore[assignment]

JAX = "jax version"
FILE_NAME = "checkpoint.npz"
ADVICE = "Give another directory, or delete this one to start again."


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written, that is in use, or that belongs to another run.

    Nothing is overwritten then; the message says what differs or what failed, and what to do.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     save(Path(directory), {"method": "MLMC"}, jnp.zeros(2), {})
    ...     try:
    ...         load(Path(directory), {"method": "naive"}, jnp.zeros(2))
    ...     except CheckpointError as error:
    ...         print(str(error).partition("npz ")[2].partition(". ")[0])
    belongs to another run: its method differs ('MLMC' there, 'naive' here)
    """


@contextmanager
def alone(directory: Path | None) -> Iterator[None]:
    """Make a directory and lock it against other runs. The OS releases the lock if the process dies.

    The directory itself is locked, so that no lock file is left behind.
    """
    if directory is None:
        yield
        return
    handle = None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if fcntl is not None:
            handle = os.open(directory, os.O_RDONLY)
            if _locked(handle, directory):
                for torn in directory.glob(f".*.{FILE_NAME}"):  # left by a run that was killed while writing
                    torn.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"checkpoint: {directory} cannot be used ({error}). Give another directory.") from error
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _locked(handle: int, directory: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(
            f"checkpoint: another run is at work in {directory}. Wait for it, or give another directory."
        ) from None
    except OSError:  # some network file systems have no locks
        return False
    return True


def save(
    directory: Path,
    identity: dict[str, str],
    state: Any,
    record: dict[str, np.ndarray],
    numbers: Numbers | None = None,
) -> None:
    """Write state and record to ``directory``, replacing what is there in one atomic step.

    ``numbers`` are those of the first step, see ``load``.
    """
    leaves = {f"state_{index}": np.asarray(_plain(leaf)) for index, leaf in enumerate(jax.tree.leaves(state))}
    columns = {f"record_{name}": values for name, values in record.items()}
    first = {f"first_{name}_{i}": array for name in COMPARED for i, array in enumerate((numbers or {}).get(name, []))}
    arrays = leaves | columns | first
    known = json.dumps([identity, sorted(arrays)])  # a damaged name shows as a missing entry
    entries: dict[str, Any] = {"identity": np.array(known), **arrays}
    try:
        with whole(directory / FILE_NAME) as temporary, temporary.open("wb") as file:
            np.savez(file, **entries)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise CheckpointError(
            f"checkpoint: {directory / FILE_NAME} cannot be written ({error}). The previous checkpoint is "
            "intact. Fix the cause and call again to continue from it."
        ) from error


def load(
    directory: Path, identity: dict[str, str], like: Any, first_step: Callable[[], Numbers] | None = None
) -> tuple[Any, dict[str, np.ndarray]] | None:
    """State (shaped and placed like ``like``) and record of the checkpoint in ``directory``; None if there is none.

    If another version of jax wrote it, printed programs are not compared. The numbers of ``first_step()`` are instead.
    """
    file = directory / FILE_NAME
    if not file.exists():
        return None
    found, entries = _read(file)
    other_jax = first_step is not None and found.get(JAX) != identity.get(JAX)
    for name, value in identity.items():
        if found.get(name) != value and not (other_jax and name in (JAX, *PRINTED)):
            raise CheckpointError(
                f"checkpoint: {file} belongs to another run: its {name} differs "
                f"({found.get(name)!r} there, {value!r} here). {ADVICE}"
            )
    if other_jax and first_step is not None:
        here = first_step()
        there = {
            name: [entries.get(f"first_{name}_{i}", np.empty(0)) for i in range(len(here[name]))] for name in COMPARED
        }
        if differ := differing(there, here):
            raise CheckpointError(
                f"checkpoint: {file} belongs to another run, or jax {identity[JAX]} computes it differently: it was "
                f"written with jax {found.get(JAX)}, and after the first step {' and '.join(differ)} differ by more "
                f"than rounding. {ADVICE}"
            )
    leaves, structure = jax.tree.flatten(like)
    restored = [_restore(entries[f"state_{index}"], leaf) for index, leaf in enumerate(leaves)]
    record = {name.removeprefix("record_"): v for name, v in entries.items() if name.startswith("record_")}
    return jax.tree.unflatten(structure, restored), record


def _read(file: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()  # np.load does not check the checksum of an entry that it reads in part
        if damaged is not None:
            raise ValueError(f"{damaged} is damaged")
        with np.load(file) as stored:
            entries = {name: stored[name] for name in stored.files}
        found, names = json.loads(str(entries.pop("identity")))
        if sorted(entries) != names:
            raise ValueError("an entry is missing")
    except Exception as error:  # a corrupt file can raise many exception types
        raise CheckpointError(f"checkpoint: {file} cannot be read ({error}). {ADVICE}") from error
    return found, entries


def _plain(array: Any) -> Any:
    return jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array


def _restore(values: np.ndarray, like: Any) -> Any:
    if not isinstance(like, jax.Array):
        return values
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.device_put(
            jax.random.wrap_key_data(jnp.asarray(values), impl=jax.random.key_impl(like)), like.sharding
        )
    return jax.device_put(as_dtype(values, like.dtype), like.sharding)
