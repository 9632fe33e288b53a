"""Gradients with three derivatives of silu: jax's own, the tangent times the slope, and the library's.

``python -m tests.benchmarks.silu`` prints how many times longer the first two take, for any SDE and for the fast loss
of deep hedging. Takes three minutes.
"""

from functools import partial
from itertools import product

import jax

from dmlmc._internal import jaxpr_rewriting
from dmlmc.calibration.interval import median_ratio
from dmlmc.calibration.timing import in_turn
from dmlmc.experiments import hedging
from tests.benchmarks import peers, problem


@jax.custom_jvp
def with_slope(x):
    return x * jax.lax.logistic(x)


@with_slope.defjvp
def _with_slope_jvp(primals, tangents):
    sigmoid, value = jax.lax.logistic(*primals), with_slope(*primals)
    return value, tangents[0] * (sigmoid + value * (1 - sigmoid))


FORMS = {"jax": jax.nn.silu, "slope": with_slope, "ours": jaxpr_rewriting.silu}


LOSSES = {"any SDE": problem.LOSS, "fast loss": hedging.FastHedgingLoss(rows=640)}


def compiled(silu, loss, level, samples, coupled):
    """The gradient with this silu in place of the library's."""
    before, jaxpr_rewriting.silu = jaxpr_rewriting.silu, silu
    try:
        gradient = peers.ours(loss, level, samples, coupled)
        return problem.compiled(problem.of_leaves(gradient), problem.LEAVES, problem.KEY)[0]
    finally:
        jaxpr_rewriting.silu = before


def measure(report=print):
    for (which, loss), (name, *case) in product(LOSSES.items(), peers.cases(512)[:5]):
        programs = {form: compiled(silu, loss, *case) for form, silu in FORMS.items()}
        calls = {form: partial(made, problem.LEAVES, problem.KEY) for form, made in programs.items()}
        timed = in_turn(calls, repeats=31)
        *others, (_, ours) = timed.repeats.items()
        ratios = (f"{form} {median_ratio(seconds, ours)}" for form, seconds in others)
        report(f"{which}, {name}: {timed.seconds['ours'] * 1e3:.2f} ms; over it:", ", ".join(ratios), flush=True)


if __name__ == "__main__":
    measure()
