"""The proof of the theorem step by step, on a quadratic loss with exact moments. No JAX.

Each lemma replaces the error ``E|grad F(x_t) - g_t|^2`` by something larger. This module evaluates all of these bounds
along one run, to show which of them are loose.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float

from dmlmc.schedule import DELAYED, MLMC, Plan
from dmlmc.theory.quadratic import delayed_model, exact_moments
from dmlmc.theory.theorem import Problem, bound, largest_beta, lemma_constants, theorem_step_size


def error_bounds(problem: Problem, samples: float, steps: int) -> pd.DataFrame:
    """The exact error at each step of a run at the theorem's step size, and the bounds that the lemmas give.

    Columns: ``exact``; ``orthogonal``, with the orthogonal noise of ``dmlmc.theory.staleness`` (step 2) and, because
    its step 3 needs the sum over t, Cauchy-Schwarz at each t for the staleness; ``lemma 1``, with the exact past on its
    right-hand side; ``kernel``, the same after the re-indexing to 1 / (t - s); ``lemma 2``, with K1 and K2; ``remark``,
    with the remark's upper bounds on K1 and K2.
    """
    plan, beta = problem.plan(samples), largest_beta(problem, steps)
    alpha = theorem_step_size(problem, DELAYED, steps)
    gradient, error = exact_moments(delayed_model(problem, plan), problem.gap, alpha, steps)
    noise, levels = problem.variance(MLMC, samples), problem.max_level + 1
    C1, C2, K1, K2 = lemma_constants(problem, beta, steps)
    weight, stale = _stale_sums(problem, plan, alpha, error + gradient)
    kernel = np.concatenate([[0.0], 1 / np.arange(1, steps)])
    past_both = np.convolve(kernel, error + gradient)[:steps]
    past_gradient = np.convolve(kernel, gradient)[:steps]
    columns = {
        "exact": error,
        "orthogonal": 2 * noise + 2 * 2 * weight * stale,
        "lemma 1": (levels + 2 * weight) * (noise + stale),
        "kernel": C1 * noise + C2 * past_both,
        "lemma 2": K1 * noise + K2 * past_gradient,
        "remark": 4 * levels * noise + 4 * beta * levels * problem.smoothness_sum * past_gradient,
    }
    return pd.DataFrame({"step": np.arange(steps), "gradient": gradient} | columns)


def looseness(problem: Problem, samples: float, steps: int) -> pd.DataFrame:
    """The bound on the average squared gradient norm after each step of the proof, from the exact value to the theorem.

    The rows after the first insert a bound on the error into the lemma on biased SGD. ``factor`` is the ratio to the
    row above.
    """
    alpha, noise = theorem_step_size(problem, DELAYED, steps), problem.variance(MLMC, samples)
    bounds, La = error_bounds(problem, samples, steps), problem.L_prime * alpha

    def inserted(errors: pd.Series) -> float:
        right = problem.gap / (alpha * steps) + (0.5 + La) * float(np.mean(errors)) + La * noise / 2
        return right / (0.5 - La)

    values = {"exact average": float(bounds.gradient.mean()), "biased SGD, exact error": inserted(bounds.exact)}
    names = {"lemma 1": "Bounded Bias 1", "kernel": "kernel 1/(t-s)", "lemma 2": "Bounded Bias 2", "remark": "remark"}
    values |= {name: inserted(bounds[column]) for column, name in names.items()}
    values["theorem"] = bound(problem, DELAYED, samples, steps).total
    table = pd.DataFrame({"step of the proof": list(values), "value": list(values.values())})
    return table.assign(factor=table.value / table.value.shift(1))


def _stale_sums(
    problem: Problem, plan: Plan, alpha: float, terms: Float[np.ndarray, " steps"]
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
    """For each t the sum over l and tau_l(t) <= s < t of ``2^(-d l) L alpha``, and of the same times ``terms[s]``."""
    t, running = np.arange(len(terms)), np.concatenate([[0.0], np.cumsum(terms)])
    weight, weighted = np.zeros(len(t)), np.zeros(len(t))
    for level, period in enumerate(plan.periods):
        coefficient, last = 2.0 ** (-problem.rates.d * level) * problem.L * alpha, t - t % period
        weight += coefficient * (t - last)
        weighted += coefficient * (running[t] - running[last])
    return weight, weighted
