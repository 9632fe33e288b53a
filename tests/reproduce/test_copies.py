"""Executed copies: how they are made, and the committed ones, which ``make reproduce`` writes."""

import re
import shutil
import subprocess

import nbformat
import pytest

from dmlmc.reproduce import copies, jobs, notebooks

NAMES = [path.name for path in notebooks.numbered(jobs.NOTEBOOKS)]
COMMITTED = jobs.NOTEBOOKS / copies.FOLDER
RUN = {"inputs": "1f", "commit": "d048672", "xla_flags": ""}
PARAMETERS = """# The values here are the quick profile.
profile = "quick"
name = "é"; seeds = 2  # of ten
rates = [
    0.5,  # small
]
reads = ["../figures/a.json"]  # as it is"""
TEXT = """# Title

[At the paper's size](executed/paper/07_small.ipynb).

See [04](04_tuned.ipynb), [05](executed/paper/05_streaming.ipynb) and ![a](../figures/a.png)."""


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parameters_cell(notebook):
    (found,) = [cell for cell in code_of(notebook) if "parameters" in str(cell.metadata.get("tags"))]
    return found


@pytest.fixture
def written(tmp_path):
    """A notebook, and its copy as papermill leaves it."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_markdown_cell(TEXT),
        nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("seeds = 2\nseeds"),
    ]
    path, executed = tmp_path / "07_small.ipynb", tmp_path / "executed" / "paper" / "07_small.ipynb"
    nbformat.write(notebook, path)
    for number, cell in enumerate(notebook.cells[1:]):
        cell.execution_count = 1 + 2 * number
    result = nbformat.v4.new_output("execute_result", {"text/plain": "2"}, execution_count=3)
    bar = nbformat.v4.new_output("display_data", {copies.WIDGET: {"model_id": "1f"}, "text/plain": "0%"})
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", name="stderr", text="100%"), bar, result]
    injected = nbformat.v4.new_code_cell("seeds = 10", metadata={"tags": ["injected-parameters"]}, execution_count=2)
    notebook.cells.insert(2, injected)
    notebook.metadata["papermill"] = {"input_path": str(path)}
    executed.parent.mkdir(parents=True)
    nbformat.write(notebook, executed)
    return path, executed


def test_a_copy_has_the_text_and_one_parameters_cell_and_nothing_that_needs_a_kernel(written, tmp_path):
    path, executed = written
    applied = {"profile": "paper", "seeds": 10, "rates": [0.5, 1.0], "reads": ["../figures/a.json"]}
    copies.present(path, executed, applied, "at the paper's size", RUN)
    copy = nbformat.read(executed, as_version=4)
    nbformat.validate(copy)
    assert copy.cells[0].source == (
        "# Title\n\n\nSee [04](04_tuned.ipynb), [05](05_streaming.ipynb) and ![a](../../../figures/a.png).\n\n"
        "*Run at the paper's size, commit d048672. To run it yourself: [07_small](../../07_small.ipynb).*"
    )
    assert parameters_cell(copy).source == (
        '# The values here are those of this run.\nprofile = "paper"\nname = "é"; seeds = 10  # of ten\n'
        'rates = [0.5, 1.0]\nreads = ["../figures/a.json"]  # as it is'
    )
    scope = {}
    exec(parameters_cell(copy).source, scope)
    assert {name: scope[name] for name in applied} == applied
    last = copy.cells[-1]
    assert last.source == "seeds = 2\nseeds"  # no other cell is rewritten
    assert [cell.execution_count for cell in code_of(copy)] == [1, 2] and last.outputs[0].execution_count == 2
    assert [output.data for output in last.outputs] == [{"text/plain": "2"}]  # no bar, nothing red
    assert copies.run_of(executed) == RUN and str(tmp_path) not in executed.read_text()


def test_a_copy_can_be_rewritten_with_new_text_but_not_for_other_code(written):
    path, executed = written
    copies.present(path, executed, {"seeds": 10}, "at the paper's size", RUN)
    first = executed.read_text()
    copies.present(path, executed, {"seeds": 10}, "at the paper's size", RUN)
    assert executed.read_text() == first
    path.write_text(path.read_text().replace("# Title", "# Better title"))
    copies.present(path, executed, {"seeds": 10}, "at the paper's size", RUN)
    assert executed.read_text() == first.replace("# Title", "# Better title")
    path.write_text(path.read_text().replace('"seeds = 2\\n"', '"seeds = 3\\n"'))
    with pytest.raises(ValueError, match=r"must hold the code of 07_small\.ipynb"):
        copies.present(path, executed, {"seeds": 10}, "at the paper's size", RUN)


def git(directory, *arguments):
    known = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(directory), *known, *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_the_commit_is_that_of_the_inputs_and_says_if_they_have_changed(tmp_path, monkeypatch):
    package, notebook = tmp_path / "package", tmp_path / "notebooks" / "07_small.ipynb"
    for file in (package / "a.py", package / notebooks.MACHINERY / "b.py", tmp_path / "lock", notebook):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("first")
    monkeypatch.setattr(notebooks, "PACKAGE", package)
    monkeypatch.setattr(notebooks, "LOCK", tmp_path / "lock")
    assert notebooks.commit_of_inputs(notebook) is None
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "first"]):
        assert git(tmp_path, *arguments) is not None
    commit = git(tmp_path, "rev-parse", "--short", "HEAD")
    (package / notebooks.MACHINERY / "b.py").write_text("numbers do not depend on it")
    (tmp_path / "figure.png").write_text("nor on this")
    assert notebooks.commit_of_inputs(notebook) == commit
    (package / "new.py").write_text("not added yet")
    assert notebooks.commit_of_inputs(notebook) == f"{commit} with changes"


def test_git_keeps_the_copies_at_the_papers_size_and_no_others():
    named = [f"{copies.FOLDER}/{NAMES[0]}", f"{copies.FOLDER}/.1.{NAMES[0]}", f"{copies.FOLDER}/00_start_here.json"]
    named += [f"executed/quick/{NAMES[0]}", f"executed/elsewhere/{NAMES[0]}"]
    ignored = git(jobs.NOTEBOOKS, "check-ignore", "--no-index", *named)
    if git(jobs.NOTEBOOKS, "rev-parse") is not None:  # a checkout
        assert ignored.splitlines() == named[1:]


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_copy_is_whole_and_for_readers(name):
    copy = nbformat.read(COMMITTED / name, as_version=4)
    nbformat.validate(copy)
    cleaned = copies.clean(copy)
    cleaned.metadata["dmlmc"] = copy.metadata["dmlmc"]
    assert cleaned == copy  # no stderr, no widget without a picture
    code = code_of(copy)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
    assert 'profile = "paper"' in parameters_cell(copy).source and "quick" not in parameters_cell(copy).source
    shown = [cell.source for cell in copy.cells]
    outputs = [output for cell in code for output in cell.outputs]
    shown += [str(output.get("text", output.get("data", {}).get("text/plain"))) for output in outputs]
    assert not re.search(r"(?<![\w.:/])/(home|root|tmp|work|Users|var)/", "\n".join(shown)), "a path of a machine"
    assert (COMMITTED / name).stat().st_size < 1.5e6


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_copy_is_of_the_code_of_today_or_says_of_which_commit_it_is(name):
    notebook, copy = (nbformat.read(folder / name, as_version=4) for folder in (jobs.NOTEBOOKS, COMMITTED))
    run = copies.run_of(COMMITTED / name)
    assert copy.cells[0].source.endswith(copies.provenance(name[:-6], copies.SIZES["paper"], run))
    (job,) = jobs.jobs("paper", [name[:-6]])
    if run["inputs"] == notebooks.hash_of_inputs(job.notebook, job.parameters):
        expected = [copies._applied_to_cell(cell, job.parameters) for cell in code_of(notebook)]
        assert [cell.source for cell in code_of(copy)] == expected
        return
    assert re.fullmatch(r"[0-9a-f]{7,40}", run["commit"]), "of no commit, and of older code: run make reproduce"
    if git(jobs.NOTEBOOKS, "rev-parse", "--is-shallow-repository") == "false":
        assert git(jobs.NOTEBOOKS, "merge-base", "--is-ancestor", run["commit"], "HEAD") is not None


@pytest.mark.parametrize("folder", [jobs.NOTEBOOKS, COMMITTED], ids=["notebooks", "copies"])
@pytest.mark.parametrize("name", NAMES)
def test_every_link_to_a_file_works(folder, name):
    cells = nbformat.read(folder / name, as_version=4).cells
    text = [cell.source for cell in cells if cell.cell_type == "markdown"]
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    text += [output.data["text/markdown"] for output in outputs if "text/markdown" in output.get("data", {})]
    links = re.findall(r"""(?:\]\(|src=")(?![a-z]+:|#)([^)"\s#]+)""", "\n".join(text))
    assert not [link for link in links if not (folder / link).exists()]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_links_to_its_copy_in_a_line_of_its_own_at_the_top(name):
    first = nbformat.read(jobs.NOTEBOOKS / name, as_version=4).cells[0].source
    (paragraph,) = [text for text in first.split("\n\n") if f"({copies.FOLDER}/{name})" in text]
    assert len(paragraph.splitlines()) == 1  # the copy has another line in its place
