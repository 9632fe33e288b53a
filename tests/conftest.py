import gc
import os

import jax
import jaxtyping
import pytest
from hypothesis import settings

# Shapes and dtypes in the annotations of dmlmc are checked in every test. jaxtyping imports the first name and
# evaluates the rest.
jaxtyping.install_import_hook("dmlmc", "importlib.import_module('tests.helpers.array_types').checked")

import dmlmc
from tests.helpers.array_types import unchecked

# The same examples in every run: one that is found fails where it is looked at, not on somebody else's machine.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")

# Tests compile far more than they run, and without XLA's expensive passes they take little more than half the time.
# The kernels of the notebooks are processes of their own and optimise as usual.
jax.config.update("jax_disable_most_optimizations", True)

# Traced programs are many small objects that live long. Looking for garbage among them takes time: do it rarely.
gc.set_threshold(100_000, 50, 100)


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory):
    """Many tests compile the same small programs; compile each once, in a cache that may be brought along."""
    if jax.config.jax_compilation_cache_dir is None:
        folder = tmp_path_factory.getbasetemp()
        shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder  # the workers of xdist share it
        jax.config.update("jax_compilation_cache_dir", str(shared / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture
def own_errors():
    """For tests of dmlmc's own errors: the checks of array types would answer first."""
    with unchecked():
        yield


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def paper_rates():
    return dmlmc.Rates(b=1.8, c=1.0, d=1.0)


@pytest.fixture
def paper_plan(paper_rates):
    return dmlmc.plan(paper_rates, max_level=6, level0_samples=512, allocation="paper")
