"""What nbval does not check: complete runs, declared files, clean outputs, valid parameters in the paper profile."""

import re

import nbformat
import papermill
import pytest

from dmlmc.reproduce import copies, jobs, notebooks
from dmlmc.reproduce.profiles import PAPER

WIDGET = "application/vnd.jupyter.widget-view+json"
NOTEBOOKS = sorted(jobs.NOTEBOOKS.glob("*.ipynb"))


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
    assert set(PAPER[path.stem]) <= set(known)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_reads_only_the_files_that_it_declares(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    code = "\n".join(cell.source for cell in cells if "parameters" not in cell.metadata.get("tags", []))
    opened = re.findall(r"(?:read_\w+|open|load\w*)\((?!\))", code)
    declared = notebooks.defaults(path).get("reads", [])
    assert "../" not in code and len(opened) == len(declared) == code.count("reads[")
    assert all((path.parent / name).exists() for name in declared)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_more_prose_than_code(path):
    cells = nbformat.read(path, as_version=4).cells
    words = sum(len(cell.source.split()) for cell in cells if cell.cell_type == "markdown")
    lines = sum(len(cell.source.splitlines()) for cell in cells if cell.cell_type == "code")
    assert words > 5 * lines


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_is_clean(path):
    notebook = nbformat.read(path, as_version=4)
    assert nbformat.writes(copies.clean(notebook)) + "\n" == path.read_text(), "run make notebooks to clean it"


def volatile():
    """A notebook as papermill writes it."""
    notebook = nbformat.v4.new_notebook()
    outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="100% 3 s"),
        nbformat.v4.new_output("stream", name="stdout", text="one\n"),
        nbformat.v4.new_output("stream", name="stdout", text="two\n"),
        nbformat.v4.new_output("display_data", {WIDGET: {"model_id": "1f"}, "image/png": "aa"}, metadata={"a": 1}),
    ]
    notebook.cells = [nbformat.v4.new_markdown_cell("prose"), nbformat.v4.new_code_cell("1", outputs=outputs)]
    for cell in notebook.cells:
        cell.metadata = {"tags": [], "papermill": {"duration": 3}, "execution": {"iopub.status.busy": "now"}}
    notebook.cells[1].metadata["tags"] = ["parameters"]
    notebook.metadata = {"widgets": {"state": {}}, "papermill": {"duration": 4}, "language_info": {"version": "3.11.7"}}
    return notebook


def test_cleaning_removes_only_what_changes_from_run_to_run():
    notebook = volatile()
    cleaned = copies.clean(notebook)
    assert set(cleaned.metadata) == {"kernelspec", "language_info"}
    assert cleaned.metadata.language_info == {"name": "python"}
    prose, code = cleaned.cells
    assert prose.metadata == {} and code.metadata == {"tags": ["parameters"]}
    stream, picture = code.outputs
    assert stream.name == "stdout" and stream.text == "one\ntwo\n"
    assert picture.data == {"image/png": "aa"} and picture.metadata == {}
    assert copies.clean(cleaned) == cleaned
    assert len(notebook.cells[1].outputs) == 4  # the original is unchanged


def test_new_outputs_keep_an_edited_text(tmp_path):
    notebook, executed = volatile(), volatile()
    notebook.cells[0].source, notebook.cells[1].outputs = "better prose", []
    executed.cells[1].execution_count = 1
    nbformat.write(notebook, tmp_path / "01_a.ipynb")
    nbformat.write(executed, tmp_path / "b.ipynb")
    copies.refresh(tmp_path / "01_a.ipynb", tmp_path / "b.ipynb")
    prose, code = nbformat.read(tmp_path / "01_a.ipynb", as_version=4).cells
    assert prose.source == "better prose" and len(code.outputs) == 2 and code.execution_count == 1
    executed.cells[1].source = "2"
    nbformat.write(executed, tmp_path / "b.ipynb")
    with pytest.raises(ValueError, match=r"must hold the code of 01_a\.ipynb"):
        copies.refresh(tmp_path / "01_a.ipynb", tmp_path / "b.ipynb")


def test_the_contents_list_all_notebooks_but_the_first():
    listed = re.findall(r"^- \[\w+\]\((.+?)\): \S", notebooks.contents(jobs.NOTEBOOKS), re.M)
    assert listed == [path.name for path in NOTEBOOKS][1:]
