"""The wheel, as a user gets it: it holds the whole package, and works without what only the notebooks need."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.test_project import MODULES, PROJECT, ROOT, python_blocks

NOTEBOOKS_ONLY = ("matplotlib", "seaborn", "papermill", "nbformat", "IPython", "ipywidgets")  # modules, not packages


def run(*command, cwd):
    # Optimisations are off, as in conftest.py: programs compile in half the time.
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, since setuptools leaves files beside the sources and reads those of its last build."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "dmlmc", source / "dmlmc", ignore=shutil.ignore_patterns("__pycache__"))
    # What pip calls without build isolation. Nothing is downloaded; an environment made by uv has no pip.
    run(sys.executable, "-c", f"from setuptools import build_meta; build_meta.build_wheel({str(target)!r})", cwd=source)
    (file,) = target.iterdir()
    return file


def needed():
    """The distributions that the library needs, and those that these need in turn, but no extra of its own."""
    found, queue = {}, [Requirement(text) for text in PROJECT["dependencies"]]
    while queue:
        requirement = queue.pop()
        name, extras = canonicalize_name(requirement.name), requirement.extras | {""}
        if found.get(name, set()) >= extras:
            continue
        found[name] = found.get(name, set()) | extras
        for text in importlib.metadata.requires(name) or []:
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                queue.append(inner)
    return found


@pytest.fixture(scope="module")
def home(wheel, tmp_path_factory):
    """An environment that has the wheel, what the library requires, and nothing else.

    The packages are those of this environment, by links to the files that each one installed: downloading them again
    would take minutes. The wheel is installed by unpacking it, which is all that pure Python needs, and no pip, which
    would take longer to install than all the rest.
    """
    home = tmp_path_factory.mktemp("home")
    venv.create(home)
    for name in needed():
        for file in importlib.metadata.files(name):
            if ".." not in file.parts:  # scripts are not needed
                (site(home) / file).parent.mkdir(parents=True, exist_ok=True)
                (site(home) / file).symlink_to(file.locate())
    zipfile.ZipFile(wheel).extractall(site(home))
    return home


def site(home):
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(home)}))


def test_the_wheel_holds_every_module_and_nothing_outside_the_package(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == {str(file.relative_to(ROOT)) for file in MODULES.values()} | {"dmlmc/py.typed"}


def test_without_extras_no_requirement_is_missing(home):
    """What ``pip check`` does."""
    versions = {canonicalize_name(one.name): one.version for one in importlib.metadata.distributions(path=[site(home)])}
    assert versions.keys() == needed().keys() | {"dmlmc"}
    for one in importlib.metadata.distributions(path=[site(home)]):
        for requirement in map(Requirement, one.requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), one.name


def test_without_extras_the_fifteen_lines_of_the_readme_run(home, tmp_path):
    block = python_blocks()[0]
    code = f"""{block}
import importlib.util, sys
print([name for name in {NOTEBOOKS_ONLY} if name in sys.modules or importlib.util.find_spec(name)])
print(dmlmc.__file__)
print(dmlmc.__version__)
"""
    # -I: neither the current directory nor PYTHONPATH, only what is installed there.
    *printed, found, file, version = run(home / "bin" / "python", "-I", "-c", code, cwd=tmp_path).splitlines()
    assert file == str(site(home) / "dmlmc" / "__init__.py") and version == PROJECT["version"]
    assert found == "[]"
    promised = re.findall(r"print\(.+\)  # (.+)", block)
    assert promised and printed == promised


def test_importing_the_library_loads_nothing_of_the_notebooks(tmp_path):
    code = f"import sys, dmlmc; print([name for name in {NOTEBOOKS_ONLY} if name in sys.modules])"
    assert all(importlib.util.find_spec(name) for name in NOTEBOOKS_ONLY)  # they are here, so they could be loaded
    assert run(sys.executable, "-c", code, cwd=ROOT) == "[]\n"
