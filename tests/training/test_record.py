"""The record by itself: when it is due, what a checkpoint keeps of it, and its table."""

import numpy as np
import pandas as pd
import pytest

from dmlmc.training.record import Record


def filled(steps=(3, 5, 10, 12), start=3, metrics=("b", "a")):
    """The record of two seeds: the loss at step s is s and -s, a metric has ten times that, and so on."""
    record = Record.at(start, 0.5, 2)
    for step in steps:
        if step > start:
            record.advance(step, 0.25)
        losses = np.array([step, -step], float)
        record.add(losses, {name: 10.0 ** (place + 1) * losses for place, name in enumerate(metrics)})
    return record


def test_a_run_starts_where_it_is_told_and_time_adds_up():
    record = Record.at(3, 0.5, 2)
    assert (record.start, record.step, record.seconds) == (3, 3, 0.5)
    assert record.steps == record.times == record.losses == record.metrics == []
    np.testing.assert_array_equal(record.diverged_at, [np.nan, np.nan])
    record.advance(7, 1.5)
    record.advance(8, 1.0)
    assert (record.start, record.step, record.seconds) == (3, 8, 3.0)


def test_the_start_the_last_step_and_multiples_are_due_once():
    record, due = Record.at(3, 0.0, 1), []
    for step in range(3, 13):
        record.advance(step, 1.0)
        assert not record.is_evaluated()
        if record.is_due(evaluate_every=5, last=12):
            due.append(step)
            record.add(np.zeros(1), {})
            assert record.is_evaluated() and not record.is_due(evaluate_every=5, last=12)
    assert due == record.steps == [3, 5, 10, 12]
    assert record.times == [1.0, 3.0, 8.0, 10.0]


def test_the_mean_loss_is_that_of_the_last_evaluation():
    record = filled()
    assert np.isnan(Record.at(0, 0.0, 2).mean_loss())
    record.add(np.array([1.0, 4.0]), {})
    assert record.mean_loss() == 2.5


def test_all_have_diverged_when_none_is_left():
    record = filled()
    for seed in range(2):
        assert not record.all_diverged()
        record.diverged_at[seed] = 5
    assert record.all_diverged()


@pytest.mark.parametrize("steps", [(3, 5, 10), (3,), ()])
def test_a_checkpoint_keeps_all_of_a_record(steps):
    record = filled(steps)
    record.diverged_at[1] = 10
    record.advance(11, 0.25)
    again = Record.from_arrays(record.arrays(), 3, 5)
    assert isinstance(again.step, int) and isinstance(again.seconds, float)
    assert (again.start, again.step, again.seconds) == (3, 11, record.seconds)
    assert again.steps == record.steps == list(steps) and again.times == record.times
    np.testing.assert_array_equal(again.losses, record.losses)
    assert [list(row) for row in again.metrics] == [["b", "a"]] * len(steps)
    for one, other in zip(again.metrics, record.metrics, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    np.testing.assert_array_equal(again.diverged_at, [np.nan, 10])


def test_without_metrics_there_are_none_after_a_checkpoint_either():
    assert Record.from_arrays(filled(metrics=()).arrays(), 3, 5).metrics == [{}] * 3


def test_a_last_evaluation_that_a_longer_run_has_not_is_left_out():
    record = filled()
    record.diverged_at[:] = 12, 10  # the first is known by the loss at step 12 only
    arrays = record.arrays()
    again = Record.from_arrays(arrays, 3, 5)
    assert again.steps == [3, 5, 10] and again.times == record.times[:3] and again.step == 12
    assert len(again.losses) == len(again.metrics) == 3
    np.testing.assert_array_equal(again.losses[-1], [10, -10])
    np.testing.assert_array_equal(again.metrics[-1]["a"], [1000, -1000])
    np.testing.assert_array_equal(again.diverged_at, [np.nan, 10])
    np.testing.assert_array_equal(arrays["diverged_at"], [12, 10])  # the checkpoint itself is as it was
    assert Record.from_arrays(arrays, 3, 4).steps == [3, 5, 10, 12]  # here a longer run has it


def test_the_table_has_a_row_per_seed_and_evaluation():
    record = filled()
    record.diverged_at[1] = 10
    expected = pd.DataFrame(
        {
            "method": "MLMC",
            "seed": [0] * 4 + [1] * 4,
            "step": [3, 5, 10, 12] * 2,
            "work": [1.0, 2.0, 3.0, 4.0] * 2,
            "span": [5.0, 6.0, 7.0, 8.0] * 2,
            "seconds": [0.5, 0.75, 1.0, 1.25] * 2,
            "loss": [3.0, 5.0, 10.0, 12.0, -3.0, -5.0, -10.0, -12.0],
            "b": [30.0, 50.0, 100.0, 120.0, -30.0, -50.0, -100.0, -120.0],
            "a": [300.0, 500.0, 1000.0, 1200.0, -300.0, -500.0, -1000.0, -1200.0],
            "diverged_at": [np.nan] * 4 + [10.0] * 4,
        }
    )
    pd.testing.assert_frame_equal(record.table("MLMC", np.arange(1.0, 5.0), np.arange(5.0, 9.0)), expected)
    columns = filled(metrics=()).table("MLMC", np.zeros(4), np.zeros(4)).columns
    assert columns.tolist() == ["method", "seed", "step", "work", "span", "seconds", "loss", "diverged_at"]
    assert len(filled(steps=(3,)).table("MLMC", np.zeros(1), np.zeros(1))) == 2
