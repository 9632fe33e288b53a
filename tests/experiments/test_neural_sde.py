import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import dmlmc
from dmlmc.experiments import neural_sde
from dmlmc.experiments.neural_sde import DoubleWell, KernelScore, initial_sde, marginals, quantiles

TIMES = (0.5, 1.0)


def twin_loss(terminal, drift, diffusion, coarsest_steps=4):
    return dmlmc.SDELoss(
        drift=lambda t, y, params: drift(y, params),
        diffusion=lambda t, y, params: diffusion(y, params)[:, None],
        terminal=terminal,
        y0=jnp.full(1, 0.5),
        noise_dim=1,
        copies=2,
        t1=1.0,
        coarsest_steps=coarsest_steps,
        observation_times=TIMES,
    )


def gaussian_mmd(mean, variance, points, bandwidth):
    """The exact squared MMD between a normal law and equally likely points."""
    width = bandwidth**2

    def smoothed(distance, spread):
        return bandwidth / np.sqrt(width + spread) * np.exp(-(distance**2) / (2 * (width + spread)))

    points = np.asarray(points, dtype=float)
    among = np.exp(-((points[:, None] - points[None, :]) ** 2) / (2 * width)).mean()
    return smoothed(0.0, 2 * variance) - 2 * smoothed(mean - points, variance).mean() + among


def test_the_mean_score_is_the_exact_distance_for_a_gaussian_process():
    # Brownian motion with drift is exact on any grid: N(1/2 + a t, s^2 t) at time t.
    data = jnp.array([[-1.0, 0.0, 2.0], [0.0, 1.0, 1.5]])
    score, slope, scale = KernelScore(data, bandwidth=0.7), 0.6, 0.9
    loss = twin_loss(score, lambda y, p: jnp.full_like(y, p[0]), lambda y, p: jnp.full_like(y, p[1]))
    params = jnp.array([slope, scale])
    noises = loss.batch(jr.split(jr.key(0), 20_000), 0)
    values = np.asarray(eqx.filter_jit(loss.losses)(params, noises), dtype=float)
    exact = sum(gaussian_mmd(0.5 + slope * t, scale**2 * t, row, 0.7) for t, row in zip(TIMES, data, strict=True))
    error = values.std() / np.sqrt(len(values))
    assert abs(values.mean() - exact) < 4 * error and error < 0.02 * exact
    # distance includes each path with itself, which adds (1 - E k(Y, Y')) / paths per time.
    states = marginals(loss, params, 0, 500, jr.key(1))
    assert states.shape == (2, 500)
    assert abs(float(score.distance(states)) - exact) < 0.2 * exact


def test_the_gradient_is_zero_only_at_the_true_parameters():
    true = jnp.array([0.6, 0.9])

    def drift(y, p):
        return jnp.full_like(y, p[0])

    def diffusion(y, p):
        return jnp.full_like(y, p[1])

    world = twin_loss(lambda y, p: jnp.zeros(()), drift, diffusion)
    data = quantiles(marginals(world, true, 0, 100_000, jr.key(2)), 200)
    loss = twin_loss(KernelScore(data, bandwidth=0.7), drift, diffusion)
    gradient = jax.jit(jax.vmap(jax.grad(loss.loss), in_axes=(None, 0)))
    noises = loss.batch(jr.split(jr.key(3), 20_000), 0)
    for params, zero in ((true, True), (true + jnp.array([0.5, 0.0]), False), (true + jnp.array([0.0, 0.5]), False)):
        found = np.asarray(gradient(params, noises), dtype=float)
        errors = np.abs(found.mean(axis=0)) / (found.std(axis=0) / np.sqrt(len(found)))
        assert np.all(errors < 4) if zero else np.any(errors > 10)


def test_the_two_copies_are_independent_and_have_the_same_law():
    sde = initial_sde(jr.key(0), width=4)
    loss = twin_loss(
        KernelScore(jnp.zeros((2, 1)), 1.0),
        lambda y, p: jax.vmap(p.drift)(y),
        lambda y, p: jax.vmap(p.diffusion)(y),
    )
    states = np.asarray(marginals(loss, sde, 1, 8000, jr.key(1))).reshape(2, 4000, 2)
    for row in states:
        assert abs(np.corrcoef(row.T)[0, 1]) < 4 / np.sqrt(len(row))
        assert abs(np.diff(row.mean(axis=0))[0]) < 4 * row.std() * np.sqrt(2 / len(row))


def test_the_double_well_has_two_stable_points_and_constant_noise():
    well = DoubleWell()
    assert jnp.allclose(jax.vmap(well.drift)(jnp.array([-1.0, 0.0, 1.0])), 0.0)
    slopes = jax.vmap(jax.grad(well.drift))(jnp.array([-1.0, 0.0, 1.0]))
    assert slopes[0] < 0 < slopes[1] and slopes[2] < 0
    assert float(well.diffusion(jnp.array(2.0))) == pytest.approx(well.noise)


def test_quantiles_are_closer_to_the_law_than_random_points():
    points = jr.normal(jr.key(0), (1, 20_000))
    some, best = points[:, :32], quantiles(points, 32)
    assert gaussian_mmd(0.0, 1.0, best[0], 0.5) < 0.1 * gaussian_mmd(0.0, 1.0, some[0], 0.5)


def test_errors_name_the_bad_argument(own_errors):
    with pytest.raises(ValueError, match=r"KernelScore: data must be floats of shape \(times, points\)"):
        KernelScore(jnp.zeros(3), 1.0)
    with pytest.raises(ValueError, match="KernelScore: bandwidth must be positive"):
        KernelScore(jnp.zeros((1, 3)), 0.0)
    with pytest.raises(ValueError, match=r"KernelScore: twins must have shape \(2, 3, 1\)"):
        KernelScore(jnp.zeros((3, 4)), 1.0)(jnp.zeros((3, 2)))
    one_copy = dmlmc.SDELoss(
        lambda t, y, p: y, lambda t, y, p: jnp.ones((1, 1)), lambda y, p: y[0], jnp.zeros(1), 1.0, 4, 1
    )
    with pytest.raises(ValueError, match="marginals: loss must have observation_times, copies=2 and y0 of shape"):
        neural_sde.marginals(one_copy, None, 0, 10, jr.key(0))
