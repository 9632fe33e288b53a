"""Gradients as a user would write them without dmlmc, for the same problem, batches and float width."""

from functools import partial

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

import dmlmc
from dmlmc.brownian import coarsen
from dmlmc.calibration.timing import in_turn
from dmlmc.experiments import hedging
from dmlmc.gradients import mean_gradient
from tests.benchmarks import problem
from tests.benchmarks.problem import KEY, LEAVES, LOSS, of_leaves
from tests.helpers.paths import path
from tests.helpers.problems import StoredPath


def diffrax_losses(params: PyTree, noises: Float[Array, "samples steps 1"]) -> Float[Array, " samples"]:
    """The losses of a batch with ``diffrax.diffeqsolve``, constant steps and its default adjoint."""

    def one(noise):
        steps, control = noise.shape[0], StoredPath(path(noise), t1=LOSS.t1)
        terms = diffrax.MultiTerm(diffrax.ODETerm(LOSS.drift), diffrax.ControlTerm(LOSS.diffusion, control))
        grid = diffrax.StepTo(jnp.linspace(0.0, LOSS.t1, steps + 1))
        solution = diffrax.diffeqsolve(
            terms, diffrax.ItoMilstein(), 0.0, LOSS.t1, None, LOSS.y0, params,
            stepsize_controller=grid, max_steps=steps,
        )  # fmt: skip
        return LOSS.terminal(solution.ys[-1], params)

    return jax.vmap(one)(noises)


def scan_losses(params: PyTree, noises: Float[Array, "samples steps 1"]) -> Float[Array, " samples"]:
    """The same with a plain ``lax.scan`` over Milstein steps for one-dimensional noise, without rematerialisation."""

    def one(noise):
        dt = LOSS.t1 / noise.shape[0]

        def step(carry, dw):
            t, y = carry
            column = LOSS.diffusion(t, y, params)[:, 0]
            _, along = jax.jvp(lambda y: LOSS.diffusion(t, y, params)[:, 0], (y,), (column,))
            y = y + LOSS.drift(t, y, params) * dt + column * dw + along * (dw**2 - dt) / 2
            return (t + dt, y), None

        (_, last), _ = jax.lax.scan(step, (0.0, LOSS.y0), noise[:, 0])
        return LOSS.terminal(last, params)

    return jax.vmap(one)(noises)


class Unchanged(diffrax.ItoMilstein):
    """diffrax's own Milstein step. dmlmc replaces ``ItoMilstein`` by its own step, but not a subclass."""


def ours(loss, level, samples, coupled):
    """The gradient as the library's estimators compute it."""
    function = partial(loss.differences, level=level) if coupled else loss.losses
    return mean_gradient(function, loss, level, samples)


def theirs(losses, level, samples, coupled):
    """``gradient(params, key)`` of the mean over fresh noise of F_level, or of D_level if coupled."""

    @eqx.filter_grad
    def gradient(params, key):
        noises = LOSS.batch(jax.random.split(key, samples), level)
        values = losses(params, noises)
        if coupled and level:
            values = values - losses(params, jax.vmap(coarsen)(noises))
        return jnp.mean(values)

    return gradient


WRITTEN = {
    "dmlmc": partial(ours, problem.TRAINED),
    "dmlmc, any SDE": partial(ours, LOSS),
    "dmlmc, diffrax's Milstein": partial(ours, eqx.tree_at(lambda loss: loss.solver, LOSS, Unchanged())),
    "diffrax.diffeqsolve": partial(theirs, diffrax_losses),
    "lax.scan": partial(theirs, scan_losses),
}


def measure(cases, report=print):
    """For each gradient: seconds, compile seconds and bytes of each implementation."""
    found = {}
    for name, level, samples, coupled in cases:
        programs, entry = {}, {}
        for way, written in WRITTEN.items():
            programs[way], seconds = problem.compiled(of_leaves(written(level, samples, coupled)), LEAVES, KEY)
            memory = programs[way].memory_analysis()
            entry[way] = {"compile_seconds": seconds, "bytes": memory.temp_size_in_bytes if memory else None}
        calls = {way: partial(made, LEAVES, KEY) for way, made in programs.items()}
        check_that_all_agree(level, samples, coupled, programs)
        # A level takes milliseconds, and other load on the machine comes in bursts: more repeats outlast them.
        timed = in_turn(calls, repeats=45 if coupled else 15)
        for way in entry:
            entry[way] |= timed.loc[way].to_dict()
        found[name] = entry
        report(f"{name:8}", "  ".join(f"{way} {one['seconds'] * 1e3:.2f} ms" for way, one in entry.items()))
    return found


def check_that_all_agree(level, samples, coupled, programs):
    """All implementations compute the same gradient.

    Accelerators round the factors of 32-bit products, to 10 bits or less. There the gradients are compiled again for
    this check, in full 32 bits.
    """
    if jax.default_backend() != "cpu":
        with jax.default_matmul_precision("highest"):
            again = {way: of_leaves(written(level, samples, coupled)) for way, written in WRITTEN.items()}
            programs = {way: problem.compiled(function, LEAVES, KEY)[0] for way, function in again.items()}
    one, *others = (jax.flatten_util.ravel_pytree(program(LEAVES, KEY))[0] for program in programs.values())
    for way, other in zip([*programs][1:], others, strict=True):
        assert jnp.allclose(one, other, rtol=1e-2, atol=1e-3 * jnp.max(jnp.abs(one))), (way, level)


def whole_programs(cases, report=print):
    """Seconds to trace and compile one program with the gradients of all levels, for each implementation."""
    found = {}
    for way, written in WRITTEN.items():
        all_levels = problem.together([written(*case) for name, *case in cases if name != "naive"])
        jax.clear_caches()  # as in a fresh process
        found[way] = problem.compiled(of_leaves(all_levels), LEAVES, KEY)[1]
        report(f"{way}: all levels compiled in {found[way]:.1f} s")
    return found


def ratios(found, whole, way, ours="dmlmc"):
    """Seconds of another implementation over ours: naive, each level, and compilation of all levels."""
    levels = {name: entry[way]["seconds"] / entry[ours]["seconds"] for name, entry in found.items()}
    return {"ours": ours, "naive": levels.pop("naive"), "levels": levels, "compile": whole[way] / whole[ours]}


def floating_point_operations(cases):
    """Operations of each gradient, counted by XLA. It counts a loop body once, so ``rows`` is set to avoid the loop.

    Only the CPU's client counts before compilation. After it, a GPU's matrix products are library calls, which count 0.
    """
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        in_one_piece, found = hedging.FastHedgingLoss(rows=10**9), {}
        leaves, key = jax.eval_shape(lambda: LEAVES), jax.random.key(0)  # LEAVES itself may be on another device
        for name, level, samples, coupled in cases:
            function = of_leaves(ours(in_one_piece, level, samples, coupled))
            found[name] = jax.jit(function).lower(leaves, key).cost_analysis()["flops"]
    return found


def cases(level0_samples):
    """Level and batch of each gradient at the experiment's settings: naive at level 6, and every coupled level."""
    plan = dmlmc.plan(problem.RATES, 6, level0_samples=level0_samples, allocation="paper")
    levels = [(f"level {level}", level, samples, True) for level, samples in enumerate(plan.samples)]
    return [("naive", 6, plan.naive_samples(), False), *levels]
