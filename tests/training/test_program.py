import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from dmlmc.training.program import fingerprint

ROOT = Path(__file__).parents[2]


def two_axes():
    """A traced program on a mesh with two axes, whose names jax may print as a set."""
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("seeds", "samples"))
    program = jax.shard_map(jnp.sin, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False)
    return jax.jit(program).trace(jnp.ones(2))


def test_a_program_has_the_same_fingerprint_in_every_process():
    """Python orders sets of strings by a hash that is random in each process."""
    code = "from tests.training.test_program import *; print(fingerprint(two_axes(), ()))"
    found = set()
    for seed in ("1", "3"):  # two seeds that order {"seeds", "samples"} differently
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1


def test_a_constant_changes_the_fingerprint():
    programs = [jax.jit(lambda x, rate=rate: rate * x).trace(1.0) for rate in (0.1, 0.2)]
    assert fingerprint(programs[0], ()) != fingerprint(programs[1], ())
    assert fingerprint(programs[0], jnp.ones(2)) != fingerprint(programs[0], jnp.zeros(2))
