"""The check list and its verdict."""

import html
import re

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

import dmlmc
from dmlmc.calibration.checklist import _safe_step
from dmlmc.calibration.fits import FittedRates
from dmlmc.calibration.interval import Interval
from dmlmc.theory.staleness import largest_safe_step, safe_step_size
from dmlmc.theory.theorem import Problem
from tests.helpers.measurements import NEARBY, POINT, TRUE, measure, quadratic


class BrokenPair(dmlmc.QuadraticLoss):
    def pair(self, params, noise):
        fine, coarse = super().pair(params, noise)
        return fine, 0.9 * coarse


def test_a_sum_that_does_not_telescope_is_noticed(x64):
    broken = BrokenPair(dimension=3, L=2.0, M=0.5, rates=TRUE)
    report = dmlmc.CheckList.from_measurement(measure(broken, samples=1024))
    assert any("does not telescope" in warning for warning in report.warnings())
    assert "does not telescope" in str(report)


def made_up(b, c, d, **columns):
    fixed = {"level": [0, 1, 2], "samples": 100, "kurtosis": 3.0, "consistency": 1.0, "variance": [1.0, 0.2, 0.1]}
    table = pd.DataFrame(fixed | columns)
    fitted = FittedRates(*(Interval(value, value - 0.1, value + 0.1) for value in (b, c, d)))
    return dmlmc.CheckList(table, fitted, dmlmc.plan(fitted.rates(), 2, level0_samples=10) if b > c else None)


@pytest.mark.parametrize(
    ("rates", "worth", "safe", "plan"),
    [
        ((2.0, 1.0, 0.96), "yes", "yes; d = c within its interval", "N_l (10, 8, 8), periods (1, 2, 4)"),
        ((2.0, 1.0, 1.5), "yes", "yes; d > c, mean span is bounded", "N_l (10, 8, 16), periods (1, 2, 8)"),
        ((1.05, 1.0, 0.05), "not decided", "not decided; d < c", "N_l (10, 5, 3), periods (1, 1, 1)"),
        ((0.5, 1.0, -0.5), "no", "no; d < c", "none, the variance"),
    ],
)
def test_the_verdict(rates, worth, safe, plan):
    lines = "\n".join(made_up(*rates).verdict())
    assert f"(b > c)?  {worth}\n" in lines and f"(d > 0)? {safe}" in lines and plan in lines


@pytest.mark.parametrize(("rounding", "safe"), [(1e-7, "no"), (-1e-7, "no"), (1e-3, "yes")])
def test_a_rate_that_is_zero_up_to_rounding_makes_no_delay_safe(rounding, safe):
    exact = FittedRates(*(Interval(value, value, value) for value in (2.0, 1.0, rounding)))
    assert f"delay possible (d > 0)? {safe};" in "\n".join(dmlmc.CheckList(pd.DataFrame(), exact, None).verdict())


def test_the_verdict_gives_the_noise_over_many_steps():
    """Samples 10, 4, 2 of MLMC with variances 1, 0.2, 0.1: 0.1 + 0.05 + 0.05. Held counts keep that noise."""
    lines = made_up(2.0, 1.0, 1.0).verdict()
    assert "mean span 2.0 times below MLMC's, mean work 1.00 of MLMC's" in lines[3]
    published = (0.1 + 2 * 0.05 + 4 * 0.05) / 0.2
    assert lines[4] == f"long-run variance:      1.00 of MLMC's ({published:.2f} with the paper's N_l (10, 4, 2))"


def test_the_largest_safe_step_is_that_of_the_theory_for_known_constants(x64):
    """Smoothness 2^(-d l) L, exactly: so is the step, and its interval has no width."""
    report = dmlmc.CheckList.from_measurement(measure(quadratic(), max_level=3, samples=512))
    levels = np.arange(len(report.table))
    known = largest_safe_step(2.0 * 2.0 ** (-TRUE.d * levels), report.plan.periods)
    assert report.safe_step == pytest.approx((known, known, known), rel=1e-6)
    problem = Problem(L=2.0, M=0.5, rates=report.plan.rates, max_level=report.plan.max_level, gap=1.0)
    assert safe_step_size(problem, report.plan) < known  # its L' is that of infinitely many levels
    assert f"largest safe step:      {report.safe_step}" in str(report)


def test_the_interval_of_the_safe_step_covers_the_truth_as_often_as_it_should():
    """Smoothness of a level scatters over samples as |1 + 0.5 normal| times its mean; 100 measurements."""
    true = np.array([1.0, 0.5, 0.25])
    rng, plan = np.random.default_rng(0), dmlmc.plan(TRUE, 2, level0_samples=8)
    factor_mean = np.abs(1 + 0.5 * rng.normal(size=10**6)).mean()
    known, hits = largest_safe_step(true * factor_mean, plan.periods), 0
    for _ in range(100):
        factors = np.abs(1 + 0.5 * rng.normal(size=(32, 16))).mean(axis=1)
        blocks = [{"level": l, "block": b, "smoothness": v * factors[b]} for l, v in enumerate(true) for b in range(32)]
        found = _safe_step(dmlmc.Measurement(pd.DataFrame(blocks), pd.DataFrame()), plan)
        hits += found.low <= known <= found.high
    assert 88 <= hits <= 100  # 95 expected, standard deviation 2.2


def test_heavy_tails_give_a_warning():
    heavy, hopeless = made_up(2.0, 1.0, 1.0, kurtosis=[3.0, 401.0, 900.0], samples=1600).warnings()
    assert heavy == "level 1: kurtosis 401, so 1600 samples give the second moment to within 50% at best"
    assert hopeless == "level 2: one or two of 1600 samples make most of the second moment"
    assert made_up(2.0, 1.0, 1.0).warnings() == []


def test_calibrate_gives_rates_for_a_plan_and_a_report_to_print(x64):
    rates, report = dmlmc.calibrate(
        quadratic(), jnp.asarray(POINT), jr.key(0), 20_000, max_level=3, steps=[1, 2, 4, 8], blocks=16
    )
    assert abs(rates.b - TRUE.b) < 0.3 and rates.d == pytest.approx(TRUE.d, abs=1e-3) and rates.c == pytest.approx(1)
    assert dmlmc.plan(rates, max_level=3, level0_samples=512) == report.plan
    assert (report.table.samples == 912).all()  # 20,000 over 1 + 3 + 6 + 12, in whole blocks of 16
    text = str(report)
    assert "b = 1." in text and "no warnings" in text and "MLMC worth it (b > c)?  yes" in text
    assert max(map(len, text.splitlines())) <= 130


def test_a_notebook_shows_the_check_list_as_a_table_with_readable_headers(x64):
    report = dmlmc.CheckList.from_measurement(measure(quadratic(), max_level=3, samples=512))
    shown = report._repr_html_()
    headers = re.findall("<th>(.+?)</th>", shown)
    assert "telescoping gap [standard errors]" in headers and not any("_" in header for header in headers)
    cells = np.array(re.findall("<td>(.+?)</td>", shown), float).reshape(len(report.table), len(headers))
    np.testing.assert_allclose(cells[:, headers.index("variance of g")], report.table.variance, rtol=0.06)  # two digits
    text = html.unescape(shown.partition("<pre>")[2].partition("</pre>")[0])
    assert str(report).endswith(text) and "(b > c)?" in text and "b > c" not in shown


def test_calibrate_takes_a_second_point(x64):
    options = {"max_level": 3, "steps": [1, 2, 4, 8], "blocks": 16}
    rates, _ = dmlmc.calibrate(quadratic(), jnp.zeros(3), jr.key(0), 9_000, other=jnp.asarray(NEARBY), **options)
    assert rates.d == pytest.approx(TRUE.d, abs=1e-3)
    with pytest.raises(ValueError, match="other must differ from params"):  # so it is the given point that is used
        dmlmc.calibrate(quadratic(), jnp.zeros(3), jr.key(0), 9_000, other=jnp.zeros(3), **options)


def test_calibrate_refuses_a_variance_that_grows(x64):
    class Growing(dmlmc.QuadraticLoss):
        def loss(self, params, noise):
            return 4.0 ** noise.shape[0] * super().loss(params, noise)

    with pytest.raises(ValueError, match=r"calibrate: loss has no rates to plan with(.|\n)*none, the variance"):
        dmlmc.calibrate(Growing(3, 2.0, 0.5, TRUE), jnp.asarray(POINT), jr.key(0), 1000, max_level=2, blocks=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "calibrate: budget must be positive"),
        ({"distance": -1.0}, "calibrate: distance must be positive"),
        ({"max_level": 1}, "calibrate: max_level must be at least 2"),
        ({"blocks": 1}, "calibrate: blocks must be at least 4"),
        ({"params": jnp.full(3, jnp.inf)}, "calibrate: params must give level 0 a finite gradient"),
    ],
)
def test_bad_arguments_of_calibrate_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        dmlmc.calibrate(
            **{"loss": quadratic(), "params": jnp.asarray(POINT), "key": jr.key(0), "budget": 100.0, **options}
        )
