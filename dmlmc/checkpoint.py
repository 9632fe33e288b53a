"""One file that holds a run: written whole or not at all, and opened only by the run it belongs to."""

import hashlib
import json
import os
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

FILE_NAME = "checkpoint.npz"


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or that belongs to another run."""


def fingerprint(program: Any, arrays: Any) -> str:
    """A hash of a traced program (``jax.jit(f).trace(...)``) and of arrays: what decides the numbers of a run.

    Every constant of the program counts, a learning rate for instance. Addresses of Python functions, which a
    printed program may contain, differ from one process to the next and are left out.
    """
    digest = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr)).encode())
    for array in [*program.jaxpr.consts, *jax.tree.leaves(arrays)]:
        values = np.asarray(_plain(array))
        digest.update(f"{values.shape}{values.dtype}".encode() + values.tobytes())
    return digest.hexdigest()


def save(directory: Path, identity: dict[str, str], state: Any, record: dict[str, np.ndarray]) -> None:
    """Write state and record to ``directory``, replacing what is there in one atomic step."""
    directory.mkdir(parents=True, exist_ok=True)
    leaves = {f"state_{index}": np.asarray(_plain(leaf)) for index, leaf in enumerate(jax.tree.leaves(state))}
    columns = {f"record_{name}": values for name, values in record.items()}
    handle, temporary = tempfile.mkstemp(prefix=".checkpoint-", suffix=".npz", dir=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            entries: dict[str, Any] = {"identity": np.array(json.dumps(identity)), **leaves, **columns}
            np.savez(file, **entries)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, directory / FILE_NAME)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(directory: Path, identity: dict[str, str], like: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
    """State (shaped and placed like ``like``) and record of the checkpoint in ``directory``; None if there is none."""
    file = directory / FILE_NAME
    if not file.exists():
        return None
    advice = "Give another directory, or delete this one to start again."
    try:
        with file.open("rb") as handle, np.load(handle) as stored:
            entries = {name: stored[name] for name in stored.files}
        found = json.loads(str(entries["identity"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"checkpoint: {file} cannot be read ({error}). {advice}") from error
    for name, value in identity.items():
        if found.get(name) != value:
            raise CheckpointError(
                f"checkpoint: {file} belongs to another run: its {name} differs "
                f"({found.get(name)!r} there, {value!r} here). {advice}"
            )
    leaves, structure = jax.tree.flatten(like)
    restored = [_restore(entries[f"state_{index}"], leaf) for index, leaf in enumerate(leaves)]
    record = {name.removeprefix("record_"): v for name, v in entries.items() if name.startswith("record_")}
    return jax.tree.unflatten(structure, restored), record


def _plain(array: Any) -> Any:
    return jax.random.key_data(array) if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key) else array


def _restore(values: np.ndarray, like: Any) -> Any:
    return jax.device_put(values, like.sharding) if isinstance(like, jax.Array) else values
