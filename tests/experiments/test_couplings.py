"""Plain and antithetic couplings compared: plans of equal noise, gains in work, tables."""

import dataclasses

import jax
import jax.numpy as jnp
import pandas as pd
import pytest

import dmlmc
from dmlmc.experiments import couplings
from dmlmc.experiments.heston import heston_loss


def loss_of(b):
    return dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=dmlmc.Rates(b=b, c=1.0, d=1.0))


@pytest.fixture(scope="module")
def reports():
    """Check lists of two losses: the variance falls slowly for one and fast for the other."""

    def report(b):
        settings = {"max_level": 2, "steps": [1, 2, 4]}
        return dmlmc.calibrate(loss_of(b), jnp.ones(2), jax.random.key(0), 40_000, **settings)[1]

    return report(1.2), report(2.2)


def test_both_plans_have_the_same_noise_and_the_measured_variances(reports):
    slow, fast = couplings.plans_of_equal_noise(*reports, 4, 10_000)
    assert fast.samples[0] == 10_000 < slow.samples[0]
    assert slow.long_run_variance() == pytest.approx(fast.long_run_variance(), rel=0.01)
    assert fast.variances[:3] == pytest.approx(reports[1].table.variance.tolist()) and fast.max_level == 4
    assert (slow.fine_paths, fast.fine_paths) == (1, 2)
    assert couplings.planned(reports[0], 1, 8, fine_paths=1).max_level == 1


def test_the_gain_in_work_is_that_of_large_plans_and_depends_on_the_rates(reports):
    gains = couplings.gains_in_work(*reports, naive_variance=1.0, levels=[2, 8])
    plan = couplings.planned(reports[1], 2, 10**6, fine_paths=2).without_delay()
    naive_work = 4 * plan.naive_samples(naive_variance=1.0)
    assert gains.antithetic[2] == pytest.approx(naive_work / plan.mean_work(), rel=1e-3)
    assert gains.antithetic[8] / gains.antithetic[2] > 2 * gains.plain[8] / gains.plain[2]


def test_the_excess_of_the_plain_variance_has_its_own_rate(reports):
    slow = reports[0].table.assign(variance=[1.0, 0.5 + 0.25, 0.125 + 0.125])
    fast = reports[1].table.assign(variance=[1.0, 0.5, 0.125])  # falls by 4, the excess by 2
    plain, antithetic = (dataclasses.replace(reports[0], table=table) for table in (slow, fast))
    assert couplings.excess_rate(plain, antithetic) == pytest.approx(1.0)
    table = couplings.excess_table({"here": {"plain": plain, "antithetic": antithetic}})
    assert table.loc["here"].tolist() == ["1", "0.12", "0.12", "1.00"]


def test_groups_of_losses_are_calibrated_at_every_point():
    groups = [{"slow": loss_of(1.2)}, {"fast": loss_of(2.2)}]
    points = {"here": jnp.ones(2), "there": jnp.full(2, 2.0)}
    found = couplings.calibrated(groups, points, jax.random.key(0), 4000, 2)
    assert [list(of_point) for of_point in found.values()] == [["slow", "fast"]] * 2
    settings = {"max_level": 2, "other": couplings.nearby(points["there"])}
    alone = dmlmc.calibrate(groups[1]["fast"], points["there"], jax.random.key(0), 4000, **settings)[1]
    pd.testing.assert_frame_equal(found["there"]["fast"].table, alone.table)


def test_the_variance_ratio_is_by_level_and_its_interval_holds_it(reports):
    ratios = couplings.variance_ratio(*reports)
    slow, fast = (report.table.variance for report in reports)
    assert [one.estimate for one in ratios] == pytest.approx([slow[1] / fast[1], slow[2] / fast[2]])
    assert all(one.low < one.estimate < one.high for one in ratios)
    table = couplings.variance_ratios({"here": {"plain": reports[0], "antithetic": reports[1]}})
    assert table.here[2].startswith(f"{ratios[1].estimate:.2g} [") and table.index.tolist() == [1, 2]


def test_a_best_rate_at_the_edge_is_marked_and_best_runs_are_those_that_end_best():
    rows = [
        {"method": "MLMC", "learning_rate": rate, "seed": seed, "step": 9, "loss": loss}
        for rate, loss in ((0.1, 3.0), (0.2, 1.0), (0.4, 2.0)) for seed in (0, 1)
    ]  # fmt: skip
    record = pd.DataFrame(rows)
    assert [couplings.shown_rate(record, "MLMC", rate) for rate in (0.1, 0.2)] == ["0.1 (at the edge)", "0.2"]
    assert couplings.best_runs(record, "MLMC").learning_rate.tolist() == [0.2, 0.2]


def test_methods_have_their_plans_and_names(reports):
    plans = couplings.plans_of_equal_noise(*reports, 1, 8)
    losses = heston_loss(antithetic=False), heston_loss()
    named = {one.method: one for one in couplings.methods(losses, plans, naive_variance=1.0)}
    assert list(named) == ["naive", "MLMC", "MLMC, antithetic", "delayed MLMC", "delayed MLMC, antithetic"]
    assert named["delayed MLMC, antithetic"].work(0) == plans[1].work(0)
    assert named["MLMC"].work(0) == plans[0].without_delay().work(0)
    assert named["naive"].work(0) == 2 * plans[1].naive_samples(naive_variance=1.0)


def test_tables(reports):
    rates = couplings.rates_table({"slow": reports[0], "fast": reports[1]})
    assert rates["delay possible?"].tolist() == ["yes", "yes"] and rates.b["fast"] == str(reports[1].fitted.b)
    assert float(rates["level to level"]["fast"]) == pytest.approx(2.2, abs=0.2)  # from level 1 to 2, the only pair
    rows = []
    for method, slowness in (("MLMC", 4.0), ("MLMC, antithetic", 2.0), ("naive", 1e9)):
        for rate, factor in ((0.1, 1.0), (0.2, 3.0)):
            for seed in range(3):
                for step, loss in enumerate((4.0, 1.0)):
                    spent = step * slowness * factor * (1 + seed)
                    run = {"method": method, "optimiser": "Adam", "learning_rate": rate, "seed": seed, "step": step}
                    rows.append({**run, "work": spent, "span": spent, "loss": 4.0 if method == "naive" else loss})
    record = pd.DataFrame(rows)
    found = couplings.ratios(record)
    assert found["loss"] == 1.0 and found["work"]["MLMC, antithetic"]["mean"] == pytest.approx(2.0)
    assert couplings.best_rates(record, 1.0, "span") == {"MLMC": 0.1, "MLMC, antithetic": 0.1, "naive": 0.1}
    table = couplings.ratios_table(record, found)
    assert table["MLMC's work / its work"]["naive"] == "not reached" and table["pairs, span"]["MLMC"] == 3
