"""The naive gradient with torchsde, with the same network, noise and float width; skipped if it is not installed.

Both sides use Euler's scheme. In torchsde, Milstein's gives a different result for this SDE, whose two components share
one noise, and a comparison needs equal results.
"""

import importlib.util
from collections.abc import Callable
from functools import partial

import diffrax
import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from dmlmc.calibration.timing import in_turn
from dmlmc.gradients import mean_gradient
from tests.benchmarks import problem

INSTALLED = importlib.util.find_spec("torchsde") is not None


def naive_gradient(level: int, samples: int, key: Key[Array, ""]) -> Callable[[], Float[np.ndarray, " parameters"]]:
    """A function that returns the gradient as one vector: the layers in order, then the price."""
    import torch
    import torchsde

    device = "cuda" if jax.default_backend() == "gpu" else "cpu"  # the kind of device that jax uses

    def tensor(array):
        return torch.tensor(np.array(array), requires_grad=True, device=device)

    layers = [(tensor(layer.weight), tensor(layer.bias)) for layer in problem.PARAMS.network.layers]
    price = tensor(problem.PARAMS.price)
    noise = torch.tensor(np.array(problem.LOSS.batch(jax.random.split(key, samples), level)), device=device)
    steps, market = noise.shape[1], problem.TRAINED.market

    class Hedging(torch.nn.Module):
        sde_type, noise_type = "ito", "scalar"

        def holdings(self, t, y):
            x = torch.stack([t.expand(len(y)), y[:, 0]], dim=1)
            for weight, bias in layers[:-1]:
                x = torch.nn.functional.silu(x @ weight.T + bias)
            ratio = torch.sigmoid(x @ layers[-1][0].T + layers[-1][1])
            return y[:, :1] * torch.cat([torch.ones_like(ratio), ratio], dim=1)

        def f(self, t, y):
            return market.drift * self.holdings(t, y)

        def g(self, t, y):
            return market.volatility * self.holdings(t, y)[:, :, None]

    class StoredIncrements:
        dtype, device, shape = noise.dtype, noise.device, (samples, 1)
        levy_area_approximation = "none"

        def __call__(self, t0, t1=None, return_U=False, return_A=False):
            if float(t1 - t0) * steps < 0.5:  # a remainder at the end, from rounding in the sum of the times
                return torch.zeros_like(noise[:, 0])
            return noise[:, round(float(t0) * steps)]

    def gradient():
        start = torch.tensor([[market.spot, 0.0]], dtype=noise.dtype, device=device).repeat(samples, 1)
        times = torch.linspace(0.0, market.maturity, 2, device=device)
        states = torchsde.sdeint(
            Hedging(), start, times, bm=StoredIncrements(), method="euler", dt=market.maturity / steps
        )
        last = states[-1]
        loss = torch.mean((torch.relu(last[:, 0] - market.strike) - last[:, 1] - price) ** 2)
        wanted = [array for layer in layers for array in layer] + [price]
        return np.concatenate([one.cpu().numpy().ravel() for one in torch.autograd.grad(loss, wanted)])

    return gradient


def ratio(level: int, samples: int, key: Key[Array, ""]) -> float:
    """Seconds of torchsde over ours, for the same gradient."""
    loss = eqx.tree_at(lambda loss: loss.solver, problem.LOSS, diffrax.Euler())
    ours = eqx.filter_jit(mean_gradient(loss.losses, loss, level, samples))
    theirs = naive_gradient(level, samples, key)
    with jax.default_matmul_precision("highest"):  # as torch multiplies, also where jax would round the factors
        expected = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(ours(problem.PARAMS, key))])
    np.testing.assert_allclose(theirs(), expected, rtol=1e-2, atol=1e-3 * np.max(np.abs(expected)))
    found = in_turn({"ours": partial(ours, problem.PARAMS, key), "theirs": theirs}, repeats=3).seconds
    return float(found["theirs"] / found["ours"])
