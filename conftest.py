"""Settings of JAX for a whole test run: the tests, the kernels of the notebooks, and what tests start.

They are environment variables, so that the workers of xdist and all other processes have them, too.
"""

import os
import tempfile

# Tests compile far more than they run. Without XLA's expensive passes they take little more than half the time.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

# Many of them compile the same programs, most of them small. A cache may be brought along.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.TemporaryDirectory(prefix="dmlmc-compiled-")  # removed when this process ends
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
