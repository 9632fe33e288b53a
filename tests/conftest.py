import gc

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

# Traced programs are many small objects that live long. Looking for garbage among them takes time: do it rarely.
gc.set_threshold(100_000, 50, 100)


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
