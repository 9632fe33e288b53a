import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlmc
from dmlmc.calibration.interval import mean_interval
from dmlmc.devices import even_mesh
from dmlmc.experiments import comparison


def exponential_record(rates, spans, steps=50):
    """Losses ``exp(-rate step)`` at every tenth step, for each method and seed."""
    rows = [
        {"method": method, "seed": seed, "step": step, "span": spans[method] * step, "work": step, "seconds": step,
         "loss": math.exp(-rate * step)}
        for method, by_seed in rates.items()
        for seed, rate in enumerate(by_seed)
        for step in range(0, steps + 1, 10)
    ]  # fmt: skip
    return pd.DataFrame(rows)


RECORD = exponential_record(
    {"MLMC": [0.1, 0.2, 0.3], "delayed MLMC": [0.1, 0.25, 0.2]}, {"MLMC": 64.0, "delayed MLMC": 4.0}
)


def test_interpolation_is_exact_for_exponential_decay():
    needed = comparison.cost_to_reach(RECORD, math.exp(-1.7), "span")
    assert needed["MLMC", 1] == pytest.approx(64 * 1.7 / 0.2)
    assert needed["delayed MLMC", 2] == pytest.approx(4 * 1.7 / 0.2)


def test_the_cost_is_zero_for_a_loss_reached_at_the_start_and_nan_for_one_never_reached():
    assert (comparison.cost_to_reach(RECORD, 1.0, "span") == 0).all()
    assert comparison.cost_to_reach(RECORD, math.exp(-6.0), "span").isna().tolist() == [True, False, False] * 2


def one_run(losses, costs=None):
    costs = range(len(losses)) if costs is None else costs
    return pd.DataFrame({"method": "MLMC", "seed": 0, "span": np.asarray(costs, float), "loss": losses})


def cost_of(losses, target, costs=None):
    return comparison.cost_to_reach(one_run(losses, costs), target, "span").item()


def test_a_loss_is_reached_when_the_run_never_is_above_it_again():
    losses = [16.0, 1.0, 8.0, 2.0, 4.0, 1.0, 2.0]  # below 2 at 1, back above, at 2 or below for good from 5 on
    assert cost_of(losses, 2.0) == pytest.approx(4.5)
    assert cost_of(losses, 4.0) == pytest.approx(2.5)  # 4 itself counts as reached
    assert cost_of(losses, 8.0) == pytest.approx(0.25)
    assert np.isnan(cost_of(losses, 1.9)) and cost_of(losses, 16.0) == 0
    assert cost_of(losses, 2.0, costs=[0, 1, 2, 3, 10, 30, 31]) == pytest.approx(20)


def test_losses_without_a_logarithm_give_the_cost_of_an_evaluation():
    assert cost_of([np.inf, 1.0], 2.0) == cost_of([np.nan, 1.0], 2.0) == 1
    assert cost_of([4.0, np.inf, 1.0, 0.5], 2.0) == cost_of([4.0, np.nan, 1.0, 0.5], 2.0) == 2
    assert cost_of([4.0, 0.0], 2.0) == cost_of([4.0, -1.0], 2.0) == 1
    assert np.isnan(cost_of([4.0, 1.0, np.inf], 2.0)) and np.isnan(cost_of([4.0, 1.0, np.nan], 2.0))


losses_of_a_run = st.lists(st.floats(1e-3, 1e3) | st.just(np.inf), min_size=1, max_size=12)


@given(losses_of_a_run, st.floats(1e-3, 1e3))
def test_a_loss_is_reached_for_good_not_before_it_is_reached_at_all(losses, target):
    reached = cost_of(losses, target)
    if not losses[-1] <= target:
        assert np.isnan(reached)
        return
    first = int(np.argmax(np.array(losses) <= target))  # the first evaluation at or below the target
    assert max(first - 1, 0) <= reached <= len(losses) - 1
    assert all(loss <= target for place, loss in enumerate(losses) if place >= reached)
    assert reached == 0 or losses[math.ceil(reached) - 1] > target  # and not after it is reached for good


@given(losses_of_a_run, st.floats(1e-3, 1e3), st.floats(1, 100))
def test_a_lower_loss_is_not_reached_earlier(losses, target, factor):
    sooner, later = cost_of(losses, factor * target), cost_of(losses, target)
    assert np.isnan(later) or sooner <= later + 1e-9


def test_ratios_are_paired_by_seed():
    ratio = comparison.ratio_to_reach(RECORD, 0.1, "span")
    by_seed = 16 * np.array([1.0, 0.25 / 0.2, 0.2 / 0.3])
    assert ratio == pytest.approx(mean_interval(by_seed))
    assert ratio.estimate == pytest.approx(by_seed.mean()) and ratio.low < ratio.estimate < ratio.high


def test_common_targets_are_reached_by_every_run():
    targets = comparison.common_targets(RECORD, count=3)
    assert targets == sorted(targets, reverse=True) and len(set(targets)) == 3
    for target in targets:
        assert comparison.cost_to_reach(RECORD, target, "step").between(0, 50, inclusive="neither").all()


def test_common_targets_are_those_a_run_ends_below():
    record = one_run([9.0, 8.0, 0.1, 1.0])
    assert comparison.common_targets(record, count=2) == [4.0, 2.0]
    for end in (8.0, 0.0):
        with pytest.raises(ValueError, match="must have a positive loss that every run reaches for good"):
            comparison.common_targets(one_run([9.0, 8.0, 0.1, end]))
    for end in (np.nan, np.inf):
        with pytest.raises(ValueError, match="that every run reaches for good"):
            comparison.common_targets(pd.concat([record, one_run([9.0, 8.0, 0.1, end]).assign(seed=1)]))


@given(st.floats(0.1, 10.0), st.floats(1e-9, 3.0))
def test_common_targets_stay_between_the_ends_when_rounded(lowest, width):
    highest = lowest * (1 + width)
    targets = comparison.common_targets(one_run([20.0, highest, lowest]))
    assert len(set(targets)) == 4 and all(lowest <= target <= highest for target in targets)
    (middle,) = comparison.common_targets(one_run([20.0, highest, lowest]), count=1)
    assert lowest <= middle <= highest
    assert all(1 <= cost_of([20.0, highest, lowest], target) <= 2 for target in targets)


def test_the_summary_survives_json_and_agrees_with_the_table():
    summary = comparison.summarise(RECORD, [0.5, 0.1], profile="quick", seeds=3, seconds=1.5)
    read = json.loads(json.dumps(summary))
    assert (read["profile"], read["seeds"], read["seconds"]) == ("quick", 3, 1.5)
    table = comparison.comparison_table(summary)
    for entry in read["targets"]:
        assert set(entry["span_ratio"]) == {"mean", "low", "high"}
        expected = comparison.ratio_to_reach(RECORD, entry["loss"], "work")
        assert tuple(entry["work_ratio"].values()) == pytest.approx(expected)
        assert table.loc[entry["loss"], "work ratio"] == "{:.3g} [{:.3g}, {:.3g}]".format(*expected)
        needed = comparison.cost_to_reach(RECORD, entry["loss"], "span")["MLMC"].mean()
        assert entry["span"]["MLMC"] == pytest.approx(needed)
        assert float(table.loc[entry["loss"], "span, MLMC"]) == pytest.approx(needed, rel=1e-2)


def test_methods_start_from_the_same_parameters(paper_rates):
    loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=0.1, rates=paper_rates)
    plan = dmlmc.plan(paper_rates, 2, level0_samples=8, allocation="paper")
    starts = jnp.array([[1.0, 2.0], [-1.0, 0.5]])
    trained, record = comparison.compare(
        [(dmlmc.naive(loss, 2, 4), 4), (dmlmc.delayed_mlmc(loss, plan), 8)],
        optax.sgd(0.1),
        starts,
        jax.random.split(jax.random.key(0), 2),
        validation=lambda params: loss.mean(params, 2),
        evaluate_every=4,
        mesh=even_mesh(2),
        progress=False,
    )
    assert list(trained) == ["naive", "delayed MLMC"] and trained["naive"].shape == (2, 2)
    first = record[record.step == 0].pivot(index="seed", columns="method", values="loss")
    np.testing.assert_array_equal(first["naive"], first["delayed MLMC"])
    assert record.groupby("method").step.max().to_dict() == {"naive": 4, "delayed MLMC": 8}


def test_parameters_are_kept_at_equal_iterations_and_metrics_are_recorded(paper_rates):
    loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=0.1, rates=paper_rates)
    delayed = dmlmc.delayed_mlmc(loss, dmlmc.plan(paper_rates, 2, level0_samples=8, allocation="paper"))

    def compare(steps, **options):
        trained, record = comparison.compare(
            [(delayed, steps)],
            optax.sgd(0.1),
            jnp.array([[1.0, 2.0], [-1.0, 0.5]]),
            jax.random.split(jax.random.key(0), 2),
            validation=lambda params: loss.mean(params, 2),
            evaluate_every=4,
            progress=False,
            **options,
        )
        return np.asarray(trained["delayed MLMC"]), record

    kept, record = compare(8, keep_step=4, metrics=lambda params: {"first": params[0]})
    np.testing.assert_array_equal(kept, compare(4)[0])
    assert not np.array_equal(kept, compare(8)[0])
    np.testing.assert_allclose(record[record.step == 4]["first"], kept[:, 0], rtol=1e-6)
    with pytest.raises(ValueError, match=r"keep_step must be a step at which .* \[0, 4, 8\], got 5"):
        compare(8, keep_step=5)


class Sums(dmlmc.MultilevelLoss):
    """``params`` times sums of ``weights[k] z_k`` up to level k, so that all variances are known."""

    first: int = 0
    weights: tuple[float, ...] = (2.0, 0.5, 0.1)

    def sample(self, key, level):
        return jax.random.normal(key, (self.first + level + 1,))

    def coarsen(self, noise):
        return noise[:-1]

    def loss(self, params, noise):
        return params["x"] * jnp.sum(jnp.array(self.weights[: noise.size]) * noise)


def test_the_naive_batch_is_checked_against_measured_variances(paper_rates):
    held = dmlmc.plan(paper_rates, 2, samples=[64, 32, 16])
    plan, params = held.without_delay(), {"x": jnp.array(0.5), "kept": 3}
    assert plan.samples == (64, 16, 4)
    tables = [
        comparison.variance_check(held, Sums(), Sums(first=2), params, jax.random.key(seed), samples=1024)
        for seed in range(6)
    ]
    table = tables[0]
    assert table.index.tolist() == ["V_1 / V_0", "V_2 / V_0", "V_naive / V_0", "naive batch"]
    assert table.modelled.tolist() == [2**-1.8, 2**-3.6, 1.0, plan.naive_samples()]
    variances = [4.0, 0.25, 0.01]
    truth = np.array([0.25 / 4, 0.01 / 4, 4.26 / 4, 4.26 / plan.variance(variances)])
    assert plan.naive_samples(variances, 4.26) == math.ceil(truth[-1])
    measured, errors = np.array([one.measured for one in tables]), np.array([one.error for one in tables])
    np.testing.assert_array_less(np.abs(measured.mean(axis=0) - truth), 4 * errors.mean(axis=0) / 6**0.5 + [0, 0, 0, 1])
    assert np.all(errors.mean(axis=0) / truth < 0.1)
    spread = measured.std(axis=0, ddof=1) / errors.mean(axis=0)  # the errors are those of the spread over seeds
    assert np.all((spread > 0.3) & (spread < 2.5)), spread


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: comparison.cost_to_reach(RECORD, 0.0, "span"), "target must be positive"),
        (lambda: comparison.cost_to_reach(RECORD, 0.1, "time"), "cost must be a column of the record"),
        (
            lambda: comparison.common_targets(RECORD[RECORD.step <= 10]),
            "must have a positive loss that every run reaches for good",
        ),
    ],
)
def test_errors_name_the_bad_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
