import jax
import jax.numpy as jnp
import pandas as pd

import dmlmc
from dmlmc.experiments import tables, tuned
from tests.helpers.runs import PLAN, QUADRATIC, RATES


def test_a_table_of_plans_has_their_counts_costs_and_noise():
    held = dmlmc.plan(RATES, 6, level0_samples=512)
    paper = dmlmc.plan(RATES, 6, level0_samples=512, allocation="paper")
    table = tables.plans({"held": held, "paper's": paper, "MLMC": held.without_delay()})
    assert table[tables.SPAN].tolist() == ["4", "4", "64"]
    assert table.loc["held", tables.WORK] == f"{held.mean_work():.4g}"
    assert table.loc["held", "periods [steps]"] == "1, 2, 4, 8, 16, 32, 64"
    noise = table["long-run variance / without delay"].astype(float)
    assert noise["MLMC"] == 1 and abs(noise["held"] - 1) < 0.05 and noise["paper's"] > 5


def test_costs_of_methods_are_means_over_many_steps():
    estimators = [dmlmc.mlmc(QUADRATIC, PLAN), dmlmc.delayed_mlmc(QUADRATIC, PLAN)]
    table = tables.costs(estimators)
    assert table[tables.SPAN].tolist() == ["4", "2"] and table.index.tolist() == ["MLMC", "delayed MLMC"]
    budgets = tuned.spent(estimators[1], 16)
    assert tables.costs(estimators, budgets)["steps of a run"].tolist()[1] == "16"


def test_rates_have_a_row_per_report():
    _, report = dmlmc.calibrate(QUADRATIC, jnp.ones(3), jax.random.key(0), 500, max_level=2, steps=[1, 2, 4])
    table = tables.rates({"start": report, "end": report})
    assert table.index.tolist() == ["start", "end"] and table.loc["end", "b"] == str(report.fitted.b)
    assert float(table.loc["start", "variance, level 0"]) > float(table.loc["start", "variance, level 2"])


def test_a_table_of_texts_is_left_aligned_and_the_same_every_time():
    texts = pd.DataFrame({"printed": ["<a, b> < c"], "right": ["a <= b"]}, index=[7])
    shown = tables.of_texts(texts)
    assert "text-align: left" in shown.data and ">&lt;a, b&gt; &lt; c<" in shown.data and ">7<" in shown.data
    assert shown.data == tables.of_texts(texts).data
