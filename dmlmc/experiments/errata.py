"""The errata of the paper as tables: where, what is printed, what is right, and computed numbers that show it.

Errors come first, remarks after them: there nothing is wrong, but more can be said. Both are in the order of the paper.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from dmlmc.experiments import errata_method as method
from dmlmc.experiments import errata_theory as theory


class Entry(NamedTuple):
    """A row: three texts, a computation, and a text with its numbers, as for ``str.format``."""

    where: str
    printed: str
    right: str
    compute: Callable[[], dict[str, float]]
    numbers: str


ERRORS = (
    Entry(
        "Section 2 and Table 1, work of MLMC",
        "O(N) per step",
        "O(N + 2^(c l_max)): at least one path is drawn at every level",
        method.work_of_mlmc,
        "N = 64: {six:g} at l_max = 6, {ten:g} at 10, {fourteen:g} at 14",
    ),
    Entry(
        "Section 3, last refresh tau_l(t)",
        "t - p_l <= tau_l(t) <= t, a multiple of the period p_l",
        "t - p_l < tau_l(t) <= t: else both t - p_l and t qualify when t is a multiple",
        method.last_refresh,
        "{pairs:g} levels and steps: {ambiguous:g} have two solutions; with the strict inequality {unique:g} have one",
    ),
    Entry(
        "Section 3, gain in span",
        "between 2^(d l_max) and 2^(c l_max)",
        "at c = d smaller by a factor of order l_max",
        method.gain_in_span,
        "l_max = 6: {six:g} printed, {six_sum:.3g} by the paper's sum, {six_side:g} with levels side by side; "
        "l_max = 12: {twelve:g}, {twelve_sum:.3g}, {twelve_side:.3g}",
    ),
    Entry(
        "Theorem 1, second inequality",
        "O((log T / T + M/N) l_max) for every step size that is admitted",
        "only for step sizes of the order of the largest one, and with l_max + 1: at l_max = 0 it says 0",
        theory.second_inequality,
        "exact average over (log T / T + M/N) l_max at step size 0.01 / T: {short:.2g} at T = 100, "
        "{longer:.2g} at 1000, {longest:.0f} at 10000; with one level the average is {single:.2g}",
    ),
    Entry(
        "Appendix B, variance of naive",
        "E|grad D_l|^2 <= 2^(-b l) M on the way",
        "Assumption 2 bounds the variance, not the second moment; without this line the result stands",
        theory.second_moment,
        "M = 1, level 0 of a quadratic loss at |x| = 2: second moment {moment:.1f}, variance {variance:.1f}",
    ),
    Entry(
        "Lemma on biased SGD, proof",
        "|E g|^2 - |grad F|^2 = <grad F + E g, grad F - E g>",
        "minus that product; the next line takes absolute values, so the lemma stands",
        theory.sign_in_the_lemma,
        "1000 random pairs: the sides differ by up to {plus:.2g}; with the minus by less than 1e-12",
    ),
    Entry(
        "Lemma on biased SGD, last line of the proof",
        "|grad F - E g|^2 <= |grad F - g|^2",
        "E|grad F - g|^2 on the right, as in the lemma",
        theory.missing_expectation,
        "g normal, its mean off by 1: {share:.0%} of outcomes violate it; the mean, {right:.3g}, is above {left:g}",
    ),
    Entry(
        "Bounded Bias 1, modified Cauchy-Schwarz",
        "(sum u v)^2 <= (sum u)^2 sum v^2",
        "sum u^2 instead of (sum u)^2",
        theory.cauchy_schwarz,
        "violated by {printed:.0%} of 10000 random pairs, and by {right:.0%} after the correction",
    ),
    Entry(
        "Bounded Bias 2, and proof of Theorem 1",
        "= where a sum begins at t - p_l instead of tau_l(t), and where a harmonic sum becomes a logarithm",
        "<=, which is what the proof needs",
        theory.extended_sums,
        "the first sums differ at {unequal:g} of {steps:g} steps: at t = 64 they are {left:g} and {right:g}; "
        "at T = 10 the harmonic sum is {harmonic:.3g}, the logarithm {logarithm:.3g}",
    ),
    Entry(
        "Bounded Bias 2, K2",
        "two forms that are different numbers",
        "the first, C2 / (1 - 2 C2 log(2T - 1)); the second does not shrink with beta, as the theorem needs",
        theory.two_forms_of_k2,
        "T = 10, one level: {first:.3g} and {second:.3g}; at beta / 100 {first_small:.2g} and {second_small:.3f}",
    ),
    Entry(
        "Remark after Bounded Bias 2",
        "K2 <= 2 C2, from 1 - C2 log(2T - 1) >= 1/2",
        "the denominator is 1 - 2 C2 log(2T - 1); K2 <= 2 C2 needs the smaller beta of the theorem. "
        "K2 <= 4 beta (l_max + 1) sum 2^(-d l), which the theorem uses, holds for both",
        theory.remark_on_k2,
        "T = 10, one level: K2 / C2 is {lemma:.3g} at the lemma's beta, {theorem:.3g} at the theorem's; K2 is "
        "{used:.2g} of what the theorem uses; with the remark's denominator a step of the induction is "
        "{induction:.2g} times too large",
    ),
    Entry(
        "Proof of Theorem 1, integral",
        "upper end T - s + 1/2",
        "T - s - 1/2; the printed value is an upper bound",
        theory.end_of_the_integral,
        "T = 10, s = 0: {integral:.4g} by quadrature; log(2T - 1) = {right:.4g}, printed log(2T + 1) = {printed:.4g}",
    ),
    Entry(
        "Appendix C, initial price",
        "p0 = E[max(S_1 - K, 0)]",
        "the p0 of the least loss is the Black-Scholes price; the expected payoff is that of no hedge",
        method.price_of_the_least_loss,
        "simulated, Black-Scholes hedge: p0 {hedged:.2f}, loss {hedged_loss:.3f}; no hedge: p0 {bare:.2f}, "
        "loss {bare_loss:.0f}; closed forms {price:.2f} and {expected:.2f}",
    ),
    Entry(
        "Appendix C, price process",
        "dS = mu dt + sigma S dB",
        "mu S dt, geometric Brownian motion, which the experiment used",
        method.drift_of_the_price,
        "mean of S_1: {printed:.2f} as printed, {growing:.2f} with mu S dt; S_0 exp(mu) = {exact:.2f}",
    ),
)

REMARKS = (
    Entry(
        "Section 2, order of Milstein's scheme",
        "strong order 1, so b = 2",
        "true for one noise or noises that commute; else only with Levy areas, which are costly to simulate",
        method.order_of_milstein,
        "b = {one:.2f} for one noise; {two:.2f} for dX = dW_1, dY = X dW_2 without Levy areas",
    ),
    Entry(
        "Theorem 1, step size",
        "at most beta / L",
        "much larger ones are stable on a quadratic loss",
        theory.stable_over_admitted,
        "l_max = 6, T = 4000: stable up to {stable:.2g} / L, {ratio:.0f} times the admitted {admitted:.2g} / L",
    ),
    Entry(
        "Theorem 1, step size",
        "min(1 / (8 L'), beta / L)",
        "the first member is never the smaller one at the largest beta",
        theory.first_member_of_the_minimum,
        "first over second member: at least {least:.3g} in {cases:g} settings",
    ),
    Entry(
        "Section 5, batch sizes",
        "matched in the variance of one gradient",
        "over many small steps a held gradient counts its noise p_l times; notebook 04 matches that",
        method.long_run_variance,
        "long-run variance over variance: {two:.2g} at l_max = 2, {six:.2g} at 6",
    ),
    Entry(
        "Appendix B and Table 1, variance of naive",
        "a factor l_max + 1",
        "not needed: by Minkowski's inequality (M/N) (sum 2^(-b l / 2))^2, bounded in l_max",
        theory.naive_variance,
        "N = M = 1: printed {six:.3g}, {twelve:.3g}, {many:.3g} at l_max = 6, 12, 24; "
        "Minkowski {six_ours:.3g}, {twelve_ours:.3g}, {many_ours:.3g}",
    ),
    Entry(
        "Bounded Bias 2, footnote",
        "T >= 2, for beta <= 1/2",
        "not needed: it holds at T = 1, too",
        theory.largest_beta_of_all,
        "largest beta {largest:.3g} in {cases:g} settings, with T from 1 on",
    ),
)


def table(entries: Sequence[Entry], first: int = 1) -> pd.DataFrame:
    """The rows, numbered from ``first``. The last column says whether the computation confirms the row.

    >>> table(ERRORS[1:2], first=2)["computed"][2]
    '896 levels and steps: 247 have two solutions; with the strict inequality 896 have one'
    """
    rows = []
    for entry in entries:
        found = entry.compute()
        verdict = "yes" if found["confirmed"] else "no"
        rows.append((entry.where, entry.printed, entry.right, entry.numbers.format(**found), verdict))
    columns = ["where in the paper", "printed", "right", "computed", "confirmed"]
    return pd.DataFrame(rows, index=range(first, first + len(rows)), columns=columns)
