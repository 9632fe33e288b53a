import numpy as np
import pandas as pd
import pytest

import dmlmc
from dmlmc.experiments import replanned
from tests.helpers.runs import PLAN, QUADRATIC, RATES, run


def went_on(plan, **options):
    """A run of 30 steps, and the same one that goes on from step 20 with another plan."""
    seen = []
    _, whole = run(30, callback=seen.append)
    middle = next(info for info in seen if info.step == 20)
    _, changed = run(30, estimator=dmlmc.delayed_mlmc(QUADRATIC, plan), params=middle, **options)
    return whole, changed


def test_the_same_plan_neither_gains_nor_loses():
    whole, changed = went_on(PLAN)
    late = whole[whole.step >= 20].reset_index(drop=True).drop(columns="seconds")
    pd.testing.assert_frame_equal(late, changed.drop(columns="seconds"), check_exact=True)
    assert np.all(replanned.gains(whole, changed)[["gain", "low", "high"]] == 1)


def test_plans_are_compared_at_equal_cost():
    longer = dmlmc.plan(RATES, 2, samples=[8, 4, 2], periods=[1, 4, 8], allocation="paper")
    whole, changed = went_on(longer)
    assert changed.span.max() < whole.span.max()
    table = replanned.gains(whole, changed).set_index("cost")
    assert table.spent["span"] == changed.span.max() and table.spent["step"] == 30
    old, new = (record[record.step == 30].set_index("seed").loss for record in (whole, changed))
    assert table.gain["step"] == pytest.approx(np.exp(np.log(old / new).mean()))
    assert table.low["step"] < table.gain["step"] < table.high["step"]


def test_a_run_that_is_stopped_early_is_compared_at_what_it_has_spent():
    whole, changed = went_on(PLAN, callback=lambda info: info.step >= 25)
    table = replanned.gains(whole, changed).set_index("cost")
    assert table.spent["step"] == 25 and np.all(table.gain == 1)
