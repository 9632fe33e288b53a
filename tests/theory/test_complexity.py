import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.schedule import METHODS, STREAMING
from dmlmc.theory import complexity
from dmlmc.theory.complexity import (
    GUARANTEES,
    SHARPER,
    TABLE_1,
    guarantee,
    guaranteed_spans,
    guaranteed_step_size,
    pays_from,
    span_needed,
    steps_needed,
)
from dmlmc.theory.staleness import sharper_bound
from dmlmc.theory.streaming import streaming_bound
from dmlmc.theory.theorem import Problem, bound


def problem(max_level=6, d=1.0):
    return Problem(1.0, 1.0, dmlmc.Rates(1.8, 1.0, d), max_level, 1.0)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(TABLE_1), st.integers(0, 8), st.floats(0.5, 2.0), st.floats(1e-4, 10.0))
def test_steps_needed_is_the_smallest_number_that_suffices(name, max_level, d, target):
    here = problem(max_level, d)
    steps, after = steps_needed(here, name, 10**9, target), guarantee(here, name, 10**9)
    assert after(steps).total <= target
    assert steps == 1 or after(steps - 1).total > target


def test_the_step_size_of_a_guarantee_is_the_largest_that_its_bound_admits():
    here, plan = problem(3), problem(3).plan(100)
    for name in GUARANTEES:
        size, bounds = guaranteed_step_size(here, name, 100, 50), guarantee(here, name, 100)(50)
        again = sharper_bound(here, plan, 50, size) if name == SHARPER else bound(here, name, 100, 50, size)
        assert again == bounds
        with pytest.raises(ValueError, match="step_size must be at most"):
            sharper_bound(here, plan, 50, 1.01 * size) if name == SHARPER else bound(here, name, 100, 50, 1.01 * size)


def test_steps_needed_matches_a_linear_search():
    after = guarantee(problem(2), "delayed MLMC", 10**6)
    searched = next(steps for steps in range(1, 10**6) if after(steps).total <= 20.0)
    assert steps_needed(problem(2), "delayed MLMC", 10**6, 20.0) == searched > 100


def test_the_error_for_a_small_batch_names_a_size_that_works():
    for name in TABLE_1:
        with pytest.raises(ValueError, match=r"noise in the bound, .* at N = 100") as caught:
            steps_needed(problem(), name, 100, 1e-3)
        enough = float(str(caught.value).split("N above ")[1].split()[0])
        assert steps_needed(problem(), name, 1.01 * enough, 1e-3) > 0


def test_span_is_steps_times_the_counted_mean():
    here = problem()
    plan = here.plan(10**6)
    for name in METHODS:
        counted = plan if name == "delayed MLMC" else plan.without_delay()
        mean = counted.cumulative_span(64 * 10)[-1] / 640
        assert span_needed(here, name, 10**6, 0.1) == pytest.approx(mean * steps_needed(here, name, 10**6, 0.1))


def test_delay_pays_for_many_levels_by_the_paper_s_bound_and_from_one_level_by_the_sharper_one():
    spans = guaranteed_spans(problem(), [1, 6, 12, 18], [1e-2])
    table = spans.pivot(index="max_level", columns="guarantee", values="span")
    paper, sharper = table["MLMC"] / table["delayed MLMC"], table["MLMC"] / table[SHARPER]
    assert paper[6] < 0.01 and paper[18] > 1 and sharper[1] > 1
    assert paper.is_monotonic_increasing and sharper.is_monotonic_increasing
    found = pays_from(spans)
    assert found["delayed MLMC"].tolist() == [18] and found[SHARPER].tolist() == [1]


def test_delay_pays_from_the_level_after_which_it_never_loses_again():
    def spans(target, levels, of_delayed):
        names = ("MLMC", "delayed MLMC", SHARPER)
        return [
            (level, target, name, span)
            for level, delayed in zip(levels, of_delayed, strict=True)
            for name, span in zip(names, (2.0, delayed, 2.0), strict=True)
        ]

    rows = spans(0.1, [1, 2, 3, 4], [1.0, 3.0, 1.0, 1.0]) + spans(0.2, [1, 2], [1.0, 3.0])
    found = pays_from(pd.DataFrame(rows, columns=["max_level", "target", "guarantee", "span"]))
    assert found["delayed MLMC"][0.1] == 3 and np.isnan(found["delayed MLMC"][0.2]) and found[SHARPER].isna().all()


def test_table_1_in_numbers_has_the_bounds_and_the_counted_costs():
    here, samples, steps = problem(4), 1000, 160
    table = complexity.table_1(here, samples, steps)
    plan = here.plan(samples)
    assert table.index.tolist() == complexity.table_1_symbols().index.tolist() == list(TABLE_1)
    for name in TABLE_1:
        assert table.bound[name] == pytest.approx(guarantee(here, name, samples)(steps).total)
        assert table.bound[name] == table.start[name] + table.noise[name]
    assert table.work["delayed MLMC"] == table.work[SHARPER] == pytest.approx(plan.cumulative_work(steps)[-1])
    assert table.work["MLMC"] == pytest.approx(plan.without_delay().cumulative_work(steps)[-1])
    # Over a whole cycle streaming has the work of delayed MLMC, whose periods are the same at c = d.
    assert table.work[STREAMING] == table.work[SHARPER] and table.span[STREAMING] == steps
    assert table.work["naive"] == samples * 16 * steps and table.span["naive"] == 16 * steps


def test_streaming_moves_what_delay_pays_in_span_to_the_number_of_steps():
    """Both grow with sum 2^((c - d) l): at c - d = 0.5 by 2^4 from l_max = 8 to 16."""
    tops = {level: Problem(1.0, 1.0, dmlmc.Rates(2.3, 1.5, 1.0), level, 1.0) for level in (8, 16)}
    steps = [1 / guaranteed_step_size(here, STREAMING, 1e9, 1) for here in tops.values()]
    spans = [complexity.span_per_step(here, "delayed MLMC") for here in tops.values()]
    assert steps[1] / steps[0] == pytest.approx(2**4, rel=0.1) and spans[1] / spans[0] == pytest.approx(2**4, rel=0.1)
    few = [complexity.work_per_step(here, STREAMING, 1) for here in tops.values()]  # a path or two a level, and no more
    assert few[1] - few[0] < 4 * 8


def test_the_step_size_of_streaming_is_the_one_of_its_bound():
    here = problem(3)
    size, found = guaranteed_step_size(here, STREAMING, 100, 50), guarantee(here, STREAMING, 100)(50)
    assert found == streaming_bound(here, 100, 50, size) and found.start == pytest.approx(2 / (size * 50))
    with pytest.raises(ValueError, match="step_size must be at most"):
        streaming_bound(here, 100, 50, 1.01 * size)


def test_exact_exponents_are_found():
    found = complexity.growth(problem(4), 2**16).set_index(["quantity", "against", "method"])
    for method in METHODS:
        for row in (("work", "T"), ("work", "N"), ("span", "T"), ("start", "T"), ("noise", "N")):
            assert found.fitted[(*row, method)] == pytest.approx(found.claimed[(*row, method)], abs=0.02)
    assert found.fitted["span", "2^l_max", "MLMC"] == pytest.approx(1)
    assert found.fitted["span", "2^l_max", "delayed MLMC"] < 0.3


def test_the_table_of_growth_pairs_claims_with_fits():
    table = complexity.growth_table(complexity.growth(problem(2), 2**12))
    assert table.columns.tolist() == list(METHODS) and table.loc["span", "T"].naive == "1 / 1.00"


def test_rounding_up_the_samples_makes_mlmc_s_work_grow_with_the_levels():
    """Table 1 has O(N) for the work of MLMC. With at least one path per level it is O(N + 2^(c l_max))."""
    work = {name: [complexity.work_per_step(problem(l), name, 64) for l in (8, 12)] for name in METHODS}
    assert work["MLMC"][1] > 8 * work["MLMC"][0] and work["delayed MLMC"][1] < 1.2 * work["delayed MLMC"][0]
    fine = {l: complexity.work_per_step(problem(l), "MLMC", 2**30) for l in (8, 12)}
    assert fine[12] < 1.1 * fine[8]


def test_fitted_exponent_of_a_power():
    sizes = np.array([1, 3, 10])
    assert complexity.fitted_exponent(sizes, 5 * sizes**-0.7) == pytest.approx(-0.7)


def test_unknown_names_and_targets_are_refused():
    with pytest.raises(ValueError, match="method must be one of"):
        guarantee(problem(), "sgd", 10)
    with pytest.raises(ValueError, match="steps_needed: target must be positive"):
        steps_needed(problem(), "MLMC", 10, 0.0)
