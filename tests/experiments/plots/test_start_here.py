import base64

import matplotlib.pyplot as plt
import numpy as np
import pytest

import dmlmc
from dmlmc.experiments.plots import start_here, widgets

WIDGET = "application/vnd.jupyter.widget-view+json"


def texts(axis):
    return [text.get_text().strip() for text in axis.texts]


def test_the_picture_shows_the_papers_plan():
    raster, samples, work, span = start_here.plan_picture().axes
    plan = dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=1.0), max_level=6, samples=823, allocation="paper")
    (mesh,) = [one for one in raster.collections if one.get_array() is not None]
    shown = np.asarray(mesh.get_array()).reshape(7, start_here.STEPS)
    expected = [[level in plan.due_levels(step) for step in range(start_here.STEPS)] for level in range(7)]
    np.testing.assert_array_equal(shown, expected)
    assert [bar.get_height() for bar in samples.patches] == list(plan.samples)
    assert texts(span) == ["64", "64", "4, 16x less"]
    assert [bar.get_width() for bar in work.patches] == pytest.approx(
        [plan.naive_samples() * 64, plan.without_delay().mean_work(), plan.mean_work()]
    )


@pytest.mark.parametrize("arguments", [{"b": 0.5, "c": 2.0}, {"d": 0.0}, {"max_level": 0}, {"max_level": 10, "d": 1.9}])
def test_extreme_arguments_cause_no_warning_and_leave_no_open_figure(arguments):
    assert widgets.png(start_here.plan_picture(**arguments)).startswith(b"\x89PNG")
    assert plt.get_fignums() == []


def test_max_level_must_not_be_negative():
    with pytest.raises(ValueError, match="plan_picture: max_level must be at least 0, got -1"):
        start_here.plan_picture(max_level=-1)


def test_a_slider_redraws_the_picture_and_the_output_includes_a_still_image():
    box = start_here.plan_explorer(max_level=3)
    controls, image = box.children
    by_name = {slider.description: slider for slider in controls.children}
    assert list(by_name) == ["b", "c", "d", "l_max", "N"]
    assert image.value == widgets.png(start_here.plan_picture(max_level=3))
    by_name["d"].value = 0.0
    assert image.value == widgets.png(start_here.plan_picture(max_level=3, d=0.0))
    bundle = box._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == image.value and WIDGET in bundle


def test_only_coupled_paths_stay_close():
    figure = start_here.coupled_paths()
    apart = []
    for axis in figure.axes:
        fine, coarse = (line.get_ydata() for line in axis.lines)
        apart.append(np.max(np.abs(fine[::2] - coarse)))
    assert apart[0] < 0.1 < 10 * apart[0] < apart[1]
    plt.close(figure)
