"""The figures of deep hedging in the Heston model show what they are given."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import dmlmc
from dmlmc.experiments.couplings import DELAYED_ANTITHETIC
from dmlmc.experiments.plots import stochastic_volatility as draw


def test_variances_have_a_line_per_coupling_and_b_in_the_legend():
    loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=dmlmc.Rates(b=1.8, c=1.0, d=1.0))
    settings = {"max_level": 2, "steps": [1, 2, 4]}
    _, report = dmlmc.calibrate(loss, jnp.ones(2), jax.random.key(0), 2000, **settings)
    figure = draw.variances(
        {"here": {"plain": report, "antithetic": report}, "there": {"plain": report, "antithetic": report}}
    )
    labels = [[text.get_text() for text in axis.get_legend().get_texts()] for axis in figure.axes]
    assert labels == [[f"plain: b = {report.fitted.b}", f"antithetic: b = {report.fitted.b}"], labels[0]]
    assert figure.axes[0].get_title() == "here\nlevel 2: antithetic 1 times below plain"
    assert figure.axes[0].get_yscale() == "log"


def test_training_shows_every_method_at_its_rate():
    rows = [
        {"method": method, "learning_rate": rate, "seed": seed, "step": step, "work": 3 * step, "span": step,
         "loss": 1 / (1 + rate * step)}
        for method in ("MLMC", DELAYED_ANTITHETIC) for rate in (0.1, 0.2) for seed in (0, 1) for step in (0, 1, 2)
    ]  # fmt: skip
    one = {"mean": 1.0, "low": 1.0, "high": 1.0, "pairs": 2}
    span = {"MLMC": one, DELAYED_ANTITHETIC: {"mean": 3.0, "low": 2.0, "high": 4.0, "pairs": 2}}
    figure = draw.training(pd.DataFrame(rows), {"loss": 0.5, "span": span, "work": {"MLMC": one}})
    left, right = figure.axes
    assert left.get_title() == f"{DELAYED_ANTITHETIC}:\n3 times less span than plain MLMC"
    assert right.get_title() == "no method clearly needs less work\nthan plain MLMC"
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        "MLMC, rate 0.2 (at the edge)", f"{DELAYED_ANTITHETIC}, rate 0.2 (at the edge)", "the loss to reach",
    ]  # fmt: skip
    np.testing.assert_allclose(right.lines[0].get_xdata(), [3, 6])
    figure.canvas.draw()
    assert all(axis.get_legend().get_window_extent().y1 < axis.bbox.y0 for axis in figure.axes)  # not over data


def test_ratios_are_points_with_bars_and_a_method_without_one_is_left_out():
    one = {"mean": 2.0, "low": 1.5, "high": 3.0, "pairs": 4}
    found = {"span": {"MLMC": one, "naive": one, DELAYED_ANTITHETIC: one}, "work": {"MLMC": one, "naive": one}}
    figure = draw.cost_ratios(found)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["naive", DELAYED_ANTITHETIC]
    assert [len(axis.containers) for axis in figure.axes] == [2, 1]


def test_hedges_and_profits():
    s = np.linspace(0.8, 1.2, 5)
    rows = [
        pd.DataFrame({"t": 0.5, "s": s, "instrument": name, "source": source, "seed": 0, "holding": s})
        for name in ("stock", "variance swap") for source in ("exact", "learned")
    ]  # fmt: skip
    figure = draw.hedges(pd.concat(rows))
    assert [axis.get_title() for axis in figure.axes] == ["stock, t = 0.5", "variance swap, t = 0.5"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["learned, a line per seed", "exact"]
    results = {name: jax.random.normal(jax.random.key(place), (50,)) for place, name in enumerate("abcd")}
    assert figure.get_suptitle().endswith("holdings: stock 0, variance swap 0")
    figure = draw.profit_and_loss({"free": results, "costly": dict(list(results.items())[:2])}, 0.1)
    assert [len(axis.lines) for axis in figure.axes] == [4, 2]
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == f"a: deviation {np.std(results['a']):.3f}"
    least = min(results, key=lambda name: np.std(results[name]))
    assert figure.axes[0].get_title().split("\n")[1] == f"least deviation: {np.std(results[least]):.3f}, {least}"


def test_residual_risk_is_the_root_of_the_loss():
    steps = range(3)
    runs = {
        name: pd.DataFrame([{"step": step, "span": 2.0 * step, "loss": loss / (1 + step)} for step in steps])
        for name, loss in (("stock", 0.12), ("both", 0.03))
    }
    figure = draw.instruments(runs, {"stock": 0.1, "both": 0.0})
    assert (
        figure.axes[0].get_title()
        == "stock: residual risk 0.200 (exact 0.100)\nboth: residual risk 0.100 (exact 0.000)"
    )
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [0.06**0.5, 0.2])
