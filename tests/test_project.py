"""The repository around the library: pins, linting, direction of imports, Makefile, README, CHANGELOG."""

import ast
import importlib.metadata
import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dmlmc
from dmlmc.reproduce import notebooks

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCK = (ROOT / "requirements.lock").read_text().splitlines()
PINS = {canonicalize_name(Requirement(line).name): Requirement(line) for line in LOCK}


def declared():
    """The requirements of the library and its extras. An extra that includes another one names the project itself."""
    named = [
        Requirement(text) for text in [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    ]
    return [requirement for requirement in named if requirement.name != PROJECT["name"]]


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_every_declared_dependency_is_pinned_within_its_range(requirement):
    (pin,) = PINS[canonicalize_name(requirement.name)].specifier
    assert pin.operator == "==" and requirement.specifier.contains(pin.version)


def test_the_dev_extra_includes_every_other_extra():
    # The lock file is compiled from dev only.
    own = [requirement for requirement in map(Requirement, EXTRAS["dev"]) if requirement.name == PROJECT["name"]]
    assert set().union(*(requirement.extras for requirement in own)) == set(EXTRAS) - {"dev"}


def test_the_lock_is_exact_and_names_no_host():
    assert len(PINS) == len(LOCK)
    for line in LOCK:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9a-z.+]+( ; .+)?", line), line
    assert "://" not in (ROOT / "requirements.lock").read_text() + (ROOT / "environment.yml").read_text()


def test_conda_installs_the_same_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"] == ["conda-forge"]
    *conda, pip = environment["dependencies"]
    assert pip["pip"] == [*LOCK, "-e ."]
    assert [Requirement(text).name for text in conda] == ["python", "pip"]
    assert PROJECT["requires-python"] in str(Requirement(conda[0]).specifier).replace("<3.14,", "")


def test_this_environment_is_the_locked_one():
    for pin in PINS.values():
        if pin.marker is None or pin.marker.evaluate():
            assert pin.specifier.contains(importlib.metadata.version(pin.name)), pin


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] == importlib.metadata.version("dmlmc")


def test_the_citation_names_the_paper_and_links_to_it():
    paper = yaml.safe_load((ROOT / "CITATION.cff").read_text())["preferred-citation"]
    assert paper["authors"][0]["family-names"] == "Ishikawa"
    assert paper["url"] == "https://arxiv.org/abs/2310.02402"
    assert {"arXiv:2310.02402", paper["url"]} == {one["value"] for one in paper["identifiers"]}
    assert {one["type"] for one in paper["identifiers"]} <= {"doi", "url", "swh", "other"}  # all that CFF 1.2.0 knows


@pytest.mark.parametrize(
    "command", [["mypy"], ["ruff", "check", "."], ["ruff", "format", "--check", "."]], ids=" ".join
)
def test_code_is_clean(command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


PACKAGE = ROOT / "dmlmc"
MODULES = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in sorted(PACKAGE.rglob("*.py"))}
# A folder imports only from itself and earlier ones. The files beside __init__.py are "method".
FOLDERS = ("_internal", "method", "streaming", "training", "calibration", "experiments", "reproduce")
NO_JAX = ("dmlmc.rates", "dmlmc.schedule", "dmlmc.allocation")  # theory may import these from the method


def folder(module):
    first = module.split(".")[1]
    return first if (PACKAGE / first).is_dir() else "method"


def imports(module):
    """Every module that a file imports, also inside functions. For dmlmc it is the module, not a name in it."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & set(MODULES)) or {node.module}
    return found


@pytest.mark.parametrize("module", [module for module in MODULES if not module.endswith("__init__")])
def test_imports_point_one_way(module):
    here = folder(module)
    ours = {name for name in imports(module) if name.startswith("dmlmc.")}
    if here == "theory":
        assert all(folder(name) in ("_internal", "theory") or name in NO_JAX for name in ours), ours
    else:
        allowed = FOLDERS[: FOLDERS.index(here) + 1] + (
            ("theory",) if here in ("calibration", "experiments", "reproduce") else ()
        )
        assert all(folder(name) in allowed for name in ours), ours
    assert "dmlmc" not in imports(module), "import from the module that defines a name"


@pytest.mark.parametrize(
    ("package", "where"),
    [
        ("matplotlib", "experiments.plots"),
        ("seaborn", "experiments.plots"),
        ("ipywidgets", "experiments.plots"),
        ("papermill", "reproduce"),
        ("nbformat", "reproduce"),
    ],
)
def test_packages_that_only_the_notebooks_need_are_imported_in_one_folder(package, where):
    users = {module for module in MODULES if package in {name.split(".")[0] for name in imports(module)}}
    assert users and all(user.startswith(f"dmlmc.{where}.") for user in users)


def test_the_theory_needs_no_jax():
    for module in [*NO_JAX, *(name for name in MODULES if folder(name) == "theory")]:
        assert not {name.split(".")[0] for name in imports(module)} & {"jax", "equinox", "diffrax", "optax"}, module


def test_there_is_one_sgd_step():
    updates = {module for module, file in MODULES.items() if re.search(r"apply_updates|tree_apply", file.read_text())}
    assert updates == {"dmlmc.training.step"}


def test_the_library_names_no_device():
    for file in MODULES.values():
        assert not re.search(r"""["'](cpu|gpu|cuda|tpu|metal)["']""", file.read_text()), file


def test_help_lists_all_names_and_every_docstring_explains_its_arguments_and_has_an_example():
    entries = re.findall(r"^    (\w+) +\S.+", dmlmc.__doc__, re.M)
    assert sorted(entries) == sorted(dmlmc.__all__)
    for name in dmlmc.__all__:
        thing = getattr(dmlmc, name)
        assert thing.__doc__ and ">>> " in thing.__doc__ and len(thing.__doc__.splitlines()[0]) > 20, name
        if issubclass(type(thing), type) and issubclass(thing, Exception):
            continue
        prose = thing.__doc__.partition(">>> ")[0]
        for argument in inspect.signature(thing).parameters:
            assert re.search(rf"\b{argument}\b", prose), f"{name} does not explain {argument}"


def test_mutation_testing_names_existing_files():
    settings = PYPROJECT["tool"]["mutmut"]
    assert all(any(ROOT.glob(path)) for path in [*settings["source_paths"], *settings["only_mutate"]])


def make(*arguments, cwd=ROOT):
    clean = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "PYTHON")}
    return subprocess.run(["make", *arguments], cwd=cwd, capture_output=True, text=True, env=clean)


def test_make_help_lists_every_target():
    done = make("help")
    targets = re.search(r"^\.PHONY: (.+)", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    assert done.returncode == 0 and not done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == targets


def test_the_workflow_runs_make_on_every_supported_python():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    steps = {name: [step.get("run") for step in job["steps"]] for name, job in jobs.items()}
    assert "make test PYTHON=python" in steps["test"] and "make test-lowest PYTHON=python" in steps["lowest"]
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert jobs["test"]["strategy"]["matrix"]["python"][0] == oldest
    assert [step["with"]["python-version"] for step in jobs["lowest"]["steps"] if "with" in step] == [oldest]
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    supported = Requirement(environment["dependencies"][0]).specifier  # the Pythons that conda may install
    assert all(supported.contains(version) for version in jobs["test"]["strategy"]["matrix"]["python"])


@pytest.mark.skipif(os.name != "posix", reason="needs id")
def test_make_lab_works_as_root(tmp_path):
    for user, allowed in ((0, True), (1000, False)):
        (tmp_path / "id").write_text(f"#!/bin/sh\necho {user}\n")
        (tmp_path / "id").chmod(0o755)
        said = make("lab", "RUN=echo", "--old-file=setup", f"PATH={tmp_path}:{os.environ['PATH']}")
        assert ("--allow-root" in said.stdout.splitlines()[-1]) is allowed, said.stdout + said.stderr


@pytest.fixture
def bare_project(tmp_path):
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_an_old_python_gives_one_clear_line(bare_project):
    old = bare_project / "python3.9"
    old.write_text('#!/bin/sh\ncase "$1" in --version) echo "Python 3.9.1";; *) exit 1;; esac\n')
    old.chmod(0o755)
    done = make("test", f"PYTHON={old}", cwd=bare_project)
    assert done.returncode != 0
    (line,) = done.stdout.splitlines()
    assert "needs Python 3.11 or newer" in line and "Python 3.9.1" in line
    assert not (bare_project / ".venv").exists()


def test_the_environment_is_rebuilt_only_when_its_inputs_change(bare_project):
    (bare_project / ".venv").mkdir()
    ready = bare_project / ".venv" / ".ready"
    ready.touch()
    assert make("--question", ".venv/.ready", cwd=bare_project).returncode == 0
    for name in ("requirements.lock", "pyproject.toml"):
        os.utime(ready, (1, 1))
        os.utime(bare_project / name, (2, 2))
        assert make("--question", ".venv/.ready", cwd=bare_project).returncode == 1


def test_the_readme_has_the_measured_ratios():
    found = json.loads((ROOT / "figures" / "data" / "deep_hedging.json").read_text())
    assert found["profile"] == "paper" and found["seeds"] == 10
    span, work = (
        sum(target[f"{cost}_ratio"]["mean"] for target in found["targets"]) / len(found["targets"])
        for cost in ("span", "work")
    )
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"needs {span:.2g} times less span and {work:.2g} times less work than MLMC" in text


def test_the_readme_is_short_and_shows_every_notebook_to_read_and_to_run():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 1100
    assert text.count("| <img ") == len(notebooks.numbered(ROOT / "notebooks"))
    for path in notebooks.numbered(ROOT / "notebooks"):
        (row,) = [line for line in text.splitlines() if f"(notebooks/{path.name})" in line]
        assert f"(notebooks/executed/paper/{path.name})" in row
    assert all((ROOT / image).exists() for image in re.findall(r'src="([^"]+)"', text))


def test_the_readme_links_to_the_paper_and_to_its_authors_code():
    text = (ROOT / "README.md").read_text()
    assert "https://arxiv.org/abs/2310.02402" in text and "https://github.com/kstoneriv3/delayed-mlmc" in text


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md"])
def test_every_link_to_a_file_works(file):
    named = re.findall(r"\]\((?!https?://|#)([^)]+)\)", (ROOT / file).read_text())
    assert named and all((ROOT / path).exists() for path in named)


@pytest.mark.parametrize("header", ["| before | now |", "| old name | new name |"])
def test_every_new_name_in_the_changelog_exists(header):
    table = (ROOT / "CHANGELOG.md").read_text().partition(header)[2].partition("\n\n")[0]
    cells = [row.split("|")[2] for row in table.splitlines()[2:]]
    named = [name for cell in cells for name in re.findall(r"`(dmlmc[.\w]+)`", cell)]
    assert len(named) > 10 and all(pkgutil.resolve_name(name) for name in named)


def test_the_changelog_has_this_version():
    assert f"\n## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()
