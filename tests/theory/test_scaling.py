import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.theory import scaling
from dmlmc.theory.scaling import predicted_seconds


def paper_plan(max_level=6, level0_samples=512):
    return dmlmc.plan(dmlmc.Rates(1.8, 1.0, 1.0), max_level, level0_samples=level0_samples, allocation="paper")


@pytest.mark.parametrize("max_level", [0, 6, 12])
def test_with_very_many_devices_only_the_spans_matter(max_level):
    plan = paper_plan(max_level, 2**16)
    found = predicted_seconds(plan, 2**30, chain_seconds=0.5, path_seconds=1e-6)
    assert found["naive"] == found["MLMC"] == 0.5 * 2**max_level
    assert found["delayed MLMC"] == pytest.approx(0.5 * plan.mean_span(), rel=1e-12)
    if max_level == 6:
        assert found["MLMC"] / found["delayed MLMC"] == pytest.approx(16)


def test_streaming_has_the_span_of_level_0_and_its_share_of_every_level_at_every_step():
    plan = dmlmc.plan(dmlmc.Rates(1.8, 1.0, 1.0), 2, samples=[9, 8, 4])  # on 4 devices: 3, 2 and 1 samples
    loaded = predicted_seconds(plan, 4, chain_seconds=1e-9, path_seconds=1.0, hop_seconds=10.0)["streaming MLMC"]
    assert loaded == 3 + (2 + 1) * 1.5 + 2 * 10.0  # a chunk of a pair is 1.5 level-0 paths
    assert predicted_seconds(plan, 4, chain_seconds=7.0, path_seconds=1e-9)["streaming MLMC"] == 7.0


def test_on_one_device_without_latency_only_the_work_matters():
    plan = paper_plan()
    found = predicted_seconds(plan, 1, chain_seconds=1e-9, path_seconds=0.25)
    assert found["naive"] == 0.25 * 148 * 64
    assert found["MLMC"] == pytest.approx(0.25 * plan.without_delay().mean_work())
    assert found["streaming MLMC"] == pytest.approx(0.25 * plan.mean_work())  # at c = d its periods are the plan's
    assert found["delayed MLMC"] == pytest.approx(0.25 * plan.mean_work())


def test_a_share_is_rounded_up_and_every_level_due_is_summed_once():
    plan = dmlmc.plan(dmlmc.Rates(1.8, 1.0, 1.0), 1, samples=[9, 2])  # on 8 devices: 2 and 1 samples
    found = predicted_seconds(plan, 8, chain_seconds=1e-9, path_seconds=1.0, hop_seconds=10.0)
    both, level0 = (2 + 1 * 3) + 2 * 30.0, 2 + 30.0
    assert found["MLMC"] == both and found["delayed MLMC"] == (both + level0) / 2


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 8), st.integers(1, 5000), st.integers(0, 12), st.floats(1e-6, 1.0), st.floats(1e-6, 1.0))
def test_without_sums_more_devices_and_delay_never_take_longer(max_level, samples, power, chain, path):
    plan, times = paper_plan(max_level, samples), {"chain_seconds": chain, "path_seconds": path}
    few, many = (predicted_seconds(plan, 2**power * factor, **times) for factor in (1, 2))
    for method in few:
        assert many[method] <= few[method] * (1 + 1e-12)
    assert few["delayed MLMC"] <= few["MLMC"] * (1 + 1e-12)


def test_levels_in_turn_take_less_than_three_times_as_long():
    """The last paragraph of the module docstring: each level in turn takes the longer of its chain and its load."""
    for devices in (1, 64, 4096):
        plan = paper_plan(8, 2**20)
        chain, path = 1e-3, 1e-6
        costs = [
            (2.0**l, -(-n // devices) * (2.0**l + (2.0 ** (l - 1) if l else 0))) for l, n in enumerate(plan.samples)
        ]
        in_turn = sum(max(chain * span, path * work) for span, work in costs)
        side_by_side = predicted_seconds(plan, devices, chain_seconds=chain, path_seconds=path)["MLMC"]
        assert 1 <= in_turn / side_by_side < 3


def test_periods_with_a_very_long_cycle_are_averaged_over_part_of_it():
    plan = dmlmc.plan(dmlmc.Rates(1.8, 1.0, 1.0), 6, samples=[1] * 7, periods=[1, 3, 7, 11, 17, 31, 61])
    found = predicted_seconds(plan, 1, chain_seconds=1.0, path_seconds=1e-9)["delayed MLMC"]
    assert math.lcm(*plan.periods) > 2**16 and found == pytest.approx(plan.mean_span(), rel=1e-2)


def test_the_table_has_the_seconds_of_the_model():
    table = scaling.scaling_table().set_index(["max_level", "devices", "method"]).seconds
    assert len(table) == len(scaling.MAX_LEVELS) * len(scaling.DEVICES) * 4
    for level, devices in ((6, 64), (12, 1024)):
        found = predicted_seconds(paper_plan(level, scaling.LEVEL0_SAMPLES), devices, **scaling.ASSUMED)
        assert table[level, devices].to_dict() == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"devices": 0}, "devices must be at least 1"),
        ({"chain_seconds": 0.0}, "chain_seconds must be positive"),
        ({"path_seconds": -1.0}, "path_seconds must be positive"),
        ({"hop_seconds": -1.0}, "hop_seconds must be at least 0"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        predicted_seconds(paper_plan(), **{"devices": 1, "chain_seconds": 1.0, "path_seconds": 1.0, **change})
