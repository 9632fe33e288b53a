import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pandas as pd
import pytest

import dmlmc
from dmlmc.experiments import replanned
from dmlmc.experiments.replanned import NEW, OLD
from tests.helpers.runs import PLAN, QUADRATIC, RATES

STARTS, KEYS = jnp.array([[1.0, 2.0, 3.0], [-1.0, 1.0, 2.0]]), jr.split(jr.key(0), 2)


def changed(make_plan, **options):
    settings = {"change_at": 20, "steps": 30, "budget": 500, "validation": lambda params: QUADRATIC.mean(params, 2)}
    return replanned.replan(QUADRATIC, PLAN, make_plan, optax.adam(0.01), STARTS, KEYS, **{**settings, **options})


def test_the_same_plan_neither_gains_nor_loses():
    seen = []
    found = changed(lambda rates: seen.append(rates) or PLAN)
    assert len(seen) == 1 and isinstance(seen[0], dmlmc.Rates) and found.plan == PLAN
    old, new = (found.record[found.record.plan == plan].drop(columns=["plan", "seconds"]) for plan in (OLD, NEW))
    pd.testing.assert_frame_equal(old.reset_index(drop=True), new.reset_index(drop=True), check_exact=True)
    assert np.all(replanned.gains(found.record)[["gain", "low", "high"]] == 1)


def test_plans_are_compared_at_equal_cost():
    longer = dmlmc.plan(RATES, 2, samples=[8, 4, 2], periods=[1, 4, 8], allocation="paper")
    record = changed(lambda rates: longer).record
    assert record.step.min() == 20 and record[record.step == 20].groupby("seed").work.nunique().eq(1).all()
    ends = record[record.step == 30].groupby("plan").span.max()
    assert ends[NEW] < ends[OLD]
    table = replanned.gains(record).set_index("cost")
    assert table.spent["span"] == ends[NEW] and table.spent["step"] == 30
    pairs = record[record.step == 30].pivot(index="seed", columns="plan", values="loss")
    assert table.gain["step"] == pytest.approx(np.exp(np.log(pairs[OLD] / pairs[NEW]).mean()))


def test_a_change_that_is_never_reached_is_named():
    with pytest.raises(ValueError, match=r"replan: change_at must be at most steps .* got 40 of 30"):
        changed(lambda rates: PLAN, change_at=40)
