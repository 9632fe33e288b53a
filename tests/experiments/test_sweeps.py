from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pandas as pd
import pytest

import dmlmc
from dmlmc.experiments import sweeps

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)
LOSS = dmlmc.QuadraticLoss(2, 1.0, 0.1, RATES)
PLAN = dmlmc.plan(RATES, 1, level0_samples=4, allocation="paper")


def validation(params):
    return LOSS.mean(params, 1)


def test_every_run_of_a_sweep_agrees_with_train():
    estimator, keys = dmlmc.delayed_mlmc(LOSS, PLAN), jr.split(jr.key(0), 2)
    starts = jnp.array([[1.0, 2.0], [-1.0, 0.5]])
    optimisers = {"momentum": (partial(optax.sgd, momentum=0.9), [0.1]), "Adam": (optax.adam, [0.2])}
    options = {"steps": 7, "validation": validation, "evaluate_every": 3}
    trained, record = sweeps.sweep(estimator, optimisers, starts, keys, **options)
    assert trained.shape == (4, 2) and record.run.nunique() == 4
    for (name, rate), rows in record.groupby(["optimiser", "learning_rate"]):
        params, expected = dmlmc.train(
            estimator, optimisers[name][0](rate), starts, key=keys, params_per_seed=True, progress=False, **options
        )
        columns = ["method", "seed", "step", "work", "span"]
        pd.testing.assert_frame_equal(rows[columns].reset_index(drop=True), expected[columns], check_dtype=False)
        np.testing.assert_allclose(rows.loss, expected.loss, rtol=1e-5)
        for run, expected_params in zip(rows.run.unique(), params, strict=True):
            np.testing.assert_allclose(sweeps.params_of(trained, run), expected_params, rtol=1e-5)


def test_batched_runs_skip_levels_that_are_not_due():
    run = sweeps.one_run(dmlmc.delayed_mlmc(LOSS, PLAN), [optax.sgd, optax.adam], None, validation, np.array([0, 3]))
    inputs = jnp.zeros(4, int), jnp.full(4, 0.1), jnp.ones((4, 2)), jr.split(jr.key(0), 4)
    assert str(jax.make_jaxpr(jax.vmap(run))(*inputs)).count("cond[") == len(PLAN.periods) - 1


def test_a_diverged_run_has_infinite_loss_and_does_not_affect_the_others():
    estimator, key = dmlmc.mlmc(LOSS, PLAN), jr.key(0)[None]
    options = {"steps": 30, "validation": validation, "evaluate_every": 10}
    both = {"SGD": (optax.sgd, [0.1, 1e8])}
    _, record = sweeps.sweep(estimator, both, jnp.ones((1, 2)), key, **options)
    _, alone = sweeps.sweep(estimator, {"SGD": (optax.sgd, [0.1])}, jnp.ones((1, 2)), key, **options)
    np.testing.assert_allclose(record[record.learning_rate == 0.1].loss, alone.loss, rtol=1e-5)
    after = sweeps.after_training(record).set_index("learning_rate")
    assert np.isinf(after.loss[1e8]) and np.isfinite(after.loss[0.1])


def test_the_best_rate_has_the_smallest_mean_over_seeds():
    rows = [
        {"method": method, "optimiser": "SGD", "learning_rate": rate, "seed": seed, "step": step, "loss": loss + seed}
        for method, best in (("MLMC", 0.1), ("delayed MLMC", 0.2))
        for rate in (0.1, 0.2, 0.4)
        for seed in (0, 1)
        for step, loss in ((0, 0.0), (5, np.inf if rate == 0.4 else 1.0 + (rate != best)))
    ]
    best = sweeps.best_rates(pd.DataFrame(rows)).set_index("method")
    assert best.learning_rate.to_dict() == {"MLMC": 0.1, "delayed MLMC": 0.2}
    assert best.loss.tolist() == [1.5, 1.5] and np.all(best.low < best.loss) and np.all(best.loss < best.high)


def test_span_ratios_compare_mlmc_with_delayed_mlmc_at_equal_loss():
    rows = [
        {"method": method, "seed": seed, "step": step, "span": step * span, "loss": 2.0**-step}
        for method, span in (("naive", 8.0), ("MLMC", 8.0), ("delayed MLMC", 2.0))
        for seed in (0, 1)
        for step in range(6)
    ]
    found = sweeps.span_ratios(pd.DataFrame(rows))
    assert len(found) == 4 and all(ratio["mean"] == pytest.approx(4.0) for ratio in found.values())
    flat = pd.DataFrame(rows).assign(loss=1.0)
    assert sweeps.span_ratios(flat) == {}


def test_errors_name_the_bad_argument():
    estimator, key = dmlmc.mlmc(LOSS, PLAN), jr.key(0)[None]
    options = {"validation": validation, "evaluate_every": 1}
    with pytest.raises(ValueError, match="sweep: steps"):
        sweeps.sweep(estimator, {"SGD": (optax.sgd, [0.1])}, jnp.ones((1, 2)), key, steps=0, **options)
    with pytest.raises(ValueError, match="sweep: a learning rate of SGD must be positive"):
        sweeps.sweep(estimator, {"SGD": (optax.sgd, [-0.1])}, jnp.ones((1, 2)), key, steps=1, **options)
