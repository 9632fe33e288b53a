import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.theory.proof import error_bounds, looseness
from dmlmc.theory.theorem import Problem, bound, theorem_step_size

problems = st.builds(
    lambda L, M, d, level, gap: Problem(L, M, dmlmc.Rates(1.8, 1.0, d), level, gap),
    st.floats(0.1, 10),
    st.floats(0.01, 10),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.integers(0, 4),
    st.floats(0.01, 100),
)


@settings(max_examples=25, deadline=None)
@given(problems, st.integers(1, 200), st.integers(2, 120))
def test_every_lemma_bounds_the_error_and_each_is_looser_than_the_one_before(problem, samples, steps):
    table = error_bounds(problem, samples, steps)
    chain = ["exact", "lemma 1", "kernel", "lemma 2", "remark"]
    for sharper, looser in itertools.pairwise(chain):
        assert np.all(table[sharper] <= table[looser] * (1 + 1e-9))
    assert np.all(table.exact <= table.orthogonal * (1 + 1e-9))


def test_lemma_1_is_the_printed_formula():
    problem, samples, steps = Problem(1.0, 1.0, dmlmc.Rates(1.8, 1.0, 1.0), 3, 1.0), 20, 30
    table, plan = error_bounds(problem, samples, steps), problem.plan(samples)
    alpha, noise = theorem_step_size(problem, "delayed MLMC", steps), problem.variance("MLMC", samples)
    for t in (0, 1, 7, 29):
        pairs = [(l, s) for l in range(4) for s in range(plan.last_refresh(l, t), t)]
        both = table.exact + table.gradient
        first = 4 + 2 * sum(2.0**-l * alpha for l, _ in pairs)
        second = noise + sum(2.0**-l * alpha * both[s] for l, s in pairs)
        assert table["lemma 1"][t] == pytest.approx(first * second)


def test_looseness_increases_from_the_exact_value_to_the_theorem():
    problem = Problem(1.0, 1.0, dmlmc.Rates(1.8, 1.0, 1.0), 4, 1.0)
    table = looseness(problem, 1000, 500)
    assert table.value.is_monotonic_increasing
    assert table.value.iloc[-1] == bound(problem, "delayed MLMC", 1000, 500).total
    assert table.factor.iloc[1:].prod() == pytest.approx(table.value.iloc[-1] / table.value.iloc[0])
