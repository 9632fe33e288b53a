"""Points along a run."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import dmlmc
from tests.helpers.measurements import POINT, quadratic


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
