"""Points along a run."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import dmlmc
from tests.helpers.measurements import POINT, quadratic
from tests.helpers.problems import neural_loss, neural_params


def test_iterates_are_those_of_training():
    rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    estimator = dmlmc.delayed_mlmc(quadratic(), dmlmc.plan(rates, 2, level0_samples=8))
    optimiser = optax.adam(0.05)
    met = dmlmc.iterates(estimator, optimiser, jnp.asarray(POINT), [0, 3, 4, 9], jr.key(1))
    assert [at.step for at in met] == [0, 3, 4, 9]
    np.testing.assert_array_equal(met[0].params, POINT)
    np.testing.assert_array_equal(met[1].following, met[2].params)
    trained, _ = dmlmc.train(estimator, optimiser, jnp.asarray(POINT), 10, jr.key(1), progress=False)
    np.testing.assert_allclose(met[3].following, trained, rtol=1e-5)


@pytest.mark.parametrize("stops", [[], [3, 1], [2, 2]])
def test_bad_stops_are_named(stops):
    estimator = dmlmc.naive(quadratic(), 0, 1)
    with pytest.raises(ValueError, match="iterates: stops must be increasing"):
        dmlmc.iterates(estimator, optax.sgd(0.1), jnp.asarray(POINT), stops, jr.key(0))
    with pytest.raises(ValueError, match="iterates: stops must be at least 0"):
        dmlmc.iterates(estimator, optax.sgd(0.1), jnp.asarray(POINT), [-1, 2], jr.key(0))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"estimator": abs}, TypeError, "iterates: estimator must be a dmlmc.GradientEstimator"),
        ({"optimiser": 0.1}, TypeError, "iterates: optimiser must be an optax optimiser"),
        ({"params": 1.0}, TypeError, "iterates: params must hold at least one array"),
        ({"key": 0}, TypeError, "iterates: key must be a key"),
        ({"stops": 3}, ValueError, "iterates: stops must be increasing steps, at least one, got 3"),
        ({"stops": [0.5]}, TypeError, "iterates: stops must be an integer, got 0.5"),
    ],
)
def test_bad_arguments_are_named(own_errors, options, error, message):
    good = {"estimator": dmlmc.naive(quadratic(), 0, 1), "optimiser": optax.sgd(0.1), "params": jnp.asarray(POINT)}
    with pytest.raises(error, match=message):
        dmlmc.iterates(**{**good, "stops": [0], "key": jr.key(0), **options})


def test_stops_may_be_a_numpy_array_and_parameters_a_module():
    met = dmlmc.iterates(
        dmlmc.naive(neural_loss(), 0, 2), optax.sgd(0.1), neural_params(), np.array([1]), jr.key(0)
    )  # fmt: skip
    assert met[0].step == 1 and met[0].params.label == met[0].following.label == 3
    assert np.any(met[0].params.scale != neural_params().scale) and np.any(
        met[0].params.scale != met[0].following.scale
    )
