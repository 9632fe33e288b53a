import jax
import pytest

import dmlmc


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory):
    """Many tests compile the same small programs; compile each once."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def paper_rates():
    return dmlmc.Rates(b=1.8, c=1.0, d=1.0)
