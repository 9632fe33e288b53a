import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlmc
from dmlmc.schedule import METHODS
from dmlmc.theory.theorem import Problem, bound, largest_beta, lemma_constants, theorem_step_size

rates_strategy = st.builds(
    lambda c, more, d: dmlmc.Rates(b=c + more, c=c, d=d), st.floats(0.25, 2.0), st.floats(0.1, 2.0), st.floats(0.1, 2.5)
)
problems = st.builds(
    Problem, st.floats(1e-3, 10), st.floats(0.1, 10), rates_strategy, st.integers(0, 10), st.floats(0.01, 100)
)
step_counts = st.integers(1, 10**6)


def paper_problem(**changes):
    settings = {"L": 1.0, "M": 1.0, "rates": dmlmc.Rates(1.8, 1.0, 1.0), "max_level": 6, "gap": 1.0}
    return Problem(**{**settings, **changes})


def solved_recursion(C1, C2, noise, gradients):
    """The largest errors that the lemma's recursion allows: every inequality is an equality."""
    errors = [noise]  # at t = 0 every level is fresh
    for t in range(1, len(gradients)):
        kernel = 1 / (t - np.arange(t))
        errors.append(C1 * noise + C2 * np.sum(kernel * (np.array(errors) + gradients[:t])))
    return np.array(errors)


def lemma_claim(K1, K2, noise, gradients):
    steps = range(len(gradients))
    return np.array([K1 * noise + K2 * np.sum(gradients[:t] / (t - np.arange(t))) for t in steps])


def keeps_induction_on_k1(K1, C1, C2, steps):
    """The induction step of the lemma for K1."""
    return C1 + C2 * K1 * math.log(2 * steps + 1) <= K1 * (1 + 1e-12)


def keeps_induction(K2, C2, steps):
    """The induction step of the lemma for K2."""
    return C2 * (1 + 2 * K2 * math.log(2 * steps - 1)) <= K2 * (1 + 1e-12)


@settings(max_examples=50, deadline=None)
@given(problems, st.integers(1, 80), st.sampled_from([4.0, 12.0]), st.integers(0, 2**32 - 1))
def test_the_lemma_s_constants_bound_the_exact_solution_of_its_recursion(problem, steps, factor, seed):
    constants = lemma_constants(problem, largest_beta(problem, steps, factor=factor), steps)
    random = np.random.default_rng(seed)
    gradients = random.exponential(size=steps) * random.integers(0, 2, steps)
    errors = solved_recursion(constants.C1, constants.C2, 0.1, gradients)
    assert np.all(errors <= lemma_claim(constants.K1, constants.K2, 0.1, gradients) * (1 + 1e-12))


@given(problems, st.integers(2, 10**6), st.sampled_from([4.0, 12.0]))
def test_k1_and_k2_are_the_smallest_that_keep_the_induction(problem, steps, factor):
    beta = largest_beta(problem, steps, factor=factor)
    C1, C2, K1, K2 = lemma_constants(problem, beta, steps)
    assert keeps_induction_on_k1(K1, C1, C2, steps) and not keeps_induction_on_k1(K1 * (1 - 1e-6), C1, C2, steps)
    assert keeps_induction(K2, C2, steps) and not keeps_induction(K2 * (1 - 1e-6), C2, steps)
    without_the_2 = C2 / (1 - C2 * math.log(2 * steps - 1))  # the remark after the lemma bounds this denominator
    assert not keeps_induction(without_the_2, C2, steps)
    printed = C1 / (1 - C2 * math.log(2 * steps - 1))  # the second printed form, without beta: large enough,
    assert keeps_induction(printed, C2, steps)
    assert printed > 4 * beta * (problem.max_level + 1) * problem.smoothness_sum  # but larger than the theorem needs


def test_the_remark_s_k2_at_most_2_c2_fails_under_the_lemma_s_beta_only():
    problem = paper_problem(max_level=0)
    under_lemma = lemma_constants(problem, largest_beta(problem, 10, factor=4), 10)
    assert under_lemma.K2 > 2 * under_lemma.C2


@given(problems, step_counts, st.floats(0.01, 1.0))
def test_what_the_theorem_uses_of_the_remark_holds_for_every_admissible_beta(problem, steps, share):
    for factor in (4.0, 12.0):
        beta = share * largest_beta(problem, steps, factor=factor)
        constants = lemma_constants(problem, beta, steps)
        levels, K1, K2 = problem.max_level + 1, constants.K1, constants.K2
        assert 4 * levels >= K1 and 4 * beta * levels * problem.smoothness_sum >= K2
    assert 2 * constants.C2 >= K2  # with the theorem's beta the remark's form holds too


def test_sums_of_the_lemma_against_their_logarithms():
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, 3000))])
    t = np.arange(1, 3000)
    assert np.all(harmonic[t] <= np.log(2 * t + 1))
    for n in (2, 3, 10, 500):
        k = np.arange(1, n)
        assert np.sum(1 / (k * (n - k))) == pytest.approx(2 * harmonic[n - 1] / n)
        assert np.sum(1 / (k * (n - k))) <= 2 * math.log(2 * n - 1) / n


@given(problems, step_counts)
def test_the_first_member_of_the_step_size_s_minimum_is_never_active(problem, steps):
    assert largest_beta(problem, steps) / problem.L < 1 / (8 * problem.L_prime)
    assert theorem_step_size(problem, "delayed MLMC", steps) == largest_beta(problem, steps) / problem.L
    assert largest_beta(problem, steps, factor=4) < 1 / 2  # for T = 1 too, without the paper's footnote


def test_beta_at_the_paper_s_setting():
    assert 1 / largest_beta(paper_problem(), 4000) == pytest.approx(12 * 7 * 2 * math.log(8001), rel=1e-12)


@settings(max_examples=50)
@given(problems, st.integers(1, 10**6))
def test_variances_of_plans_stay_below_m_prime(problem, samples):
    assert problem.M * problem.plan(samples).variance() <= problem.variance("MLMC", samples) * (1 + 1e-9)
    sharp, printed = problem.variance("naive", samples), problem.printed_naive_variance(samples)
    independent = problem.M / samples * sum(2 ** (-problem.rates.b * l) for l in range(problem.max_level + 1))
    assert independent * (1 - 1e-12) <= sharp <= printed * (1 + 1e-12)
    assert printed == pytest.approx((problem.max_level + 1) * independent)


def test_the_plan_is_the_paper_s_and_not_the_one_that_allows_for_held_noise():
    problem = paper_problem()
    assert problem.plan(1000) == dmlmc.plan(problem.rates, 6, samples=1000, allocation="paper")
    assert problem.plan(1000) != dmlmc.plan(problem.rates, 6, samples=1000)


@given(problems)
def test_the_naive_variance_is_attained_when_all_levels_share_one_noise(problem):
    scales = [math.sqrt(problem.M * 2 ** (-problem.rates.b * l)) for l in range(problem.max_level + 1)]
    assert problem.variance("naive", 3) == pytest.approx(sum(scales) ** 2 / 3)


def test_the_naive_variance_is_bounded_in_the_number_of_levels_and_the_printed_one_is_not():
    sharp, printed = (
        [getattr(paper_problem(max_level=l), name)(*more) for l in (20, 40)]
        for name, more in (("variance", ("naive", 10)), ("printed_naive_variance", (10,)))
    )
    assert sharp[1] == pytest.approx(sharp[0], rel=1e-4) and printed[1] > 1.9 * printed[0]


@given(problems, step_counts, st.floats(0.05, 1.0))
def test_bounds_match_the_theorems(problem, steps, share):
    L_prime = problem.L / (1 - 2**-problem.rates.d)
    for method in METHODS:
        a = share * theorem_step_size(problem, method, steps)
        found, noise = bound(problem, method, 100, steps, a), problem.variance(method, 100)
        if method == "delayed MLMC":
            expected = 8 * problem.gap / (a * steps) + (24 * problem.max_level + 49 / 2) * noise
            # The proof's last step, before rounding 3 (l_max + 1) + 1/16 and 1/4 - L' a >= 1/8.
            exact = (problem.gap + a * steps * (3 * (problem.max_level + 1) + L_prime * a / 2) * noise) / (
                steps * a * (1 / 4 - L_prime * a)
            )
            assert exact <= found.total * (1 + 1e-12)
        else:
            expected = (problem.gap + steps * L_prime * a**2 / 2 * noise) / (steps * a * (1 - L_prime / 2 * a))
        assert found.total == pytest.approx(expected, rel=1e-9)
        assert found.total == found.start + found.noise and min(found) > 0


@given(problems, st.integers(1, 10**5), st.integers(1, 10**4))
def test_bounds_fall_with_steps_and_samples_and_rise_with_the_constants(problem, steps, samples):
    more = {name: getattr(problem, name) for name in ("L", "M", "rates", "max_level", "gap")}
    for method in METHODS:
        here = bound(problem, method, samples, steps).total
        assert bound(problem, method, samples, 2 * steps).total < here
        assert bound(problem, method, 2 * samples, steps).total < here
        for name in ("L", "M", "gap"):
            assert bound(Problem(**{**more, name: 2 * more[name]}), method, samples, steps).total > here
        assert bound(Problem(**{**more, "max_level": problem.max_level + 1}), method, samples, steps).total > here


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: paper_problem(L=0.0), ValueError, "Problem: L must be positive"),
        (lambda: paper_problem(M=-1.0), ValueError, "Problem: M must be positive"),
        (lambda: paper_problem(gap=math.inf), ValueError, "Problem: gap must be finite"),
        (lambda: paper_problem(rates=(1.8, 1, 1)), TypeError, "Problem: rates must be a dmlmc.Rates"),
        (lambda: paper_problem(rates=dmlmc.Rates(1.8, 1.0, 0.0)), ValueError, "rates.d must be positive"),
        (lambda: paper_problem(max_level=1.5), TypeError, "Problem: max_level must be an integer"),
        (lambda: paper_problem().variance("MLMC", 0), ValueError, "samples must be positive"),
        (
            lambda: paper_problem().variance("mlmc", 1),
            ValueError,
            "variance: method must be one of naive, MLMC, delayed",
        ),
        (
            lambda: paper_problem().printed_naive_variance(0),
            ValueError,
            "printed_naive_variance: samples must be positive",
        ),
        (lambda: largest_beta(paper_problem(), 0), ValueError, "steps must be at least 1"),
        (lambda: largest_beta(paper_problem(), 10, factor=0), ValueError, "factor must be positive"),
        (lambda: theorem_step_size(paper_problem(), "sgd", 10), ValueError, "theorem_step_size: method must be one of"),
        (lambda: lemma_constants(paper_problem(), 0.0, 10), ValueError, "lemma_constants: beta must be positive"),
        (lambda: lemma_constants(paper_problem(), 0.1, 0), ValueError, "lemma_constants: steps must be at least 1"),
        (lambda: lemma_constants(paper_problem(), 1.0, 10), ValueError, "beta must leave .* the lemma admits 0.0058"),
        (lambda: bound(paper_problem(), "MLMC", 10, 10, 0.6), ValueError, "step_size must be at most 0.5 for MLMC"),
        (lambda: bound(paper_problem(), "MLMC", 10, 10, 0.0), ValueError, "step_size must be positive"),
        (lambda: bound(paper_problem(), "MLMC", 10, 1.5), TypeError, "steps must be an integer"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
