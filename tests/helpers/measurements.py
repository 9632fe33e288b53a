"""Measurements of a loss with known rates, for the tests of calibration."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

import dmlmc

TRUE = dmlmc.Rates(b=1.6, c=1.0, d=0.9)
POINT, NEARBY = np.ones(3), np.array([1.0, 1.1, 0.8])  # NumPy, because the JAX dtype depends on the test's x64 setting


def quadratic():
    return dmlmc.QuadraticLoss(dimension=3, L=2.0, M=0.5, rates=TRUE)


def measure(loss=None, params=POINT, other=NEARBY, key=0, **options):
    params, other = (jnp.asarray(point) if isinstance(point, np.ndarray) else point for point in (params, other))
    settings = {"max_level": 2, "samples": 256, "blocks": 16, **options}
    return dmlmc.measure_levels(loss or quadratic(), params, other, jr.key(key), **settings)
