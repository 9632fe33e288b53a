import dataclasses
import math

import numpy as np
import pytest

import dmlmc


def test_rates_keep_what_was_given_as_floats():
    rates = dmlmc.Rates(b=np.float32(1.5), c=1, d=0)
    assert (rates.b, rates.c, rates.d) == (1.5, 1.0, 0.0)
    assert all(type(value) is float for value in dataclasses.astuple(rates))


def test_rates_are_frozen_and_compare_by_value(paper_rates):
    assert paper_rates == dmlmc.Rates(1.8, 1.0, 1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        paper_rates.b = 2.0


@pytest.mark.parametrize("name", ["b", "c", "d"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (math.nan, ValueError),
        (math.inf, ValueError),
        (-1.0, ValueError),
        ("2", TypeError),
        (None, TypeError),
        (True, TypeError),
        ([1.0], TypeError),
    ],
)
def test_a_bad_rate_is_named(name, value, error):
    with pytest.raises(error, match=rf"Rates: {name} must be"):
        dmlmc.Rates(**{"b": 2.0, "c": 1.0, "d": 1.0, name: value})


@pytest.mark.parametrize("name", ["b", "c"])
def test_b_and_c_must_not_vanish(name):
    with pytest.raises(ValueError, match=rf"Rates: {name} must be positive"):
        dmlmc.Rates(**{"b": 2.0, "c": 1.0, "d": 1.0, name: 0.0})


@pytest.mark.parametrize("b", [0.5, 1.0])
def test_b_not_above_c_warns(b):
    with pytest.warns(UserWarning, match="needs b > c"):
        dmlmc.Rates(b=b, c=1.0, d=1.0)
