import json
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import dmlmc
from dmlmc.calibration.interval import mean_interval
from dmlmc.experiments import streaming
from tests.experiments.test_tuned import exponential_record

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)


def clock_loss(chunks):
    """A loss that is linear in the parameters, one for each of ``chunks`` parts of the time: its gradient is exact."""
    return dmlmc.SDELoss(
        drift=lambda t, y, params: jnp.stack([params[jnp.minimum(t * chunks, chunks - 1).astype(int)] * (1 + t)]),
        diffusion=lambda t, y, params: jnp.ones((1, 1)),
        terminal=lambda y, params: y[0],
        y0=jnp.zeros(1), noise_dim=1, t1=1.0, coarsest_steps=4,
    )  # fmt: skip


@pytest.mark.parametrize("stride", [1, 2])
def test_who_is_where_predicts_every_gradient_of_the_estimator(stride):
    max_level, steps = 2, 11
    chunks = 2**max_level
    loss, params = clock_loss(chunks), jnp.ones(chunks)
    plan = dmlmc.plan(RATES, max_level, samples=[1, 1, 1], periods=[1, 2, 4], allocation="paper")
    estimator = dmlmc.streaming_mlmc(loss, plan, stride=stride)

    @jax.jit
    def whole_gradients(params):
        levels = range(max_level + 1)
        noises = [loss.sample(jr.key(0), level) for level in levels]
        return [jax.grad(loss.difference)(params, noise, level) for noise, level in zip(noises, levels, strict=True)]

    whole = [np.asarray(gradient) for gradient in whole_gradients(params)]
    where = streaming.whereabouts(max_level, steps, stride)
    middles = (np.arange(chunks) + 0.5) / chunks
    state = estimator.init(params)
    for step in range(steps):
        gradient, state = estimator.estimate(params, state, step, jr.key(1))
        expected = np.zeros(chunks)
        for row in where[(where.step == step) & (where.way == streaming.BACK)].itertuples():
            passed = (middles > row.end) & (middles < row.begin)
            expected += np.where(passed, whole[row.level], 0.0) / (row.begin - row.end)  # weighted by the period
        np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_every_cohort_goes_all_the_way_forward_and_back():
    where = streaming.whereabouts(3, 24).query("level == 3")
    for way, ends in ((streaming.FORWARD, (0.0, 1.0)), (streaming.BACK, (1.0, 0.0))):
        cohort = where[(where.way == way) & (where.cohort == 1)]
        assert len(cohort) == 8 and (cohort.begin.iloc[0], cohort.end.iloc[-1]) == ends
        assert cohort.begin.iloc[1:].tolist() == cohort.end.iloc[:-1].tolist()
    turn = where[(where.cohort == 1)].groupby("way").step.agg(["min", "max"])
    assert turn.loc[streaming.FORWARD].tolist() == [8, 15] and turn.loc[streaming.BACK].tolist() == [16, 23]


def ornstein_loss():
    return dmlmc.SDELoss(
        drift=lambda t, y, params: -params * y, diffusion=lambda t, y, params: 0.3 * jnp.ones((1, 1)),
        terminal=lambda y, params: (y[0] - 0.5) ** 2, y0=jnp.ones(1), noise_dim=1, t1=1.0, coarsest_steps=2,
    )  # fmt: skip


def test_pieces_of_frozen_parameters_average_to_the_gradient_of_mlmc():
    plan = dmlmc.plan(RATES, 2, level0_samples=16)
    found = streaming.frozen_gradients(ornstein_loss(), plan, jnp.array(1.0), jr.key(0), 100)
    assert [one.shape for one in found] == [(100, 1)] * 3
    last = streaming.running_distances(found).iloc[-1]
    assert last.streaming < 3 * last.error < last.level0  # level 0 alone is far away
    # The first period, before the finest level has joined, is not in the mean.
    estimator = dmlmc.streaming_mlmc(ornstein_loss(), plan)
    blocks = streaming.block_means(estimator, jnp.array(1.0), jr.split(jr.key(0), 3)[0], 3, 4)
    np.testing.assert_allclose(found.streaming[:2], blocks[1:], rtol=1e-5)


def test_distances_are_relative_and_their_error_falls_with_the_root_of_the_periods():
    found = streaming.Frozen(np.array([[2.0], [4.0]]), np.array([[1.0], [3.0]]), np.array([[1.0], [1.0]]))
    table = streaming.running_distances(found)
    assert table.streaming.tolist() == [0.0, 0.5] and table.level0.tolist() == [0.5, 0.5]
    assert table.error.tolist() == pytest.approx([math.sqrt(2 + 1) / 2, math.sqrt(1 + 1) / 2])


SPANS = {"naive": 64.0, "MLMC": 64.0, "streaming MLMC": 1.0}
SPEEDS = {
    ("naive", 0.1): [0.05, 0.05, 0.05],
    ("MLMC", 0.1): [0.1, 0.1, 0.1],
    ("MLMC", 0.2): [0.2, 0.21, 0.22],
    ("streaming MLMC", 0.1): [0.19, 0.2, 0.21],
    ("streaming MLMC", 0.2): [0.01, 0.01, 0.01],
}
RECORD = exponential_record(SPEEDS, SPANS)


def test_late_losses_are_geometric_means_of_the_last_quarter_of_the_evaluations():
    late = streaming.late_losses(RECORD).set_index(["method", "learning_rate", "seed"]).loss
    assert late["MLMC", 0.2, 0] == pytest.approx(math.exp(-0.2 * 55))  # of seven evaluations those at 50 and 60
    diverged = RECORD.copy()
    diverged.loc[(RECORD.method == "MLMC") & (RECORD.step == 60), "loss"] = np.inf
    assert np.isinf(streaming.late_losses(diverged).set_index("method").loss["MLMC"]).all()


def test_the_ratio_of_late_losses_is_paired_and_each_method_is_at_its_own_best_rate():
    expected = np.exp(mean_interval(np.array([0.2 - 0.19, 0.21 - 0.2, 0.22 - 0.21]) * 55))
    assert streaming.late_loss_ratio(RECORD) == pytest.approx(tuple(expected))
    best = streaming.at_best_rates(RECORD).groupby("method").learning_rate.unique()
    assert best["MLMC"].tolist() == [0.2] and best["streaming MLMC"].tolist() == [0.1]


def test_runs_are_lost_that_end_above_half_of_their_first_loss():
    record = RECORD.copy()
    record.loc[(record.method == "MLMC") & (record.learning_rate == 0.2) & (record.seed == 1), "loss"] = 1.0
    record.loc[(record.method == "naive") & (record.step == 60), "loss"] = np.inf
    lost = streaming.lost_runs(record)
    assert lost.loc["MLMC"].tolist() == pytest.approx([0.0, 1 / 3])
    assert lost.loc["streaming MLMC"].tolist() == [0.0, 1.0] and lost.loc["naive", 0.1] == 1.0


def test_the_summary_has_seconds_of_measured_steps_and_is_in_json_types():
    record = streaming.with_seconds(RECORD, {"naive": 1.0, "MLMC": 2.0, "streaming MLMC": 0.5})
    found = streaming.summary(record)
    reached = {method: found[method] for method in ("MLMC", "streaming MLMC")}
    assert json.loads(json.dumps(reached)) == reached
    fields = {"best_rate", "at_the_edge", "final_loss", "seconds_to_target", "span_ratio_to_mlmc"}
    assert all(set(one) == fields for one in found.values())
    # The target is exp(-0.19 * 60), which the slowest streaming seed reaches at its last step; naive never does.
    assert found["streaming MLMC"]["seconds_to_target"]["high"] == pytest.approx(30.0)
    assert found["MLMC"]["seconds_to_target"]["median"] == pytest.approx(2 * 0.19 * 60 / 0.21)
    ratios = [64 * 0.19 / 0.2, 64 * 0.2 / 0.21, 64 * 0.21 / 0.22]
    assert found["streaming MLMC"]["span_ratio_to_mlmc"]["mean"] == pytest.approx(math.prod(ratios) ** (1 / 3))
    assert math.isinf(found["naive"]["seconds_to_target"]["median"])
    untimed = streaming.summary(streaming.with_seconds(RECORD, {"naive": 1.0, "streaming MLMC": 0.5}))
    assert streaming.summary_table({"SGD": untimed})["seconds to a common loss"]["SGD", "MLMC"] == "not timed"
    table = streaming.summary_table({"SGD": found})
    assert table["seconds to a common loss"]["SGD", "naive"] == "not reached"
    assert table["best rate"]["SGD", "MLMC"] == "0.2, an edge"  # the larger of two rates tried
