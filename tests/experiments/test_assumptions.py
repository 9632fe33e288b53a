"""The tables of notebook 01."""

import dmlmc
from dmlmc.calibration.fits import FittedRates
from dmlmc.calibration.interval import Interval
from dmlmc.experiments import assumptions

FIT = FittedRates(Interval(1.9, 1.8, 2.0), Interval(1.0, 1.0, 1.0), Interval(0.95, 0.91, 0.99))


def test_every_fit_has_a_row_with_the_rates_asked_for():
    table = assumptions.rates_table({"Milstein": FIT, "Euler": FIT._replace(b=Interval(1.0, 0.5, 1.5))}, "scheme")
    assert table.index.name == "scheme" and list(table.index) == ["Milstein", "Euler"]
    assert table["b [95% interval]"].tolist() == ["1.90 [1.80, 2.00]", "1.00 [0.50, 1.50]"]
    assert list(assumptions.rates_table({0: FIT}, "step", rates=["c"]).iloc[0]) == ["1.00 [1.00, 1.00]"]


def test_measured_rates_stand_beside_those_of_the_paper():
    table = assumptions.beside_the_papers(FIT)
    assert list(table.index) == ["b", "c", "d"]
    assert table.loc["d"].tolist() == ["0.95 [0.91, 0.99]", "about 1", 1.0]
    assert table.loc["b"].tolist() == ["1.90 [1.80, 2.00]", "about 2", 1.8]


def test_plans_stand_beside_each_other():
    plan = dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=2.0), max_level=2, level0_samples=100, allocation="paper")
    row = assumptions.plans_table({"ours": plan}).loc["ours"].tolist()
    assert row == ["1.80", "1.00", "2.00", ", ".join(map(str, plan.samples)), "1, 4, 16"]
