"""The wheel: it has the whole package, and works without the packages that only the notebooks need."""

import importlib.metadata
import importlib.util
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

from tests.test_project import MODULES, PROJECT, ROOT

NOTEBOOKS_ONLY = (
    "matplotlib",
    "seaborn",
    "papermill",
    "nbformat",
    "IPython",
    "ipywidgets",
)  # module names


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy: setuptools writes files beside the sources and reads those of its last build."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "dmlmc", source / "dmlmc", ignore=shutil.ignore_patterns("__pycache__"))
    # The call that pip makes without build isolation. It downloads nothing and needs no pip, which uv does not install.
    run(sys.executable, "-c", f"from setuptools import build_meta; build_meta.build_wheel({str(target)!r})", cwd=source)
    (file,) = target.iterdir()
    return file


def needed():
    """The distributions that the library requires, directly or indirectly, without its own extras."""
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
    """An environment with only the wheel and what the library requires.

    The requirements are symlinks to the files of this environment, because a download would take minutes. The wheel is
    unpacked, which is enough for pure Python and faster than installing pip.
    """
    home = tmp_path_factory.mktemp("home")
    venv.create(home)
    for name in needed():
        for file in importlib.metadata.files(name):
            if ".." not in file.parts:  # scripts, which are not needed
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
    """Does the same as ``pip check``."""
    versions = {canonicalize_name(one.name): one.version for one in importlib.metadata.distributions(path=[site(home)])}
    assert versions.keys() == needed().keys() | {"dmlmc"}
    for one in importlib.metadata.distributions(path=[site(home)]):
        for requirement in map(Requirement, one.requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), one.name


def test_the_code_of_the_readme_runs_without_extras_and_prints_what_its_comments_say(home, tmp_path):
    readme = "".join(re.findall(r"```python\n(.+?)```", (ROOT / "README.md").read_text(), re.S))
    code = f"""{readme}
import importlib.util, sys
print([name for name in {NOTEBOOKS_ONLY} if name in sys.modules or importlib.util.find_spec(name)])
print(dmlmc.__file__)
print(dmlmc.__version__)
"""
    # -I ignores the current directory and PYTHONPATH, so only installed packages are found.
    *printed, found, file, version = run(home / "bin" / "python", "-I", "-c", code, cwd=tmp_path).splitlines()
    assert file == str(site(home) / "dmlmc" / "__init__.py") and version == PROJECT["version"]
    assert found == "[]"
    expected = re.findall(r"print\(.+\)  # (.+)", readme)
    assert expected and printed == expected


def test_importing_the_library_loads_no_package_that_only_the_notebooks_need(tmp_path):
    code = f"import sys, dmlmc; print([name for name in {NOTEBOOKS_ONLY} if name in sys.modules])"
    assert all(importlib.util.find_spec(name) for name in NOTEBOOKS_ONLY)  # they are installed, so they could be loaded
    assert run(sys.executable, "-c", code, cwd=ROOT) == "[]\n"
