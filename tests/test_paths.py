"""Paths and coupled pairs against a loop in NumPy, for a solver with a state and for times that are not equally far."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmlmc.paths import Simulator, coupled_batch, coupled_paths, one_path

TIMES = np.array([0.0, 0.125, 0.375, 0.5, 1.0, 1.25, 2.0])
RATES, START = np.array([0.5, -0.25]), np.array([1.0, 2.0])
NOISES = np.random.default_rng(0).normal(size=(6, 3, 2))


class TwoSteps(diffrax.Euler):
    """Euler's step with 3/2 of its own time and increment, less 1/2 of those before, which are its state."""

    def init(self, terms, t0, t1, y0, args):
        return terms.contr(t0, t1)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        control = terms.contr(t0, t1)
        weighted = jax.tree.map(lambda now, before: 1.5 * now - 0.5 * before, control, solver_state)
        y1 = y0 + terms.vf_prod(t0, y0, args, weighted)
        return y1, None, {"y0": y0, "y1": y1}, control, diffrax.RESULTS.successful


def drift(t, y, args):
    return args * y + t


def diffusion(t, y, args):
    return (y * args)[:, None] * np.array([1.0, 2.0]) + t


def simulator(context=1.0, keep=True, solver=None):
    def terms(increment):
        control = diffrax.ControlTerm(diffusion, lambda t0, t1: increment)
        return diffrax.MultiTerm(diffrax.ODETerm(drift), control)

    return Simulator(solver or TwoSteps(), terms, context * jnp.asarray(START), context * jnp.asarray(RATES), keep)


def states(times, noise, context=1.0):
    """The state after every step, for the fields and the solver above."""
    y, rates, found = context * START, context * RATES, []
    before = times[1] - times[0], 0.0
    for t0, t1, increment in zip(times[:-1], times[1:], noise, strict=True):
        dt, dw = 1.5 * (t1 - t0) - 0.5 * before[0], 1.5 * increment - 0.5 * before[1]
        y, before = y + drift(t0, y, rates) * dt + diffusion(t0, y, rates) @ dw, (t1 - t0, increment)
        found.append(y)
    return np.array(found)


def pair_of_states(noise, antithetic, context=1.0):
    """The states of each path on the coarse grid: coarse, fine, and fine with swapped increments."""
    swapped = noise.reshape(3, 2, 2)[:, ::-1].reshape(6, 2)
    fine = [states(TIMES, one, context)[1::2] for one in [noise, swapped][: 1 + antithetic]]
    return [states(TIMES[::2], noise[0::2] + noise[1::2], context), *fine]


def assert_same(found, expected, keep):
    assert len(found) == len(expected)
    for (last, seen), wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(last, wanted[-1], rtol=1e-12)
        assert (seen is not None) == keep
        if keep:
            np.testing.assert_allclose(seen, wanted, rtol=1e-12)


@pytest.mark.parametrize("keep", [True, False])
def test_one_path_is_that_of_a_loop(x64, keep):
    noise = NOISES[:, 0]
    found = jax.jit(lambda times, noise: one_path(simulator(keep=keep), times, noise))(TIMES, noise)
    assert_same([found], [states(TIMES, noise)], keep)


@pytest.mark.parametrize(("antithetic", "keep"), [(True, True), (False, False)])
def test_coupled_paths_are_those_of_a_loop(x64, antithetic, keep):
    noise = NOISES[:, 0]
    coupled = jax.jit(lambda times, noise: coupled_paths(simulator(keep=keep), times, noise, antithetic=antithetic))
    assert_same(coupled(TIMES, noise), pair_of_states(noise, antithetic), keep)


@pytest.mark.parametrize(
    ("pairs", "antithetic", "keep"), [(3, True, True), (3, False, False), (2, False, True), (1, True, False)]
)
def test_a_batch_of_pairs_is_that_of_a_loop(x64, pairs, antithetic, keep):
    """Each pair has its own context. Of an odd number of pairs one is in both halves."""
    contexts, noises = np.array([1.0, 0.5, -2.0])[:pairs], NOISES[:, :pairs]

    @jax.jit
    def batch(contexts, times, noises):
        return coupled_batch(lambda context: simulator(context, keep), contexts, times, noises, antithetic=antithetic)

    found = batch(contexts, TIMES, noises)
    each = [pair_of_states(noises[:, i], antithetic, context) for i, context in enumerate(contexts)]
    assert_same(found, [np.stack(paths, axis=1) for paths in zip(*each, strict=True)], keep)


def test_without_antithetic_and_without_contexts_there_are_two_paths_of_each_pair(x64):
    noises = NOISES[:, :2]
    each = [pair_of_states(NOISES[:, i], False) for i in range(2)]
    found = jax.jit(lambda times, noise: coupled_paths(simulator(), times, noise))(TIMES, noises[:, 0])
    assert_same(found, each[0], keep=True)
    batch = jax.jit(lambda times, noises: coupled_batch(lambda context: simulator(), None, times, noises))
    found = batch(TIMES, noises)
    assert_same(found, [np.stack(paths, axis=1) for paths in zip(*each, strict=True)], keep=True)


def test_no_step_comes_after_a_jump(x64):
    """Heun's reversible step would forget its state at a jump."""
    noise, reversible = NOISES[:, 0], simulator(solver=diffrax.ReversibleHeun())
    solver, y, args = reversible.solver, reversible.y0, reversible.args

    @jax.jit
    def step(y, state, t0, t1, increment):
        y, _, _, state, _ = solver.step(reversible.terms(increment), t0, t1, y, args, state, made_jump=False)
        return y, state

    state = solver.init(reversible.terms(jnp.asarray(noise[0])), TIMES[0], TIMES[1], y, args)
    for t0, t1, increment in zip(TIMES[:-1], TIMES[1:], noise, strict=True):
        y, state = step(y, state, t0, t1, increment)
    found, _ = jax.jit(lambda times, noise: one_path(reversible, times, noise))(TIMES, noise)
    np.testing.assert_allclose(found, y, rtol=1e-12)
