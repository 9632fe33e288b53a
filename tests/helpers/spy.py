"""A loss whose gradient shows which noise and which parameters each level was last refreshed with."""

import jax
import jax.numpy as jnp
import numpy as np

import dmlmc


class Spy(dmlmc.MultilevelLoss):
    """A loss whose gradient tells, component l, with which noise and at which params level l was last refreshed.

    ``D_l = params[l] xi_l + params[l]^2 / 2``, so component l of grad D_l is the mean noise plus params[l].
    """

    def sample(self, key, level):
        return jax.random.normal(key, (level + 1,))

    def coarsen(self, noise):
        return noise[:-1]

    def loss(self, params, noise):
        used = params[: noise.shape[0]]
        return jnp.sum(used * noise + used**2 / 2)


def small_plan(periods=(1, 2, 4), samples=(5, 3, 2)):
    return dmlmc.plan(
        dmlmc.Rates(1.8, 1.0, 1.0), len(samples) - 1, samples=samples, periods=periods, allocation="paper"
    )


def assert_close(found, expected, rtol=1e-9):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-12)


MAKERS = {
    "naive": lambda **options: dmlmc.naive(Spy(), 2, 5, **options),
    "MLMC": lambda **options: dmlmc.mlmc(Spy(), small_plan(), **options),
    "delayed MLMC": lambda **options: dmlmc.delayed_mlmc(Spy(), small_plan(), **options),
    "randomised MLMC": lambda **options: dmlmc.randomised_mlmc(Spy(), small_plan(), **options),
}
