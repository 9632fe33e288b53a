"""Real papermill runs of small notebooks: order, parameters, failures, stamps, memory, the command line."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from dmlmc._internal.files import write
from dmlmc.reproduce import copies, jobs, notebooks, readme, summary
from dmlmc.reproduce.__main__ import main
from dmlmc.reproduce.profiles import PAPER
from tests.helpers.chromium import wait_for

SMALL = """from pathlib import Path
Path(output).mkdir(parents=True, exist_ok=True)
(Path(output) / "small.txt").write_text(str(size))
big = b"x" * 2**29
print(profile, "has size", size)"""


def notebook(directory, name, *sources, parameters='profile = "quick"\nsize = 1\noutput = "../figures/quick"'):
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell(parameters)]
    book.cells[1].metadata["tags"] = ["parameters"]
    book.cells += [nbformat.v4.new_code_cell(source) for source in sources]
    book.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    directory.mkdir(exist_ok=True)
    nbformat.write(book, directory / f"{name}.ipynb")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one small notebook. Returns the directory of its notebooks."""
    notebook(tmp_path / "notebooks", "07_small", SMALL)
    monkeypatch.setattr(jobs, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setitem(PAPER, "07_small", {"profile": "paper", "size": 1000, "output": "../figures"})
    return tmp_path / "notebooks"


def printed(path):
    cells = nbformat.read(path, as_version=4).cells
    return "".join(output.text for cell in cells for output in cell.get("outputs", []) if "text" in output)


def test_a_run_continues_after_failures_and_a_rerun_repeats_only_those(project, capfd):
    notebook(project, "08_raises", "a = 1", "\n1 / 0  # the culprit\nb = 2", "c = 3", parameters="own = 1")
    notebook(project, "08_dies", "import os\nos._exit(1)")
    notebook(project, "09_after", 'print("after")')
    assert main(["--profile", "paper", "--size=5"]) == 1
    out, err = capfd.readouterr()
    raised = "code cell 3 of 4, '1 / 0  # the culprit': ZeroDivisionError: division by zero"
    died = "code cell 3 of 3, 'import os': DeadKernelError: Kernel died"
    for stream in (out, err):
        assert re.search(rf"08_raises.* FAILED.* in {re.escape(raised)}", stream.replace(": FAILED", " FAILED"))
        assert died in stream
    for name in ("07_small", "08_dies", "08_raises", "09_after"):
        assert re.search(rf"^{name}: (FAILED after )?\d+ s, \d+ MiB at its peak", out, re.M), out
    assert out.index("08_raises") < out.index("09_after") < out.index("reproduced")

    executed = project / "executed" / "paper"
    assert printed(executed / "07_small.ipynb") == "paper has size 5\n"
    assert printed(executed / "09_after.ipynb") == "after\n"
    done = nbformat.read(executed / "08_raises.ipynb", as_version=4)
    assert any("ZeroDivisionError" in str(cell.get("outputs")) for cell in done.cells)
    assert sorted(path.name for path in executed.glob("*.json")) == ["07_small.json", "09_after.json"]
    assert (project.parent / "figures" / "small.txt").read_text() == "5"
    assert json.loads((project.parent / "figures" / "data" / "summary.json").read_text())[0]["found"] is None
    peaks = [json.loads((executed / f"{name}.json").read_text())["peak_bytes"] for name in ("07_small", "09_after")]
    assert peaks[0] > 2**29 > peaks[1]

    notebook(project, "08_raises", "a = 1")
    (project / "08_dies.ipynb").unlink()
    assert main(["--profile", "paper", "--size", "5"]) == 0
    out, _ = capfd.readouterr()
    assert re.findall(r"^(\w+): up to date, \d+ s", out, re.M) == ["07_small", "09_after"]
    assert re.search(r"^08_raises: \d+ s", out, re.M)


def test_a_run_at_the_papers_size_ends_with_copies_and_a_readme_that_agree_with_its_summary(
    project, tmp_path, monkeypatch
):
    parts, flags = ("headline", "summary", "memory", "environment"), "--xla_cpu_use_fusion_emitters=false"
    monkeypatch.setenv("XLA_FLAGS", f" {flags}")
    marked = "\n".join(line for part in parts for line in readme.markers(part))
    page, data = tmp_path / "README.md", tmp_path / "figures" / "data"
    page.write_text(marked)
    write(data / "benchmarks.json", (summary.DATA / "benchmarks.json").read_text())
    notebook(project, "08_raises", "1 / 0")
    for arguments in (["--profile", "quick"], ["--size", "5", "--only", "07"], ["--force"]):
        main(["--profile", "paper", *arguments])
        assert page.read_text() == marked  # other sizes, other parameters, and failures do not get there
    (project / "08_raises.ipynb").unlink()

    assert main(["--profile", "paper"]) == 0
    filled = page.read_text()
    readme.fill(page, data)
    assert filled == page.read_text() != marked
    executed = project / "executed" / "paper" / "07_small.ipynb"
    copy = nbformat.read(executed, as_version=4)
    assert copy.cells[0].source.startswith("# Title\n\n*Run at the paper's size")
    assert f'`XLA_FLAGS="{flags}"`' in copy.cells[0].source
    assert [cell.source for cell in copy.cells[1:]] == [
        'profile = "paper"\nsize = 1000\noutput = "../figures"',
        SMALL,
    ]
    text = (project / "07_small.ipynb").read_text()
    (project / "07_small.ipynb").write_text(text.replace("# Title", "# Another title"))
    assert main(["--profile", "paper"]) == 0  # runs nothing
    assert nbformat.read(executed, as_version=4).cells[0].source.startswith("# Another title")

    before = executed.read_text()
    assert main(["--profile", "paper", "--size", "2", "--output", "../figures/try"]) == 0
    assert executed.read_text() == before and printed(project / "executed" / "elsewhere" / "07_small.ipynb").endswith(
        "2\n"
    )


def test_a_run_is_up_to_date_until_one_of_its_inputs_changes(project, monkeypatch, tmp_path, capsys):
    def state(**overrides):
        (job,) = jobs.jobs("quick", ["07"], overrides)
        return job.last_run() is not None

    assert not state()
    assert main(["--profile", "quick", "--only", "07", "--in-place"]) == 0
    assert state() and not state(size=2)
    assert printed(project / "07_small.ipynb") == "quick has size 1\n"
    committed = nbformat.read(project / "07_small.ipynb", as_version=4)
    assert committed == copies.clean(committed)

    capsys.readouterr()
    assert main(["--profile", "quick", "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "07_small: up to date",
        "    --profile 'quick'",
        "    --size 1",
    ]

    output = tmp_path / "figures" / "quick" / "small.txt"
    output.unlink()
    assert not state()
    output.touch()
    assert state()
    text = (project / "07_small.ipynb").read_text()
    (project / "07_small.ipynb").write_text(text.replace("# Title", "# Another title"))
    assert state()
    (project / "07_small.ipynb").write_text(text.replace("has size", "has the size"))
    assert not state()
    (project / "07_small.ipynb").write_text(text)
    assert state()
    (tmp_path / "lock").write_text("jax==0")
    monkeypatch.setattr(notebooks, "LOCK", tmp_path / "lock")
    assert not state()


def test_the_package_is_part_of_the_inputs_and_the_machinery_is_not(project, monkeypatch, tmp_path):
    def inputs():
        return notebooks.hash_of_inputs(project / "07_small.ipynb", {"size": 1})

    monkeypatch.setattr(notebooks, "PACKAGE", tmp_path)
    (tmp_path / "rates.py").write_text("b = 1")
    first = inputs()
    write(tmp_path / "reproduce" / "summary.py", "anything")
    assert inputs() == first
    write(tmp_path / "training" / "loop.py", "anything")
    second = inputs()
    assert second != first
    (tmp_path / "rates.py").write_text("b = 2")
    assert inputs() not in (first, second)


def test_a_notebook_is_out_of_date_when_a_file_it_reads_changes(project):
    read = project.parent / "figures" / "data" / "read.csv"
    notebook(project, "08_reads", "print(open(reads[0]).read())", parameters='reads = ["../figures/data/read.csv"]')

    def states():
        return {job.name: job.last_run() is not None for job in jobs.jobs("quick")}

    write(read, "first")
    assert main(["--profile", "quick"]) == 0
    assert states() == {"07_small": True, "08_reads": True}
    write(read, "second")
    assert states() == {"07_small": True, "08_reads": False}
    write(read, "first")
    assert states()["08_reads"]
    read.unlink()
    assert not states()["08_reads"]


def refusal(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_errors_for_wrong_arguments_say_what_would_work(project, capsys):
    notebook(project, "08_other", "a = 1", parameters="own = 1")
    error = refusal(["--sizes", "3", "--own", "2"], capsys)
    assert "no selected notebook has the parameter sizes; they have" in error
    assert "  07_small: profile, size, output\n  08_other: own" in error
    assert "the parameter own" in refusal(["--only", "07", "--own", "2"], capsys)
    assert "begin the name of a notebook (07_small, 08_other), got '3'" in refusal(["--only", "3"], capsys)
    assert "must be given as --name value, got '--size'" in refusal(["--size"], capsys)
    assert "must be given as --name value, got 'size'" in refusal(["size", "3"], capsys)
    assert "--in-place is for the quick profile" in refusal(["--in-place"], capsys)
    assert "--in-place is for the quick profile" in refusal(["--profile=quick", "--in-place", "--size=3"], capsys)
    assert "invalid choice: 'huge'" in refusal(["--profile", "huge"], capsys)
    assert "--at-once must be at least 1, got 0" in refusal(["--at-once", "0"], capsys)
    assert not (project / "executed").exists()
    with pytest.raises(ValueError, match="profile must be 'quick' or 'paper', got 'huge'"):
        jobs.jobs("huge")


def test_a_failed_write_keeps_the_old_file(tmp_path):
    write(tmp_path / "a.txt", "old")
    with pytest.raises(UnicodeEncodeError):  # while writing
        write(tmp_path / "a.txt", "new \ud800")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"] and (tmp_path / "a.txt").read_text() == "old"


MEETS = """import pathlib, time
pathlib.Path("here_" + own).touch()
deadline = time.monotonic() + 300
while not pathlib.Path("here_" + other).exists():
    assert time.monotonic() < deadline, "the other notebook did not start"
    time.sleep(0.05)
print(own, "met", other)"""


def test_two_notebooks_at_once_run_in_parallel(project, capfd):
    notebook(project, "08_first", MEETS, parameters='own, other = "first", "second"')
    notebook(project, "09_second", MEETS, parameters='own, other = "second", "first"')
    assert main(["--profile", "quick", "--at-once", "2", "--force"]) == 0  # one at a time would time out
    assert printed(project / "executed" / "quick" / "09_second.ipynb") == "second met first\n"
    assert re.findall(r"^\w+: \d+ s", capfd.readouterr().out, re.M)[0].startswith("07_small")
    assert main(["--profile", "quick"]) == 0
    assert capfd.readouterr().out.count("up to date") == 3


KILLED = """import pathlib, signal, sys
from dmlmc.reproduce import jobs
from dmlmc.reproduce.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs start with SIGINT ignored
jobs.NOTEBOOKS = pathlib.Path(sys.argv[1])
sys.exit(main(["--profile", "quick", "--at-once", "1", *sys.argv[2:]]))"""


def gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text()  # a zombie


def contents(directory):
    return {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}


def test_an_interrupted_run_says_how_to_continue_and_leaves_no_process(project):
    wait_long = """import os, pathlib, time
pathlib.Path("processes").write_text(f"{os.getpid()} {os.getppid()}")
time.sleep(300)"""
    notebook(project, "08_long", wait_long)
    command = [sys.executable, "-c", KILLED, str(project)]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    started = project / "processes"
    wait_for(lambda: started.exists() and started.read_text(), 300, "the middle of the second notebook")
    run.send_signal(signal.SIGINT)
    assert "run the same command to continue" in run.communicate(timeout=120)[1] and run.returncode == 130
    for process in started.read_text().split():  # the kernel and its parent
        wait_for(lambda process=process: gone(int(process)), 120, f"the end of process {process}")
    assert [path.name for path in (project / "executed" / "quick").glob("*.json")] == ["07_small.json"]


def test_a_killed_run_leaves_no_process_and_continues_where_it_stopped(project):
    write_slowly = """import os, pathlib, time
target = pathlib.Path(output) / "long.txt"
target.write_text("half")
pathlib.Path("processes").write_text(f"{os.getpid()} {os.getppid()}")
time.sleep(seconds)
target.write_text("half and whole")
print("done")"""
    notebook(project, "08_long", write_slowly, parameters='seconds = 0\noutput = "../figures/quick"')
    figures, executed = project.parent / "figures" / "quick", project / "executed" / "quick"
    command = [sys.executable, "-c", KILLED, str(project)]
    run = subprocess.Popen([*command, "--seconds", "300"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = project / "processes"
    wait_for(lambda: started.exists() and started.read_text(), 300, "the middle of the second notebook")
    run.kill()
    run.wait()
    for process in started.read_text().split():  # the kernel and its parent
        wait_for(lambda process=process: gone(int(process)), 120, f"the end of process {process}")
    assert contents(figures) == {"small.txt": "1", "long.txt": "half"}
    assert [path.name for path in executed.glob("*.json")] == ["07_small.json"]
    (executed / ".1.08_long.ipynb").write_text("half")  # as if it had been killed while saving

    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert re.findall(r"^(\w+): (up to date|\d+ s)", again.stdout, re.M)[0] == ("07_small", "up to date")
    assert re.findall(r"^(\w+): \d+ s", again.stdout, re.M) == ["08_long"]
    assert re.search(r"2/2 08_long: .*cell/s", again.stderr) and "1/2" not in again.stderr
    found = contents(figures), [printed(path) for path in sorted(executed.glob("*.ipynb"))]
    assert {path.suffix for path in executed.iterdir()} == {".ipynb", ".json"} and len(contents(executed)) == 4

    assert main(["--profile", "quick", "--only", "08", "--force"]) == 0  # uninterrupted
    assert found == (contents(figures), [printed(path) for path in sorted(executed.glob("*.ipynb"))])


FULL = """import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))  # the system refuses to write more into a file
"""


def test_a_full_disk_loses_no_finished_notebook_and_leaves_none_half_written(project, monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # kernels write a history, which must not be the user's
    notebook(project, "08_prints", 'print("x" * 2**17)')
    many = 'import pathlib\nfor i in range(4000):\n    (pathlib.Path(output) / f"{i}.txt").touch()'
    notebook(project, "09_writes", many)  # the stamp, which lists them, does not fit
    notebook(project, "10_after", 'print("after")')
    executed = project / "executed" / "quick"

    full = subprocess.run([sys.executable, "-c", FULL + KILLED, str(project)], capture_output=True, text=True)
    assert full.returncode == 1 and "Traceback" not in full.stderr, full.stderr
    failed = re.findall(r"^(\w+) FAILED in (\w+) .*File too large", full.stderr, re.M)
    assert failed == [("08_prints", "saving"), ("09_writes", "writing")]
    books = {path.stem: printed(path) for path in executed.glob("*.ipynb")}  # all can be read
    assert books == {"07_small": "quick has size 1\n", "08_prints": "", "09_writes": "", "10_after": "after\n"}
    assert sorted({*contents(executed)} - {f"{name}.ipynb" for name in books}) == ["07_small.json", "10_after.json"]

    assert main(["--profile", "quick", "--at-once", "1"]) == 0
    out, _ = capfd.readouterr()
    assert re.findall(r"^(\w+): up to date", out, re.M) == ["07_small", "10_after"]
    assert re.findall(r"^(\w+): \d+ s", out, re.M) == ["08_prints", "09_writes"]
    assert printed(executed / "08_prints.ipynb") == "x" * 2**17 + "\n"


def test_a_summary_that_cannot_be_written_gets_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(jobs, "NOTEBOOKS", tmp_path / "notebooks")
    (tmp_path / "figures" / "quick" / "data" / "summary.json").mkdir(parents=True)  # in the way
    assert main(["--profile", "quick"]) == 1
    assert "summary.json'; finished notebooks are kept, run the same command to continue" in capsys.readouterr().err
