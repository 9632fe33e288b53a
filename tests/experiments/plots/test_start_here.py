import base64

import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import dmlmc
from dmlmc.calibration.interval import Interval
from dmlmc.experiments.plots import start_here, style, widgets

WIDGET = "application/vnd.jupyter.widget-view+json"


def texts(axis):
    return [text.get_text().strip() for text in axis.texts]


def drawn_ages(raster, levels):
    """The ages that the colours of the raster stand for: 0 where a level is refreshed, NaN after the step."""
    (mesh,) = [one for one in raster.collections if one.get_array() is not None]
    shown = np.ma.filled(np.ma.asarray(mesh.get_array(), float), np.nan).reshape(levels, start_here.STEPS)
    return np.where(shown < 0, 0, 2.0**shown)


@pytest.mark.parametrize("step", [0, 5, 37, 64, start_here.STEPS - 1])
def test_the_raster_shows_how_old_every_gradient_is_up_to_a_step(step):
    raster = start_here.plan_picture(step=step).axes[0]
    plan = dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=1.0), max_level=6, samples=823, allocation="paper")
    expected = [[then - plan.last_refresh(level, then) for then in range(step + 1)] for level in range(7)]
    ages = drawn_ages(raster, levels=7)
    np.testing.assert_allclose(ages[:, : step + 1], expected, rtol=1e-12)
    assert np.isnan(ages[:, step + 1 :]).all()
    written = ["refreshed" if row[-1] == 0 else f"{row[-1]} step{'s' * (row[-1] > 1)} old" for row in expected]
    assert texts(raster) == written


def test_the_picture_shows_the_papers_plan():
    raster, samples, work, span = start_here.plan_picture().axes
    plan = dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=1.0), max_level=6, samples=823, allocation="paper")
    due = [[level in plan.due_levels(step) for step in range(start_here.STEPS - 1)] for level in range(7)]
    np.testing.assert_array_equal(drawn_ages(raster, levels=7)[:, :-1] == 0, due)
    assert [bar.get_height() for bar in samples.patches] == list(plan.samples)
    assert texts(span) == ["64", "64", "4, 16x less"]
    assert span.figure.get_suptitle() == "Mean of a step, MLMC / delayed MLMC: work 2.6, span 16"
    assert [bar.get_width() for bar in work.patches] == pytest.approx(
        [plan.naive_samples() * 64, plan.without_delay().mean_work(), plan.mean_work()]
    )


@pytest.mark.parametrize(
    "arguments", [{"b": 0.5, "c": 2.0}, {"d": 0.0}, {"max_level": 0, "step": 0}, {"max_level": 10, "d": 1.9}]
)
def test_extreme_arguments_cause_no_warning_and_leave_no_open_figure(arguments):
    assert widgets.png(start_here.plan_picture(**arguments)).startswith(b"\x89PNG")
    assert plt.get_fignums() == []


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="plan_picture: max_level must be at least 0, got -1"):
        start_here.plan_picture(max_level=-1)
    with pytest.raises(ValueError, match="plan_picture: step must be"):
        start_here.plan_picture(step=start_here.STEPS)


def test_a_slider_redraws_the_picture_and_the_output_includes_a_still_image():
    box = start_here.plan_explorer(max_level=3)
    controls, image = box.children
    by_name = {slider.description: slider for slider in controls.children}
    assert list(by_name) == ["b", "c", "d", "l_max", "N", "step"]
    assert image.value == widgets.png(start_here.plan_picture(max_level=3))
    by_name["d"].value = 0.0
    assert image.value == widgets.png(start_here.plan_picture(max_level=3, d=0.0))
    by_name["step"].value = 3
    assert image.value == widgets.png(start_here.plan_picture(max_level=3, d=0.0, step=3))
    bundle = box._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == image.value and WIDGET in bundle


def geometric_brownian_motion():
    return dmlmc.SDELoss(
        drift=lambda t, y, params: params * y,
        diffusion=lambda t, y, params: 0.5 * y[:, None],
        terminal=lambda y, params: y[0],
        y0=jnp.ones(1),
        noise_dim=1,
        t1=2.0,
        coarsest_steps=4,
    )


def test_a_drawn_path_is_one_of_the_loss():
    loss, params = geometric_brownian_motion(), jnp.array(0.3)
    noise = loss.sample(jr.key(0), 2)
    path = start_here.path_of(loss, params, noise)
    step, dw = 2 / len(noise), np.asarray(noise)[:, 0]
    factors = 1 + 0.3 * step + 0.5 * dw + 0.125 * (dw**2 - step)  # Milstein
    np.testing.assert_allclose(path[:, 0], np.cumprod([1.0, *factors]), rtol=1e-5)
    np.testing.assert_allclose(path[-1], loss.states(params, noise), rtol=1e-6)


def test_only_coupled_paths_stay_close():
    figure = start_here.coupled_paths(geometric_brownian_motion(), jnp.array(0.3), level=5)
    apart = []
    for axis in figure.axes:
        fine, coarse = (line.get_ydata() for line in axis.lines)
        apart.append(np.max(np.abs(fine[::2] - coarse)))
    assert 0 < 10 * apart[0] < apart[1]
    gaps = [np.mean(np.abs(axis.lines[0].get_ydata()[::2] - axis.lines[1].get_ydata())) for axis in figure.axes]
    assert f": {style.short(gaps[0])} coupled, {style.short(gaps[1])} not coupled" in figure.get_suptitle()
    assert figure.axes[0].lines[0].get_xdata()[-1] == 2.0
    plt.close(figure)


def test_losses_fall_against_span_and_the_arrow_joins_mlmc_and_delayed_mlmc_at_the_target():
    spans = {"MLMC": 16.0, "delayed MLMC": 4.0}
    runs = pd.DataFrame(
        [
            {"method": method, "seed": seed, "step": step, "span": step * span, "loss": factor * 10.0**-step}
            for method, span in spans.items()
            for seed, factor in enumerate((0.5, 2.0))
            for step in range(5)
        ]
    )
    figure = start_here.methods(runs, 0.01, Interval(4.0, 3.9, 4.1))
    (axis,) = figure.axes
    for line, span in zip(axis.lines, spans.values(), strict=True):
        np.testing.assert_allclose(line.get_xdata(), span * np.arange(1, 5))
        np.testing.assert_allclose(line.get_ydata(), 10.0 ** -np.arange(1, 5))
    (arrow,) = axis.texts
    np.testing.assert_allclose([arrow.xy, arrow.xyann], [(8.0, 0.01), (32.0, 0.01)])
    assert "4.0 [3.9, 4.1] times" in axis.get_title(loc="left") and len(axis.collections) == 2
    plt.close(figure)
