"""The parts of a notebook that is read in parts (headings "## I.", "## II.", ...) can be run alone."""

import ast
import builtins
import re
from pathlib import Path

import nbformat
import pytest

PART = re.compile(r"## ([IVX]+)\. ")
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "07_your_own_sde.ipynb"


def names(sources):
    """The names that code uses, and those that it defines."""
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    defined = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    imported = [alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
    return used, defined | {(alias.asname or alias.name).partition(".")[0] for alias in imported}


def parts(cells):
    """The code of each part by its number, and of the parameters cell."""
    found, parameters, here = {}, [], None
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            match = PART.match(cell.source)
            here = match and match[1]
        elif cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", []):
            parameters.append(cell.source)
        elif cell.cell_type == "code" and here:
            found.setdefault(here, []).append(cell.source)
    return found, parameters


FOUND, PARAMETERS = parts(nbformat.read(NOTEBOOK, as_version=4).cells)


def test_there_are_three_parts():
    assert list(FOUND) == ["I", "II", "III"]


@pytest.mark.parametrize("part", FOUND)
def test_a_part_needs_no_other(part):
    used, defined = names(FOUND[part])
    assert used - defined - names(PARAMETERS)[1] - set(dir(builtins)) == set()
