"""Progress bars in a real kernel, and in a terminal."""

import nbformat
import papermill

from dmlmc._internal import progress
from dmlmc._internal.progress import progress_bar

# By its path, because a kernel takes long to import the whole of dmlmc.
IN_NOTEBOOK = f"""import os, runpy
progress_bar = runpy.run_path({progress.__file__!r})["progress_bar"]
os.environ.pop("TQDM_DISABLE", None)
for _ in progress_bar(range(3), desc="steps", shown=True): pass"""


def test_in_a_notebook_the_bar_is_one_widget(tmp_path):
    hidden = IN_NOTEBOOK.splitlines()[-1].replace("True", "False")
    disabled = IN_NOTEBOOK.replace('.pop("TQDM_DISABLE", None)', '["TQDM_DISABLE"] = "1"')
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(source) for source in (IN_NOTEBOOK, hidden, disabled)]
    book.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(book, tmp_path / "bars.ipynb")
    done = papermill.execute_notebook(tmp_path / "bars.ipynb", None, progress_bar=False)
    shown, *others = (cell.outputs for cell in done.cells)
    (bar,) = shown  # and nothing on stderr, where each refresh would be a red line
    assert "application/vnd.jupyter.widget-view+json" in bar.data and "steps" in bar.data["text/plain"]
    assert others == [[], []]


def test_in_a_terminal_the_bar_is_a_line_on_stderr(monkeypatch, capsys):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    assert [*progress_bar(range(3), desc="steps", shown=True)] == [0, 1, 2]
    out, err = capsys.readouterr()
    assert not out and "steps: 100%" in err
    assert [*progress_bar(range(3), shown=False)] == [0, 1, 2]
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert [*progress_bar(range(3), shown=True)] == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
