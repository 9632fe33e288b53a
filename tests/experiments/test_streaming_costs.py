"""What is timed, not how long it takes: no test here looks at a clock."""

import jax.numpy as jnp
import numpy as np
import pytest

import dmlmc
from dmlmc.experiments import streaming, streaming_costs
from tests.experiments.test_streaming import RATES, ornstein_loss

METHODS = ("naive", "MLMC", "delayed MLMC", "streaming MLMC")


def test_the_estimators_have_the_plan_and_their_own_names():
    plan, loss = dmlmc.plan(RATES, 2, level0_samples=8), ornstein_loss()
    estimators = [streaming_costs.estimator_of(method, loss, plan) for method in METHODS]
    assert tuple(one.method for one in estimators) == METHODS
    assert [one.span(1) for one in estimators] == [4.0, 4.0, 1.0, 1.0]
    level0 = streaming_costs.estimator_of(streaming_costs.LEVEL0, loss, plan)
    assert (level0.span(0), level0.work(0)) == (1.0, 8.0)
    with pytest.raises(ValueError, match="estimator_of: method must be one of"):
        streaming_costs.estimator_of("fast", loss, plan)


def test_only_what_is_asked_for_is_timed_and_equal_programs_once():
    plans = {level: dmlmc.plan(RATES, level, level0_samples=2) for level in (1, 2)}
    asked = {"MLMC": [1], "streaming MLMC": [1, 2], streaming_costs.LEVEL0: [1, 2]}
    groups = [(plans, asked), ({8: plans[1]}, {"MLMC": [8]})]
    table, other = streaming_costs.seconds_tables(ornstein_loss(), jnp.array(1.0), groups, repeats=2)
    assert other.iloc[0].drop("plan").equals(table.iloc[0].drop("plan")) and other["plan"].tolist() == [8]
    assert list(zip(table.method, table["plan"], strict=True)) == [
        (m, key) for m, keys in asked.items() for key in keys
    ]
    level0 = table[table.method == streaming_costs.LEVEL0].drop(columns="plan")
    assert (level0.iloc[0] == level0.iloc[1]).all() and (table.seconds > 0).all()
    seconds = streaming_costs.seconds_by_plan(table)
    assert list(seconds) == ["1", "2"] and list(seconds["1"]) == ["naive", "mlmc", "delayed", "streaming", "level0"]
    assert (
        seconds["2"]["mlmc"] is None and seconds["2"]["streaming"] == streaming_costs.seconds_of(table, 2)[METHODS[3]]
    )
    ratios = streaming_costs.seconds_ratios(table, "MLMC", "streaming MLMC")
    assert list(ratios) == ["1"] and ratios["1"]["low"] <= ratios["1"]["estimate"] <= ratios["1"]["high"]
    assert ratios["1"]["estimate"] == pytest.approx(seconds["1"]["mlmc"] / seconds["1"]["streaming"])


def test_with_a_stride_that_makes_every_level_synchronous_streaming_is_as_stable_as_mlmc():
    limits = streaming_costs.limits_table(2, [1.0, 0.5]).set_index(["d", "method"]).limit
    assert limits[1.0, streaming.STRIDE_4] == pytest.approx(1.0) == limits[0.5, streaming.STRIDE_4]
    assert limits[0.5, "streaming MLMC"] < 1 < limits[1.0, "streaming MLMC"]
    errors = streaming_costs.stationary_table(2, 0.5, [0.1]).set_index("method").error
    assert errors[streaming.STRIDE_4] == pytest.approx(1.0) and errors["streaming MLMC"] > 1.05


def test_small_steps_have_the_stationary_error_of_mlmc_and_unstable_ones_an_infinite_one():
    limit = streaming_costs.limits_table(3, [0.5]).set_index("method").limit["streaming MLMC"]
    sizes = [1e-4, 0.99 * limit, 1.01 * limit]
    table = streaming_costs.stationary_table(3, 0.5, sizes)
    errors = table[table.method == "streaming MLMC"].error.tolist()
    assert errors[0] == pytest.approx(1.0, abs=2e-3)
    assert np.isfinite(errors[1]) and np.isinf(errors[2])
