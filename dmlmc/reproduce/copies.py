"""Notebooks as readers see them: outputs without what changes from run to run, and executed copies.

An executed copy has the text of its notebook, with links that work from its folder, the parameters that applied, and a
line that says at which size and commit it was run. ``make reproduce`` writes those at the paper's size, to be
committed.
"""

import ast
import json
import posixpath
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

from dmlmc._internal.files import write
from dmlmc.reproduce.notebooks import literal

WIDGET = "application/vnd.jupyter.widget-view+json"
FOLDER = "executed/paper"  # of the copies that notebooks link to; those of other runs are as deep
SIZES = {"paper": "at the paper's size", "quick": "at quick size"}


def clean(notebook: Any) -> Any:
    """A copy of a notebook without what changes from run to run: times, widget models, progress bars, split streams."""
    import nbformat  # here, because only the extra "paper" installs Jupyter

    cleaned = nbformat.from_dict(json.loads(json.dumps(notebook)))
    cleaned.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for cell in cleaned.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if cell.cell_type == "code":
            cell.outputs = _clean_outputs(cell.outputs)
    return cleaned


def _clean_outputs(outputs: list) -> list:
    kept: list = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stderr":
                continue  # progress bars, with their times
            if kept and kept[-1].output_type == "stream":
                kept[-1].text += output.text  # where a stream is split depends on timing
                continue
        else:
            output.metadata = type(output)()
            # A widget's model ends with the kernel. A picture in the same output stays; a progress bar has none.
            if output.get("data", {}).pop(WIDGET, None) is not None and set(output.data) <= {"text/plain"}:
                continue
        kept.append(output)
    return kept


def refresh(notebook: Path, executed: Path) -> None:
    """Copy the cleaned outputs of an executed copy into a notebook. Its text does not change."""
    import nbformat

    write(notebook, nbformat.writes(clean(_with_outputs(notebook, executed, {}))) + "\n")


def present(notebook: Path, executed: Path, parameters: dict[str, Any], size: str, run: dict[str, Any]) -> None:
    """Rewrite an executed copy for readers. ``run`` has the hash of its inputs, its commit and the flags of XLA.

    The text comes from the notebook, the outputs from the copy, so that a copy may be rewritten when only text changed.
    """
    import nbformat

    book = clean(_with_outputs(notebook, executed, parameters))
    book.metadata["dmlmc"] = {name: run.get(name) for name in ("inputs", "commit", "xla_flags")}
    for number, cell in enumerate(_code(book), start=1):  # papermill counted the cell that it added
        cell.source, cell.execution_count = _applied_to_cell(cell, parameters), number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
    text = [cell for cell in book.cells if cell.cell_type == "markdown"]
    for cell in text:
        lines = (line for line in cell.source.splitlines() if f"({FOLDER}/{notebook.name})" not in line)
        cell.source = relinked("\n".join(lines).rstrip())
    if text:
        text[0].source += "\n\n" + provenance(notebook.stem, size, run)  # instead of the link to this copy
    write(executed, nbformat.writes(book) + "\n")


def run_of(executed: Path) -> dict[str, Any]:
    """The hash of inputs and the commit of an executed copy. Empty if it is not one for readers yet."""
    import nbformat

    return dict(nbformat.read(executed, as_version=4).metadata.get("dmlmc", {}))


def provenance(name: str, size: str, run: dict[str, Any]) -> str:
    """The line that says how a copy was run.

    >>> provenance("04_tuned", "at quick size", {"commit": "d048672"})
    '*Run at quick size, commit d048672. To run it yourself: [04_tuned](../../04_tuned.ipynb).*'
    >>> print(provenance("04_tuned", "slowly", {"xla_flags": "--xla_a=1"}).partition(" To ")[0])
    *Run slowly, `XLA_FLAGS="--xla_a=1"`.
    """
    at = "" if run.get("commit") is None else f", commit {run['commit']}"
    flags = f', `XLA_FLAGS="{run["xla_flags"]}"`' if run.get("xla_flags") else ""
    return f"*Run {size}{at}{flags}. To run it yourself: [{name}](../../{name}.ipynb).*"


def relinked(text: str) -> str:
    """Markdown of a notebook with its relative links as seen from an executed copy. Notebooks become their copies.

    >>> relinked("[a](04_tuned.ipynb#end), [b](executed/paper/05_streaming.ipynb), ![c](../figures/c.png), [d](#end)")
    '[a](04_tuned.ipynb#end), [b](05_streaming.ipynb), ![c](../../../figures/c.png), [d](#end)'
    """

    def moved(link: re.Match) -> str:
        before, path = link.groups()
        if re.match(r"[a-z]+:|#|/", path):
            return link.group()
        is_copy = re.match(r"[0-9]\w*\.ipynb", path)
        return before + (path if is_copy else posixpath.relpath(path, FOLDER))

    return re.sub(r"""(\]\(|src=")([^)"\s]+)""", moved, text)


def applied(source: str, parameters: dict[str, Any]) -> str:
    """The code of a parameters cell with these values. Unchanged values stay, and comments but the one on the profile.

    >>> applied("seeds = 2  # of ten\\nrates = [0.5]", {"seeds": 10, "rates": [0.5]})
    'seeds = 10  # of ten\\nrates = [0.5]'
    """
    from papermill.translators import PythonTranslator

    text = source.encode()  # positions in the syntax tree count bytes
    starts = [0, *accumulate(len(line) for line in text.splitlines(keepends=True))]
    assigned = [
        (node.targets[0].id, node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    ]
    for name, value in reversed(assigned):
        assert value.end_lineno is not None and value.end_col_offset is not None
        first, last = starts[value.lineno - 1] + value.col_offset, starts[value.end_lineno - 1] + value.end_col_offset
        if name in parameters and literal(text[first:last].decode()) != parameters[name]:
            text = text[:first] + PythonTranslator.translate(parameters[name]).encode() + text[last:]
    return text.decode().replace("are the quick profile.", "are those of this run.") if parameters else source


def _applied_to_cell(cell: Any, parameters: dict[str, Any]) -> str:
    return applied(cell.source, parameters) if "parameters" in cell.metadata.get("tags", []) else cell.source


def _code(notebook: Any) -> list:
    """The code cells of a notebook, without the one that papermill adds."""
    code = (cell for cell in notebook.cells if cell.cell_type == "code")
    return [cell for cell in code if "injected-parameters" not in cell.metadata.get("tags", [])]


def _with_outputs(notebook: Path, executed: Path, parameters: dict[str, Any]) -> Any:
    """A notebook with the outputs of an executed copy, which may show the values of ``parameters`` or not yet."""
    import nbformat

    ours, theirs = (nbformat.read(path, as_version=4) for path in (notebook, executed))
    code, done = _code(ours), _code(theirs)
    known = [(cell.source, _applied_to_cell(cell, parameters)) for cell in code]
    if len(code) != len(done) or any(cell.source not in sources for cell, sources in zip(done, known, strict=True)):
        raise ValueError(f"reproduce: {executed} must hold the code of {notebook.name}, got other code; run it again.")
    for cell, ran in zip(code, done, strict=True):
        cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
    return ours
