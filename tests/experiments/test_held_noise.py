import pytest

import dmlmc
from dmlmc.experiments import held_noise, tuned
from dmlmc.theory.theorem import Problem

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)


def test_the_table_of_long_run_variances_has_the_numbers_of_the_plans():
    table = held_noise.long_run_table([2, 6], RATES, 512).set_index("max_level")
    paper = dmlmc.plan(RATES, 6, level0_samples=512, allocation="paper")
    assert table.paper[6] == pytest.approx(paper.long_run_variance() / paper.variance())
    assert table.held.tolist() == pytest.approx([1.0, 1.0]) and table.paper[2] < table.paper[6]


def test_stationary_errors_tend_to_the_ratios_of_long_run_variances():
    problem = Problem(L=1.0, M=1.0, rates=RATES, max_level=4, gap=1.0)
    errors = held_noise.stationary_errors(problem, 64, [1e-5]).set_index("method").error
    paper = dmlmc.plan(RATES, 4, level0_samples=64, allocation="paper")
    assert errors[tuned.DELAYED_PAPER] / errors["MLMC"] == pytest.approx(
        paper.long_run_variance() / paper.variance(), rel=1e-2
    )
    held = dmlmc.plan(RATES, 4, level0_samples=64)
    ratio = held.long_run_variance() / held.without_delay().variance()
    assert errors[tuned.DELAYED_HELD] / errors["MLMC"] == pytest.approx(ratio, rel=1e-2)
    assert errors["randomised MLMC"] / errors[tuned.DELAYED_HELD] == pytest.approx(1.0, rel=1e-2)
