"""Notebooks as files: list them, read their parameters, hash their inputs and run them."""

import ast
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from dmlmc._internal.files import write

PACKAGE = Path(__file__).parents[1]
LOCK = PACKAGE.parent / "requirements.lock"
MACHINERY = "reproduce"  # this folder runs and judges the notebooks; their numbers do not depend on it


class Outcome(NamedTuple):
    """The result of a run: its time, the peak memory of its kernel, and the failure, if any."""

    seconds: float
    peak_bytes: int
    failure: str | None


def numbered(directory: Path) -> list[Path]:
    """The numbered notebooks of a directory, in order."""
    return sorted(directory.glob("[0-9]*.ipynb"))


def contents(directory: Any = ".") -> str:
    """A Markdown list of the numbered notebooks of a directory except the first: links and titles."""
    import nbformat  # here, because only the extra "paper" installs Jupyter

    lines = []
    for path in numbered(Path(directory))[1:]:
        title = nbformat.read(path, as_version=4).cells[0].source.partition("\n")[0].lstrip("# ")
        lines.append(f"- [{path.stem}]({path.name}): {title}")
    return "\n".join(lines)


def defaults(notebook: Path) -> dict[str, Any]:
    """The parameters of a notebook with their default values. A value that is not a literal stays source text."""
    import papermill

    found = papermill.inspect_notebook(str(notebook))
    return {name: literal(parameter["default"]) for name, parameter in found.items()}


def literal(text: str) -> Any:
    """The value of a text that is a Python literal, else the text itself.

    >>> literal("3"), literal("[0, 30]"), literal("../figures")
    (3, [0, 30], '../figures')
    """
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def hash_of_inputs(notebook: Path, parameters: dict[str, Any]) -> str:
    """A hash of all inputs of a run: the code, the parameters, the package, the lock file and the files it reads.

    A notebook lists the files it reads in its parameter ``reads``, relative to itself.
    """
    import nbformat

    code = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    digest = hashlib.sha256(json.dumps([code, parameters], sort_keys=True, default=str).encode())
    package = {file.relative_to(PACKAGE): file for file in sorted(PACKAGE.rglob("*.py"))}
    files = {str(name): file for name, file in package.items() if name.parts[0] != MACHINERY} | {LOCK.name: LOCK}
    files |= {name: notebook.parent / name for name in (defaults(notebook) | parameters).get("reads", [])}
    for name, file in files.items():
        digest.update(f"\0{name}\0".encode() + (file.read_bytes() if file.exists() else b"missing"))
    return digest.hexdigest()


def commit_of_inputs(notebook: Path) -> str | None:
    """The commit of a notebook and the package, as in "d048672", or "d048672 with changes". None outside of git."""

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(notebook.parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True) if shutil.which("git") else None
        return done.stdout.strip() if done is not None and done.returncode == 0 else None

    commit = git("rev-parse", "--short", "HEAD")
    inputs = str(notebook), str(PACKAGE), f":(exclude){PACKAGE / MACHINERY}", str(LOCK)
    unchanged = git("status", "--porcelain", "--", *inputs) == ""
    return commit if commit is None or unchanged else f"{commit} with changes"


class Running:
    """A running notebook with a progress bar. Its outputs go to ``target``, which keeps them after a failure.

    Each notebook runs in its own process, so that the peak memory of the process's children is that of one kernel. The
    processes are forked from a server that has imported papermill once, because the import takes seconds.
    """

    def __init__(self, notebook: Path, target: Path, parameters: dict[str, Any], label: str, row: int = 0):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "papermill"])
        target.parent.mkdir(parents=True, exist_ok=True)
        self.target, self.began = target, time.perf_counter()
        self.receiver, sender = context.Pipe(duplex=False)
        arguments = sender, notebook, target, parameters, {"desc": label, "position": row, "disable": False}
        self.process = context.Process(target=_execute, args=arguments)
        self.process.start()
        sender.close()  # the pipe must close when the process ends

    def outcome(self) -> Outcome:
        """Wait for the run to end."""
        try:
            found = self.receiver.recv()
        except EOFError:
            found = Outcome(time.perf_counter() - self.began, 0, _describe(self.target, RuntimeError("it was killed")))
        self.process.join()
        return found

    def stop(self) -> None:
        """Kill the process, if it is still running. Its kernel then exits by itself."""
        self.process.kill()
        self.process.join()


def _execute(sender: Any, notebook: Path, target: Path, parameters: dict[str, Any], bar: dict[str, Any]) -> None:
    import papermill

    os.environ["TQDM_DISABLE"] = "1"  # no progress bars in the outputs; papermill's own bar says disable=False
    _save_whole(target)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    began, failure = time.perf_counter(), None
    try:
        papermill.execute_notebook(
            notebook, target, parameters=parameters, cwd=notebook.parent, kernel_name="python3", progress_bar=bar
        )
    except KeyboardInterrupt:  # the parent received it too
        return
    except Exception as error:  # the other notebooks can still run
        failure = _describe(target, error)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    sender.send(Outcome(time.perf_counter() - began, peak * (1 if sys.platform == "darwin" else 1024), failure))


def _save_whole(target: Path) -> None:
    """Let papermill replace ``target`` at every save. By itself it empties it first, and a full disk leaves it so."""
    from papermill.iorw import LocalHandler, papermill_io

    class Whole(LocalHandler):
        def write(self, buf, path):
            write(Path(path), buf)

    papermill_io.register(str(target), Whole())  # for paths that begin so


def _end_with_parent() -> None:
    # A killed parent cannot stop this process. The kernel exits by itself when its parent is gone.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _describe(target: Path, error: BaseException) -> str:
    """The code cell that did not finish, by its number in the executed copy, its first line, and the error."""
    import nbformat

    name = getattr(error, "ename", type(error).__name__)
    value = getattr(error, "evalue", str(error)).strip().partition("\n")[0]
    if isinstance(error, OSError):  # papermill passes on those of cells as errors of its own
        return f"saving or starting it, not in a cell: {name}: {value}"
    cells = nbformat.read(target, as_version=4).cells if target.exists() else []
    code = [cell for cell in cells if cell.cell_type == "code"]
    # Papermill records the start of every cell, but marks a cell "failed" only after an exception.
    started = [number for number, cell in enumerate(code) if cell.metadata.get("papermill", {}).get("start_time")]
    if not started:
        return f"no cell yet: {name}: {value}"
    first = code[started[-1]].source.strip().partition("\n")[0]
    return f"code cell {started[-1] + 1} of {len(code)}, {first!r}: {name}: {value}"
