"""What is timed, not how long it takes: no test here looks at a clock."""

import jax.numpy as jnp
import jax.random as jr
import pandas as pd
import pytest

import dmlmc
from dmlmc.calibration import timing

RATES = dmlmc.Rates(1.8, 1.0, 1.0)
LOSS = dmlmc.QuadraticLoss(2, 1.0, 0.1, RATES)


def test_calls_take_turns_of_two():
    seen = []
    found = timing.in_turn({name: lambda name=name: seen.append(name) for name in "ab"}, repeats=3)
    assert "".join(seen) == "aabbaabbaabb"
    assert found.index.tolist() == ["a", "b"] and (found.seconds > 0).all()
    assert (found.low <= found.seconds).all() and (found.seconds <= found.high).all()
    assert [len(repeats) for repeats in found.repeats] == [3, 3]


def test_methods_are_timed_beside_the_prediction_of_their_spans():
    found = timing.method_seconds(LOSS, jnp.ones(2), RATES, 2, 8, repeats=2).set_index("method")
    assert found.index.tolist() == ["naive", "MLMC", "delayed MLMC", "level 0"] and (found.max_level == 2).all()
    unit = found.seconds["level 0"]
    assert (found.predicted / unit).tolist() == pytest.approx([4.0, 4.0, 2.0, 1.0])
    assert (found.compile_seconds > 0).all()


def test_the_ratio_of_two_methods_pairs_their_repeats():
    """A slow moment of both at once does not widen the interval, one of a single method does."""
    under = [1.0, 1.1, 5.0, 1.2, 0.9]
    pairs = {"together": [8 * one for one in under], "alone": [8.0, 8.8, 8.0, 9.6, 40.0]}
    found = {}
    for name, over in pairs.items():
        table = pd.DataFrame({"method": ["MLMC", "delayed MLMC"], "repeats": [tuple(over), tuple(under)]})
        found[name] = timing.seconds_ratio(table, "MLMC", "delayed MLMC")
    assert found["together"] == pytest.approx((8.0, 8.0, 8.0))
    assert found["alone"].estimate == pytest.approx(8.0) and found["alone"].high > 20


def test_a_chain_is_timed_for_each_number_of_paths():
    found = timing.chain_seconds(LOSS, jnp.ones(2), 1, [1, 4], repeats=2)
    assert found.paths.tolist() == [1, 4] and (found.seconds > 0).all()


def test_seconds_are_measured_for_each_level():
    seconds = dmlmc.level_seconds(LOSS, jnp.ones(2), jr.key(0), max_level=1, samples=8, repeats=2)
    assert seconds.level.tolist() == [0, 1] and (seconds[["forward", "gradient"]] > 0).all(axis=None)


@pytest.mark.parametrize("name", ["max_level", "samples", "repeats"])
def test_bad_arguments_of_level_seconds_are_named(name):
    with pytest.raises(ValueError, match=f"level_seconds: {name} must be at least"):
        dmlmc.level_seconds(LOSS, jnp.ones(2), jr.key(0), **{"max_level": 0, name: -1})
