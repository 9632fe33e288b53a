"""Small problems for several test files."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from hypothesis import strategies as st

import dmlmc

rates_strategy = st.builds(
    lambda c, gap, d: dmlmc.Rates(b=c + gap, c=c, d=d),
    st.floats(0.25, 2.0),
    st.floats(0.1, 2.0),
    st.floats(0.0, 2.5),
)


class Neural(eqx.Module):
    """Parameters of a small neural SDE: an equinox module with functions and integers among its leaves."""

    drift: eqx.nn.MLP
    scale: jax.Array
    label: int = 3


def neural_loss(dtype=jnp.float32, **options):
    """A smooth two-dimensional SDE with a learned drift and state-dependent, diagonal (commutative) noise."""
    settings = {"y0": jnp.array([0.5, -0.2], dtype), "t1": 1.0, "coarsest_steps": 4, "noise_dim": 2, **options}
    return dmlmc.SDELoss(
        drift=lambda t, y, params: params.drift(y) - y,
        diffusion=lambda t, y, params: jnp.diag(params.scale * (1 + 0.5 * jnp.sin(y + t))),
        terminal=lambda y, params: jnp.sum((y - 1) ** 2),
        **settings,
    )


def neural_params(dtype=jnp.float32):
    network = eqx.nn.MLP(2, 2, 4, 1, jax.nn.softplus, key=jax.random.key(7), dtype=dtype)
    return Neural(network, jnp.array([0.3, 0.4], dtype))


class StoredPath(diffrax.AbstractBrownianPath):
    """A Brownian path stored on a uniform grid, for solves by diffrax."""

    values: jax.Array
    t1: float
    t0: float = 0.0
    levy_area: type = eqx.field(default=diffrax.BrownianIncrement, static=True)

    def evaluate(self, t0, t1=None, left=True, use_levy=False):
        def at(t):
            return self.values[jnp.round(t / self.t1 * (self.values.shape[0] - 1)).astype(int)]

        return at(t1) - at(t0)
