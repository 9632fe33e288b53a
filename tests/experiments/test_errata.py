import math

import numpy as np
import pytest

from dmlmc.experiments import errata, errata_method, errata_theory

ENTRIES = errata.ERRORS + errata.REMARKS


def test_the_tables_are_numbered_and_every_computation_confirms_its_row():
    errors = errata.table(errata.ERRORS)
    remarks = errata.table(errata.REMARKS, first=len(errors) + 1)
    assert [*errors.index, *remarks.index] == list(range(1, len(ENTRIES) + 1))
    assert {*errors.confirmed, *remarks.confirmed} == {"yes"}
    assert not errors.map(lambda text: "{" in text).any(axis=None)


def test_a_computation_that_comes_out_otherwise_is_not_hidden():
    refuted = errata.ERRORS[0]._replace(compute=lambda: {"one": 1.0, "confirmed": False}, numbers="{one:g}")
    row = errata.table([refuted], first=3).loc[3]
    assert row.confirmed == "no" and row.computed == "1"


def test_every_computation_is_used_once():
    modules = (errata_method, errata_theory)
    public = {
        name
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and name.islower() and not name.startswith("_")
    }
    assert sorted(entry.compute.__name__ for entry in ENTRIES) == sorted(public - {"setting"})


def test_the_counts_are_right():
    refreshes = errata_method.last_refresh(steps=8)
    # 0 is a multiple of every period, and no refresh is before it. Level 0 has two solutions at 7 steps, level 1 at
    # t = 2, 4, 6, level 2 at t = 4.
    assert refreshes["ambiguous"] == 7 + 3 + 1 and refreshes["pairs"] == refreshes["unique"] == 7 * 8
    gain = errata_method.gain_in_span()
    assert gain["six"] == 64 and gain["six_sum"] == pytest.approx(64 / 7) and gain["six_side"] == 16
    work = errata_method.work_of_mlmc(2**40)  # for a very large batch O(N) is right
    assert not work["confirmed"]


def test_the_simulations_agree_with_closed_forms():
    found = errata_method.price_of_the_least_loss()
    assert found["hedged"] == pytest.approx(found["price"], abs=0.005)
    assert found["bare"] == pytest.approx(found["expected"], abs=0.06)
    drift = errata_method.drift_of_the_price()
    assert drift["growing"] == pytest.approx(math.e, abs=0.06) and drift["printed"] == pytest.approx(2.0, abs=0.03)
    outcomes = errata_theory.missing_expectation()
    assert outcomes["right"] == pytest.approx(2.0, abs=0.1) and outcomes["share"] == pytest.approx(0.4772, abs=0.02)


def test_the_first_form_of_k2_is_the_one_that_the_induction_needs():
    # The smallest K with C2 (1 + 2 K log(2T - 1)) <= K, found by iteration from 0, at the lemma's largest beta.
    forms = errata_theory.two_forms_of_k2(steps=10)
    beta = 1 / (4 * 2 * math.log(21))
    C2, K = beta * (2 * beta + 1) * 2, 0.0
    for _ in range(200):
        K = C2 * (1 + 2 * K * math.log(19))
    assert forms["first"] == pytest.approx(K) and forms["second"] > 2 * K


def test_the_extended_sums_are_those_of_the_lemma():
    found = errata_theory.extended_sums(steps=70)
    # At t = 64 all levels are fresh. Extended to t - p_l, each level has p_l terms of weight 1 / p_l.
    assert found["left"] == 0 and found["right"] == 7
    assert found["unequal"] == 69 and found["harmonic"] == pytest.approx(np.sum(1 / np.arange(1, 10)))
