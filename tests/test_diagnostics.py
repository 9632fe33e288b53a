"""Measured rates against known ones: the quadratic loss, and geometric Brownian motion by two schemes."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pandas as pd
import pytest

import dmlmc
from dmlmc.diagnostics import Measurement, _squared_mean
from dmlmc.rate_fits import Estimate, FittedRates, _decay_rate
from tests.problems import neural_loss, neural_params

TRUE = dmlmc.Rates(b=1.6, c=1.0, d=0.9)
POINT, NEARBY = np.ones(3), np.array([1.0, 1.1, 0.8])  # made JAX arrays late: in a test their type is that of the test


def quadratic():
    return dmlmc.QuadraticLoss(dimension=3, L=2.0, M=0.5, rates=TRUE)


def measure(loss=None, params=POINT, other=NEARBY, key=0, **options):
    params, other = (jnp.asarray(point) if isinstance(point, np.ndarray) else point for point in (params, other))
    settings = {"max_level": 2, "samples": 256, "blocks": 16, **options}
    return dmlmc.measure_levels(loss or quadratic(), params, other, jr.key(key), **settings)


def geometric_brownian_motion(solver):
    return dmlmc.SDELoss(
        drift=lambda t, y, params: params[0] * y,
        diffusion=lambda t, y, params: params[1] * y[:, None],
        terminal=lambda y, params: jnp.sum((y - 1.2) ** 2),
        y0=jnp.ones(1),
        t1=1.0,
        coarsest_steps=32,
        noise_dim=1,
        solver=solver,
    )


def test_statistics_of_the_quadratic_loss_are_the_exact_ones(x64):
    found = measure(max_level=3, samples=4096).table().set_index("level")
    for level, row in found.iterrows():
        variance, squared = 0.5 * 2 ** (-1.6 * level), 12 * 2 ** (-1.8 * level)  # |2 x 2^(-d l)|^2 at x = (1, 1, 1)
        assert abs(row.variance - variance) < 4 * row.variance_error < 0.3 * variance
        assert abs(row.second_moment - variance - squared) < 4 * row.second_moment_error
        assert abs(row.squared_mean - squared) < 4 * row.squared_mean_error
        assert row.smoothness == pytest.approx(2 * 2 ** (-0.9 * level), rel=1e-9)
        assert row.mean_smoothness == pytest.approx(row.smoothness, rel=1e-9) and row.noise_floor < 1e-6
        assert row.consistency < 4
    assert found.samples.unique().tolist() == [4096] and found.steps.tolist() == [3, 6, 9, 12]


def test_kurtosis_is_that_of_the_norm_of_a_normal_vector(x64):
    """With no mean and n components it is (n + 2) / n."""
    found = measure(params=1e-9 * POINT, other=2e-9 * POINT, samples=8192).table()
    np.testing.assert_allclose(found["kurtosis"], 5 / 3, atol=4 * (8.9 / 8192) ** 0.5)  # the variance of |g|^4 is 8.9


def test_fitted_rates_are_the_true_ones_as_often_as_the_interval_says(x64):
    hits, errors = [], []
    for seed in range(60):
        fitted = dmlmc.fit_rates(measure(key=seed, max_level=3, steps=[1, 2, 4, 8]), resamples=300)
        hits.append(fitted.b.low < TRUE.b < fitted.b.high)
        errors.append(fitted.b.estimate - TRUE.b)
        assert fitted.d.estimate == pytest.approx(TRUE.d, abs=1e-9) and fitted.d.high - fitted.d.low < 1e-9
        assert fitted.c == pytest.approx((1.0, 1.0, 1.0))
    assert 50 <= sum(hits) <= 60  # 57 expected of 60 at 95%; fewer than 50 has a probability of 1 in 2000
    assert abs(np.mean(errors)) < 4 * np.std(errors) / 60**0.5 + 0.01  # the logarithm of a mean is biased a little


def test_exponents_known_up_to_rounding_have_an_interval_without_width():
    """In single precision all blocks agree on d up to rounding, and some draws of blocks agree exactly."""
    for key in range(4):
        fitted = dmlmc.fit_rates(measure(key=key, max_level=3, samples=4096, blocks=32))
        assert fitted.d.low == fitted.d.estimate == fitted.d.high == pytest.approx(TRUE.d, abs=1e-4)


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_the_interval_keeps_its_word_in_heavy_tails(spread):
    """Second moments of lognormal times normal gradients: at spread 2 the kurtosis is above a million."""
    hits, blocks, levels = 0, 32, 4
    for seed in range(200):
        rng = np.random.default_rng(seed)
        common = np.exp(2 * spread * rng.normal(size=(blocks, 32)))  # a wild path is wild at every level
        squares = (
            common * rng.chisquare(3, size=(levels, blocks, 32)) * 2.0 ** (-1.6 * np.arange(levels))[:, None, None]
        )
        found = _decay_rate(squares.mean(axis=2)[None], rng.integers(0, blocks, (300, blocks)))
        hits += found.low < 1.6 < found.high
    # Of 200 at 95%, fewer than 178 have a probability of 1 in 1000.
    assert hits >= 178


def test_the_number_of_samples_changes_neither_program_nor_memory(x64):
    traced = []

    class Counting(dmlmc.QuadraticLoss):
        def loss(self, params, noise):
            traced.append(noise.shape)
            return super().loss(params, noise)

    loss = Counting(3, 2.0, 0.5, TRUE)
    measure(loss, samples=64)
    before = len(traced)
    measure(loss, samples=4096)
    assert before == len(traced) > 0


@pytest.mark.parametrize(("solver", "rate"), [(diffrax.ItoMilstein(), 2.0), (diffrax.Euler(), 1.0)])
def test_the_scheme_decides_b_on_geometric_brownian_motion(x64, solver, rate):
    found = measure(
        geometric_brownian_motion(solver),
        jnp.array([0.1, 0.2]),
        jnp.array([0.11, 0.19]),
        max_level=3,
        samples=4096,
        blocks=32,
    )
    fitted = dmlmc.fit_rates(found)
    assert fitted.b.low < rate < fitted.b.high
    assert fitted.b.high - fitted.b.low < 0.5  # so that 1 and 2 are told apart
    assert fitted.c.estimate == pytest.approx(1.0) and found.table().consistency.max() < 4


def test_streamed_equals_unstreamed(x64):
    loss, params = neural_loss(jnp.float64), neural_params(jnp.float64)
    other = eqx.tree_at(lambda params: params.scale, params, params.scale + 0.01)
    whole, pieces = (measure(loss, params, other, max_level=1, samples=64, blocks=4, chunk=chunk) for chunk in (16, 3))
    pd.testing.assert_frame_equal(whole.blocks, pieces.blocks, rtol=1e-9)
    pd.testing.assert_frame_equal(whole.levels, pieces.levels, rtol=1e-6)


def test_statistics_are_those_of_gradients_by_hand(x64):
    """All samples at once, one gradient each, from the same keys."""
    loss, params = neural_loss(jnp.float64), neural_params(jnp.float64)
    other = eqx.tree_at(lambda params: params.scale, params, params.scale + 0.01)
    found = measure(loss, params, other, max_level=1, samples=12, blocks=4, chunk=2)
    pair_key = jr.split(jr.key(0))[0]

    @eqx.filter_jit
    def gradient(params, key):
        noise = loss.sample(key, 1)
        return jax.flatten_util.ravel_pytree(
            eqx.filter_grad(lambda params: loss.loss(params, noise) - loss.loss(params, loss.coarsen(noise)))(params)
        )[0]

    keys = jax.vmap(lambda sample: jr.fold_in(pair_key, sample))(jnp.arange(1, 12, 4))  # of block 1
    here, there = (np.stack([gradient(point, key) for key in keys]) for point in (params, other))
    row = found.blocks[(found.blocks.level == 1) & (found.blocks.block == 1)].iloc[0]
    distance = 0.01 * 2**0.5
    assert row.second_moment == pytest.approx(np.mean(np.sum(here**2, axis=1)))
    assert row.fourth_moment == pytest.approx(np.mean(np.sum(here**2, axis=1) ** 2))
    assert row.variance == pytest.approx(np.sum(np.var(here, axis=0, ddof=1)))
    assert row.smoothness == pytest.approx(np.mean(np.linalg.norm(there - here, axis=1)) / distance)
    assert found.levels.samples.tolist() == [12, 12]


def test_the_squared_mean_averages_all_ways_to_halve_the_blocks():
    means = np.random.default_rng(0).normal(size=(4, 5))
    halves = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    expected = np.mean([means[list(one)].mean(axis=0) @ means[list(two)].mean(axis=0) for one, two in halves])
    estimate, _, noise = _squared_mean(means)
    assert estimate == pytest.approx(expected)
    assert noise == pytest.approx(np.sum(np.var(means, axis=0, ddof=1)) / 4)


class BrokenPair(dmlmc.QuadraticLoss):
    def pair(self, params, noise):
        fine, coarse = super().pair(params, noise)
        return fine, 0.9 * coarse


def test_a_sum_that_does_not_telescope_is_noticed(x64):
    broken = BrokenPair(dimension=3, L=2.0, M=0.5, rates=TRUE)
    report = dmlmc.check_list(measure(broken, samples=1024))
    assert any("does not telescope" in warning for warning in report.warnings())
    assert "does not telescope" in str(report)


def test_a_level_made_by_one_sample_is_named():
    found = measure(max_level=1, samples=64, blocks=4)
    wild = found.blocks.assign(fourth_moment=found.blocks.second_moment.mean() ** 2 * 64 * (found.blocks.level == 1))
    assert found.dominated_levels() == []
    assert Measurement(wild, found.levels).dominated_levels() == [1]


def made_up(b, c, d, **columns):
    table = pd.DataFrame({"level": [0, 1, 2], "samples": 100, "kurtosis": 3.0, "consistency": 1.0} | columns)
    fitted = FittedRates(*(Estimate(value, value - 0.1, value + 0.1) for value in (b, c, d)))
    return dmlmc.CheckList(table, fitted, dmlmc.plan(fitted.rates(), 2, level0_samples=10) if b > c else None)


@pytest.mark.parametrize(
    ("rates", "worth", "safe", "plan"),
    [
        ((2.0, 1.0, 1.0), "yes", "yes; d = c within its interval", "N_l (10, 4, 2), periods (1, 2, 4)"),
        ((2.0, 1.0, 1.5), "yes", "yes; d > c, mean span is bounded", "N_l (10, 4, 2), periods (1, 2, 8)"),
        ((1.05, 1.0, 0.05), "not decided", "not decided; d < c", "N_l (10, 5, 3), periods (1, 1, 1)"),
        ((0.5, 1.0, -0.5), "no", "no; d < c", "none, the variance"),
    ],
)
def test_the_verdict(rates, worth, safe, plan):
    lines = "\n".join(made_up(*rates).verdict())
    assert f"(b > c)?  {worth}\n" in lines and f"(d > 0)?     {safe}" in lines and plan in lines


@pytest.mark.parametrize(("rounding", "safe"), [(1e-7, "no"), (-1e-7, "no"), (1e-3, "yes")])
def test_a_rate_that_is_zero_up_to_rounding_makes_no_delay_safe(rounding, safe):
    exact = FittedRates(*(Estimate(value, value, value) for value in (2.0, 1.0, rounding)))
    assert f"delay safe (d > 0)?     {safe};" in "\n".join(dmlmc.CheckList(pd.DataFrame(), exact, None).verdict())


def test_heavy_tails_are_told():
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


def test_calibrate_takes_a_second_point(x64):
    rates, _ = dmlmc.calibrate(
        quadratic(), jnp.zeros(3), jr.key(0), 9_000, max_level=2, other=jnp.asarray(NEARBY), steps=[1, 2, 4], blocks=8
    )
    assert rates.d == pytest.approx(TRUE.d, abs=1e-3)


def test_calibrate_refuses_a_variance_that_grows(x64):
    class Growing(dmlmc.QuadraticLoss):
        def loss(self, params, noise):
            return 4.0 ** noise.shape[0] * super().loss(params, noise)

    with pytest.raises(ValueError, match=r"calibrate: loss has no rates to plan with(.|\n)*none, the variance"):
        dmlmc.calibrate(Growing(3, 2.0, 0.5, TRUE), jnp.asarray(POINT), jr.key(0), 1000, max_level=2, blocks=8)


def test_iterates_are_those_of_training():
    rates = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
    estimator = dmlmc.delayed_mlmc(quadratic(), dmlmc.plan(rates, 2, level0_samples=8))
    optimiser = optax.adam(0.05)
    met = dmlmc.iterates(estimator, optimiser, jnp.asarray(POINT), [0, 3, 4, 9], jr.key(1))
    assert [at.step for at in met] == [0, 3, 4, 9]
    np.testing.assert_array_equal(met[0].params, POINT)
    np.testing.assert_array_equal(met[1].following, met[2].params)
    trained, _ = dmlmc.train(estimator, optimiser, jnp.asarray(POINT), 10, jr.key(1), progress=False)
    np.testing.assert_allclose(met[3].following, trained, rtol=1e-5)


def test_several_points_give_the_mean_of_their_exponents(x64):
    points = [measure(key=key, max_level=2, blocks=8) for key in (0, 1)]
    alone, both = [dmlmc.fit_rates(point) for point in points], dmlmc.fit_rates(points)
    assert both.b.estimate == pytest.approx((alone[0].b.estimate + alone[1].b.estimate) / 2)
    assert both.b.high - both.b.low < max(one.b.high - one.b.low for one in alone)


BAD_MEASUREMENTS = [
    ({"max_level": -1}, "measure_levels: max_level must be at least 0"),
    ({"blocks": 3}, "measure_levels: blocks must be at least 4"),
    ({"samples": 0}, "measure_levels: samples must be at least 1"),
    ({"steps": [1.0, 0.0, 1.0]}, "measure_levels: steps must be finite and positive"),
    ({"chunk": 0}, "measure_levels: chunk must be at least 1"),
    ({"other": POINT}, "measure_levels: other must differ from params, finitely, got a distance of 0.0"),
    ({"other": jnp.ones(2)}, "measure_levels: other must be shaped like params"),
    (
        {"other": jnp.array([1.0, jnp.nan, 1.0])},
        "measure_levels: other must differ from params, finitely, got a distance of nan",
    ),
]


@pytest.mark.parametrize(("options", "message"), BAD_MEASUREMENTS)
def test_bad_arguments_of_measure_levels_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        measure(**options)


def test_what_is_not_a_loss_or_not_finite_is_named():
    with pytest.raises(TypeError, match="measure_levels: loss must be a"):
        measure(loss=abs)

    class Infinite(dmlmc.QuadraticLoss):
        def loss(self, params, noise):
            return super().loss(params, noise) / (2.0 - noise.shape[0])

    with pytest.raises(FloatingPointError, match="at level 1 is not finite"):
        measure(Infinite(3, 2.0, 0.5, TRUE))


def test_bad_arguments_of_fits_are_named():
    found = measure(max_level=2, blocks=4)
    other = Measurement(found.blocks[found.blocks.level < 2], found.levels[:2])
    flat = Measurement(found.blocks.assign(variance=0.0), found.levels)
    for options, error, message in [
        ({"measured": []}, TypeError, "fit_rates: measured must be a dmlmc.Measurement"),
        ({"measured": [1]}, TypeError, "fit_rates: measured must be a dmlmc.Measurement"),
        ({"measured": [found, other]}, ValueError, "fit_rates: measured must have the same levels"),
        ({"measured": flat}, ValueError, "fit_rates: measured needs a positive variance"),
        ({"drop": 2}, ValueError, "fit_rates: drop must leave two levels or more of the 3 measured"),
        ({"drop": -1}, ValueError, "fit_rates: drop must be at least 0"),
        ({"resamples": 1}, ValueError, "fit_rates: resamples must be at least 20"),
    ]:
        with pytest.raises(error, match=message):
            dmlmc.fit_rates(**{"measured": found, **options})


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


@pytest.mark.parametrize("stops", [[], [3, 1], [2, 2]])
def test_bad_stops_are_named(stops):
    estimator = dmlmc.naive(quadratic(), 0, 1)
    with pytest.raises(ValueError, match="iterates: stops must be increasing"):
        dmlmc.iterates(estimator, optax.sgd(0.1), jnp.asarray(POINT), stops, jr.key(0))
    with pytest.raises(ValueError, match="iterates: stops must be at least 0"):
        dmlmc.iterates(estimator, optax.sgd(0.1), jnp.asarray(POINT), [-1, 2], jr.key(0))
