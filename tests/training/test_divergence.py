"""What is noted, said and raised about seeds that diverge, by the record alone."""

import re

import numpy as np
import pytest

from dmlmc.training import divergence
from dmlmc.training.divergence import RAISE, RECORD, SILENT, DivergenceError
from dmlmc.training.record import Record

FIRST = "MLMC, seed {seed}: the gradient is not finite at step {step}; {hint}."
HINT, AT_THE_START = "a smaller learning rate or clipped gradients may help", "look at params and at the loss"


def record_of(*diverged_at):
    record = Record.at(0, 0.0, len(diverged_at))
    record.diverged_at[:] = diverged_at
    record.advance(7, 1.0)
    return record


def test_gradients_are_noted_with_their_first_step_once(recwarn):
    record = record_of(np.nan, np.nan, 2, np.nan)
    divergence.note_gradients("MLMC", record, np.array([-1, 5, 4, 0]), RECORD)
    np.testing.assert_array_equal(record.diverged_at, [np.nan, 5, 2, 0])
    told = [str(one.message) for one in recwarn.list]
    assert told == [FIRST.format(seed=1, step=5, hint=HINT), FIRST.format(seed=3, step=0, hint=AT_THE_START)]
    assert all(one.category is RuntimeWarning for one in recwarn.list)
    divergence.note_gradients("MLMC", record, np.array([-1, 5, 4, 0]), RECORD)
    assert len(recwarn.list) == 2


def test_losses_are_noted_at_the_present_step_once(recwarn):
    record = record_of(np.nan, 3, np.nan, np.nan)
    divergence.note_losses("MLMC", record, np.array([1.0, np.inf, np.nan, -np.inf]), RECORD)
    np.testing.assert_array_equal(record.diverged_at, [np.nan, 3, 7, 7])
    told = [str(one.message) for one in recwarn.list]
    assert told == [
        f"MLMC, seed {seed}: the loss is {loss} at step 7; {HINT}." for seed, loss in ((2, "nan"), (3, "-inf"))
    ]


def test_a_sweep_notes_and_says_nothing(recwarn):
    record = record_of(np.nan, np.nan)
    divergence.note_gradients("MLMC", record, np.array([5, -1]), SILENT)
    divergence.note_losses("MLMC", record, np.array([1.0, np.nan]), SILENT)
    np.testing.assert_array_equal(record.diverged_at, [5, 7])
    assert not recwarn.list


def test_raising_names_the_first_seed():
    record = record_of(np.nan, np.nan, np.nan)
    with pytest.raises(DivergenceError, match=re.escape(FIRST.format(seed=1, step=5, hint=HINT))):
        divergence.note_gradients("MLMC", record, np.array([-1, 5, 0]), RAISE)
    with pytest.raises(DivergenceError, match="MLMC, seed 2: the loss is inf at step 7"):
        divergence.note_losses("MLMC", record, np.array([1.0, 2.0, np.inf]), RAISE)


def test_a_checkpoint_with_a_diverged_seed_stops_only_a_run_that_raises(recwarn):
    with pytest.raises(DivergenceError, match=r"MLMC, seed 1: it diverged at step 3\.$"):
        divergence.check_loaded("MLMC", record_of(np.nan, 3), RAISE)
    divergence.check_loaded("MLMC", record_of(np.nan, np.nan), RAISE)
    for policy in (RECORD, SILENT):
        divergence.check_loaded("MLMC", record_of(np.nan, 3), policy)
    assert not recwarn.list
