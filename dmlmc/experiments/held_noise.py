"""What held noise does to SGD on a quadratic loss, where it is exact: tables for figures."""

from collections.abc import Sequence

import pandas as pd

from dmlmc.allocation import plan
from dmlmc.experiments.tuned import DELAYED_HELD, DELAYED_PAPER
from dmlmc.rates import Rates
from dmlmc.schedule import ALLOCATIONS, HELD, MLMC, PAPER, RANDOMISED
from dmlmc.theory.held_noise import randomised_error, stationary_error
from dmlmc.theory.quadratic import delayed_model
from dmlmc.theory.theorem import Problem


def long_run_table(max_levels: Sequence[int], rates: Rates, level0_samples: int) -> pd.DataFrame:
    """The long-run variance of plans over the variance of one step of MLMC, for each finest level.

    >>> long_run_table([6], Rates(b=1.8, c=1.0, d=1.0), 512).round(2).to_dict("records")
    [{'max_level': 6, 'paper': 8.8, 'held': 1.0, 'mlmc': 1.0}]
    """
    rows = []
    for level in max_levels:
        held, paper = (plan(rates, level, level0_samples=level0_samples, allocation=kind) for kind in ALLOCATIONS)
        mlmc = paper.without_delay().variance()
        noise = {PAPER: paper.long_run_variance() / mlmc, HELD: held.long_run_variance() / mlmc}
        rows.append({"max_level": level, **noise, "mlmc": 1.0})
    return pd.DataFrame(rows)


def stationary_errors(problem: Problem, level0_samples: int, step_sizes: Sequence[float]) -> pd.DataFrame:
    """The exact stationary ``E|grad F|^2`` of four methods on the quadratic loss, against the step size.

    >>> problem = Problem(L=1.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0), max_level=2, gap=1.0)
    >>> stationary_errors(problem, 16, [0.1]).method.tolist()
    ['MLMC', "delayed MLMC, paper's counts", 'delayed MLMC, held counts', 'randomised MLMC']
    """
    rates, top = problem.rates, problem.max_level
    held_plan, paper_plan = (plan(rates, top, level0_samples=level0_samples, allocation=kind) for kind in ALLOCATIONS)
    plans = (held_plan, paper_plan, held_plan.without_delay())
    held, paper, mlmc = (delayed_model(problem, one) for one in plans)
    methods = {
        MLMC: (stationary_error, mlmc),
        DELAYED_PAPER: (stationary_error, paper),
        DELAYED_HELD: (stationary_error, held),
        RANDOMISED: (randomised_error, held),
    }
    rows = [(method, a, error(model, a)) for method, (error, model) in methods.items() for a in step_sizes]
    return pd.DataFrame(rows, columns=["method", "step_size", "error"])
