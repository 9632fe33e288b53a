import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

import dmlmc
from dmlmc.calibration.interval import mean_interval
from dmlmc.experiments import tuned

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)


def exponential_record(speeds, spans, steps=60, every=10, floors=None):
    """Losses ``max(exp(-speed step), floor)`` by method and learning rate, the speeds given per seed."""
    rows = []
    for (method, rate), by_seed in speeds.items():
        floor = (floors or {}).get((method, rate), 0.0)
        for seed, speed in enumerate(by_seed):
            for step in range(0, steps + 1, every):
                costs = {"span": spans[method] * step, "work": 10.0 * step, "step": step}
                run = {"method": method, "optimiser": "SGD", "learning_rate": rate, "seed": seed}
                rows.append({**run, **costs, "loss": max(math.exp(-speed * step), floor)})
    return pd.DataFrame(rows)


HELD = tuned.DELAYED_HELD
SPANS = {"MLMC": 64.0, HELD: 4.0}
SPEEDS = {
    ("MLMC", 0.1): [0.1, 0.15, 0.2],
    ("MLMC", 0.2): [0.2, 0.25, 0.3],
    (HELD, 0.1): [0.1, 0.16, 0.2],
    (HELD, 0.2): [0.15, 0.17, 0.2],
}
RECORD = exponential_record(SPEEDS, SPANS, floors={(HELD, 0.2): 1e-4})


def test_losses_at_equal_cost_are_interpolated_on_a_log_scale():
    losses = tuned.losses_at(RECORD, "span", 4.0 * 55).set_index(["method", "learning_rate", "seed"]).loss
    assert losses[HELD, 0.1, 2] == pytest.approx(math.exp(-0.2 * 55))
    assert losses["MLMC", 0.2, 0] == pytest.approx(math.exp(-0.2 * 55 * 4 / 64))
    whole = tuned.losses_at(RECORD, "work", 600.0).set_index(["method", "learning_rate", "seed"]).loss
    assert whole["MLMC", 0.1, 0] == pytest.approx(math.exp(-6))
    with pytest.raises(ValueError, match=r"losses_at: budget must be within every run, but .*held counts ends at 240"):
        tuned.losses_at(RECORD, "span", 241.0)


def test_a_run_that_diverged_has_an_infinite_loss_and_loses():
    record = RECORD.copy()
    lost = (record.method == HELD) & (record.learning_rate == 0.2) & (record.step >= 30)
    record.loc[lost, "loss"] = np.inf
    losses = tuned.losses_at(record, "work", 600.0)
    assert np.isinf(losses[(losses.method == HELD) & (losses.learning_rate == 0.2)].loss).all()
    assert np.isfinite(losses[losses.learning_rate == 0.1].loss).all()
    assert tuned.best_losses(losses).learning_rate[HELD] == 0.1
    before = tuned.losses_at(record, "work", 200.0)
    assert np.isfinite(before.loss).all()


def test_quartiles_of_runs_of_which_some_diverged():
    runs = pd.DataFrame(
        {"method": "MLMC", "learning_rate": 0.1, "seed": range(5), "loss": [1.0, 2.0, 3.0, 4.0, np.inf]}
    )
    assert tuned.quartiles(runs).iloc[0].tolist() == ["MLMC", 0.1, 3.0, 2.0, 4.0]


def test_each_method_has_its_own_best_rate():
    best = tuned.best_losses(tuned.losses_at(RECORD, "work", 600.0))
    assert best.learning_rate.to_dict() == {"MLMC": 0.2, HELD: 0.1}  # 0.2 is faster for HELD, but ends at its floor
    early = tuned.best_losses(tuned.losses_at(RECORD, "work", 300.0))
    assert early.learning_rate[HELD] == 0.2


def test_the_common_target_is_reached_for_good_by_all_seeds_of_every_method():
    target = tuned.common_target(RECORD)
    assert target == pytest.approx(math.exp(-0.15 * 60))  # HELD at 0.2, seed 0; MLMC can go lower
    assert tuned.common_target(RECORD[RECORD.seed == 2]) == pytest.approx(math.exp(-0.2 * 60))


def test_ratios_are_paired_and_each_method_is_at_the_rate_that_needs_least():
    target = 1e-3
    needed = tuned.least_costs(RECORD, target, "span")
    np.testing.assert_allclose(needed["MLMC"], 64 * math.log(1e3) / np.array([0.2, 0.25, 0.3]))
    np.testing.assert_allclose(needed[HELD], 4 * math.log(1e3) / np.array([0.15, 0.17, 0.2]))
    ratios = tuned.ratios_to_mlmc(RECORD, target, "span")
    expected = np.exp(mean_interval(np.log(16 * np.array([0.15 / 0.2, 0.17 / 0.25, 0.2 / 0.3]))))
    assert tuple(ratios[HELD].values()) == pytest.approx((*expected, 3))
    assert ratios["MLMC"]["mean"] == 1.0
    assert list(tuned.least_costs(RECORD, 1e-5, "span")) == ["MLMC"]  # no rate of HELD takes all seeds there


def test_one_lost_seed_in_four_does_not_decide_the_target_and_is_no_pair():
    speeds = {key: [*values, 0.2] for key, values in SPEEDS.items()}
    record = exponential_record(speeds, SPANS)
    lost = (record.method == HELD) & (record.seed == 3) & (record.step > 10)
    record.loc[lost, "loss"] = 1.0
    assert tuned.common_target(record) == pytest.approx(math.exp(-0.15 * 60))
    needed = tuned.least_costs(record, 1e-3, "span")
    assert needed[HELD].isna().tolist() == [False, False, False, True] and needed["MLMC"].notna().all()
    assert tuned.ratios_to_mlmc(record, 1e-3, "span")[HELD]["pairs"] == 3
    record.loc[(record.method == HELD) & (record.seed == 2) & (record.step > 10), "loss"] = 1.0
    assert list(tuned.least_costs(record, 1e-3, "span")) == ["MLMC"]  # two of four are too many
    naive = record[record.method == "MLMC"].assign(method="naive", loss=1.0)
    assert tuned.common_target(pd.concat([naive, RECORD])) == tuned.common_target(RECORD)


def test_ratios_at_the_same_rate_against_the_rate():
    table = tuned.ratios_by_rate(exponential_record(SPEEDS, SPANS), HELD).set_index("learning_rate")
    assert table.relative.tolist() == pytest.approx([0.5, 1.0])
    assert table["mean"][0.1] == pytest.approx(16 * (0.16 / 0.15) ** (1 / 3))
    assert table["mean"][0.2] == pytest.approx(16 * (0.15 / 0.2 * 0.17 / 0.25 * 0.2 / 0.3) ** (1 / 3))
    assert table.target[0.1] == pytest.approx(math.exp(-6)) and (table.low < table["mean"]).all()
    diverged = RECORD.copy()
    diverged.loc[(RECORD.method == HELD) & (RECORD.learning_rate == 0.2) & (RECORD.step > 20), "loss"] = np.inf
    assert tuned.ratios_by_rate(diverged, HELD)["mean"].isna().tolist() == [False, True]


def test_the_summary_is_in_json_types():
    found = tuned.tuned_summary(RECORD, {"span": 200.0, "work": 600.0})
    assert json.loads(json.dumps(found)) == found
    assert found["MLMC"]["span_ratio_to_mlmc"]["mean"] == 1.0
    assert found["MLMC"]["best_rate"] == 0.2 and found[HELD]["best_rate_at_equal_work"] == 0.1
    assert set(found[HELD]["final_loss"]) == {"median", "low", "high"}


def test_every_method_is_swept_until_all_budgets_are_spent():
    loss = dmlmc.QuadraticLoss(2, 1.0, 1e-6, RATES)
    plan = dmlmc.plan(RATES, 2, level0_samples=2)
    delayed, mlmc = dmlmc.delayed_mlmc(loss, plan), dmlmc.mlmc(loss, plan)
    budgets = tuned.spent(delayed, 16)
    assert budgets == {"span": 16 * plan.mean_span(), "work": 16 * plan.mean_work()}
    trained, record = tuned.sweep_methods(
        [delayed, mlmc],
        {"SGD": (optax.sgd, [0.1, 0.2])},
        jnp.ones((2, 2)),
        jax.random.split(jax.random.key(0), 2),
        budgets,
        validation=lambda params: loss.mean(params, 2),
        evaluations=4,
        progress=False,
    )
    ends = record.groupby("method")[["step", "span", "work"]].max()
    for estimator in (delayed, mlmc):
        end = ends.loc[estimator.method]
        assert end.span >= budgets["span"] and end.work >= budgets["work"]
        before = tuned.spent(estimator, int(end.step) - 1)
        assert any(before[cost] < budgets[cost] for cost in budgets)  # and not a step longer
    assert set(trained) == {"MLMC", "delayed MLMC"} and record.groupby(tuned.RUN).size().between(5, 7).all()
    assert np.isfinite(tuned.losses_at(record, "span", budgets["span"]).loss).all()


def test_the_table_says_what_was_not_reached():
    record = RECORD.copy()
    record.loc[(record.method == HELD) & (record.step > 0), "loss"] = 1e-3  # every rate, but never below
    summary = {"SGD": tuned.tuned_summary(record, {"span": 200.0, "work": 600.0})}
    summary["SGD"][HELD]["span_ratio_to_mlmc"] = {"mean": math.nan, "low": math.nan, "high": math.nan, "pairs": 0}
    table = tuned.summary_table(summary)
    assert table.index.names == ["optimiser", "method"] and len(table) == 2
    assert table["MLMC's span / its span"]["SGD", HELD] == "not reached"
    assert table["MLMC's span / its span"]["SGD", "MLMC"] == "1 [1, 1]"
    assert table["pairs of seeds"].to_dict() == {("SGD", "MLMC"): 3, ("SGD", HELD): 0}


def test_gains_are_given_at_the_smallest_rate_and_at_the_best_ones():
    table = tuned.gains({"SGD": exponential_record(SPEEDS, SPANS)}, [HELD])
    assert table.index.tolist() == ["SGD, small rate", "SGD, best rates"]
    assert table[f"span: {HELD}"].tolist() == ["16", "11"]  # 16 times (0.16 / 0.15)^(1/3), and as in the test above
    assert table[f"work: {HELD}"].tolist() == ["1", "0.7"]
