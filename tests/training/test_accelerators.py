"""Every program that a user compiles lowers for CUDA and TPU: no accelerator is needed to see that."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

import dmlmc
from dmlmc.calibration.levels import _lone_blocks, _pair_blocks
from dmlmc.devices import one_device
from dmlmc.training.evaluation import Start
from dmlmc.training.program import Program
from tests.helpers.problems import neural_loss, neural_params

PLATFORMS = ["cuda", "tpu"]
PLAN = dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=1.0), 2, level0_samples=4)
ESTIMATORS = {
    "naive": lambda loss: dmlmc.naive(loss, 1, 3),
    "MLMC": lambda loss: dmlmc.mlmc(loss, PLAN),
    "delayed MLMC": lambda loss: dmlmc.delayed_mlmc(loss, PLAN),
    "randomised MLMC": lambda loss: dmlmc.randomised_mlmc(loss, PLAN),
    "streaming MLMC": lambda loss: dmlmc.streaming_mlmc(loss, PLAN),
    "streaming MLMC, stride 2": lambda loss: dmlmc.streaming_mlmc(loss, PLAN, stride=2),
}


def assert_runs_there(traced, platforms=PLATFORMS):
    """It lowers for each of them, and neither asks for 64 bits nor calls back to Python. It is traced once for all."""
    for platform in platforms:
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "stablehlo" in text, platform
        assert "f64" not in text and "callback" not in text, platform


@pytest.mark.parametrize("method", ESTIMATORS)
def test_training_and_validation_lower_for_accelerators(method):
    """The steps of a run with two seeds, and the validation of ``mean_loss``."""
    loss, keys = neural_loss(), jax.random.split(jax.random.key(0), 2)
    start = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2) if eqx.is_inexact_array(leaf) else leaf, neural_params())

    def evaluate(params):
        return dmlmc.mean_loss(loss, params, 2, 8, jax.random.key(1)), {}

    program = Program(
        ESTIMATORS[method](loss), optax.adam(0.01), Start(start), keys, evaluate=evaluate, mesh=one_device()
    )
    assert_runs_there(program._advance)
    assert_runs_there(program._evaluate)


@pytest.mark.parametrize("antithetic", [False, True])
def test_measurements_lower_for_accelerators(antithetic):
    loss, params = neural_loss(antithetic=antithetic), neural_params()
    arguments = loss, params, params, 1, 4, jnp.asarray(2), 8
    assert_runs_there(jax.jit(lambda key: _pair_blocks(*arguments, key, 2)).trace(jax.random.key(0)))
    assert_runs_there(jax.jit(lambda key: _lone_blocks(*arguments, key)).trace(jax.random.key(0)))


@pytest.mark.parametrize("wrong", ["64 bits", "a callback"])
def test_a_program_that_would_not_run_there_is_found(wrong):
    """The test above can fail: by a 64-bit number, and by a call back to Python."""
    with jax.enable_x64(wrong == "64 bits"):

        def function(x):
            if wrong == "64 bits":
                return x.astype(jnp.float64).sum()
            return jax.pure_callback(lambda y: y, x, x)

        traced = jax.jit(function).trace(jnp.ones(2, jnp.float32))
        with pytest.raises((AssertionError, ValueError)):  # JAX itself may refuse
            assert_runs_there(traced, ["cuda"])
