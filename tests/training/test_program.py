import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec

import dmlmc
from dmlmc.devices import one_device
from dmlmc.training.evaluation import Start
from dmlmc.training.program import Program, fingerprint

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


def program(samples, factor):
    """A program of one seed with a validation that depends on ``factor``."""
    rates = dmlmc.Rates(1.8, 1.0, 1.0)
    loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    made = Program(
        dmlmc.naive(loss, 1, samples), optax.sgd(0.1), Start(jnp.ones((1, 2))), jax.random.split(jax.random.key(0), 1),
        evaluate=lambda params: (factor * loss.mean(params, 1), {}), mesh=one_device(),
    )  # fmt: skip
    made.compile()
    return made


def test_methods_that_are_validated_alike_compile_the_validation_once():
    one, other, different = program(1, 2.0), program(3, 2.0), program(3, 3.0)
    assert other._evaluate is one._evaluate and different._evaluate is not one._evaluate
    losses = [float(made.evaluate(made.initial)[0][0]) for made in (one, other, different)]
    assert losses == [losses[0], losses[0], 1.5 * losses[0]]
