"""What nbval cannot see: that notebooks were run whole, and that the paper's parameters are theirs."""

import re

import nbformat
import papermill
import pytest

from dmlmc import reproduce

NOTEBOOKS = sorted(reproduce.NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_was_run_from_top_to_bottom(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in code) == 1
    nbformat.validate(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_paper_profile_sets_parameters_that_the_notebook_has(path):
    known = papermill.inspect_notebook(str(path))
    assert known["profile"]["default"] == '"quick"'
    assert set(reproduce.PAPER[path.stem]) <= set(known)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_more_prose_than_code(path):
    cells = nbformat.read(path, as_version=4).cells
    words = sum(len(cell.source.split()) for cell in cells if cell.cell_type == "markdown")
    lines = sum(len(cell.source.splitlines()) for cell in cells if cell.cell_type == "code")
    assert words > 5 * lines


def small_project(tmp_path, source):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell('profile = "quick"\nsize = 1'), nbformat.v4.new_code_cell(source)]
    notebook.cells[0].metadata["tags"] = ["parameters"]
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(notebook, tmp_path / "07_small.ipynb")


@pytest.mark.filterwarnings("default")  # of the kernel's own machinery
@pytest.mark.parametrize(("profile", "size"), [("quick", 1), ("paper", 1000)])
def test_reproduce_runs_every_notebook_at_its_profile(tmp_path, monkeypatch, capsys, profile, size):
    small_project(tmp_path, 'print(profile, "has size", size)')
    monkeypatch.setattr(reproduce, "NOTEBOOKS", tmp_path)
    monkeypatch.setitem(reproduce.PAPER, "07_small", {"profile": "paper", "size": 1000})
    reproduce.reproduce(profile)
    executed = nbformat.read(tmp_path / "executed" / profile / "07_small.ipynb", as_version=4)
    assert executed.cells[-1].outputs[0].text == f"{profile} has size {size}\n"
    assert re.search(rf"07_small.ipynb: \d+ s at the {profile} profile", capsys.readouterr().out)


def test_an_unknown_profile_is_named():
    with pytest.raises(ValueError, match="profile must be 'quick' or 'paper', got 'huge'"):
        reproduce.reproduce("huge")
