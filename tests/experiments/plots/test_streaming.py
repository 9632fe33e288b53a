import base64

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dmlmc.experiments import streaming, streaming_costs
from dmlmc.experiments.plots import streaming as draw
from dmlmc.experiments.plots import style, widgets
from tests.experiments.test_streaming import RECORD


def test_the_raster_has_every_way_of_every_cohort_and_the_spans():
    above, below = draw.raster(step=5, stride=1, max_level=2).axes
    where = streaming.whereabouts(2, 12)
    forward, back = (
        collection for collection in above.collections if collection.get_label().startswith(("forw", "back"))
    )
    assert [len(one.get_segments()) for one in (forward, back)] == [36, sum(where.way == "back")]
    first = back.get_segments()[-1]  # of level 2, at the last step: from the middle of cohort 1 to its start
    np.testing.assert_allclose(first, [(11, 2 + 0.84 * 0.25), (12, 2.0)])
    spans = {line.get_label(): line.get_ydata() for line in below.lines}
    assert list(spans) == ["MLMC, mean 4", "delayed MLMC, mean 2", "streaming MLMC, mean 1"]
    assert spans["delayed MLMC, mean 2"][:5].tolist() == [4, 1, 2, 1, 4]
    assert above.get_title(loc="left").startswith("Mean span of a step: MLMC 4, delayed MLMC 2, streaming MLMC 1.")
    assert plt.get_fignums() == []


def test_a_level_within_one_step_goes_forward_in_its_first_half():
    above, _ = draw.raster(stride=4, max_level=2).axes
    forward = next(collection for collection in above.collections if collection.get_label() == "forward")
    np.testing.assert_allclose(forward.get_segments()[0], [(0, 0), (0.5, 0.84)])
    with pytest.raises(ValueError, match="raster: max_level must be at least 1, got 0"):
        draw.raster(max_level=0)


def test_the_step_slider_redraws_the_raster_and_the_output_includes_a_still_image():
    box = draw.raster_explorer()
    controls, image = box.children
    by_name = {slider.description: slider for slider in controls.children}
    by_name["step"].value = 20
    assert image.value == widgets.png(draw.raster(step=20))
    by_name["stride"].value = 2
    assert image.value == widgets.png(draw.raster(step=20, stride=2))
    assert base64.b64decode(box._repr_mimebundle_()["image/png"]) == image.value


def test_distances_are_drawn_beside_their_error():
    table = pd.DataFrame({"periods": [1, 2], "streaming": [0.2, 0.1], "error": [0.2, 0.14], "level0": [0.3, 0.3]})
    figure = draw.frozen(table)
    (axis,) = figure.axes
    assert "after 2 periods: 0.1 for" in figure.get_suptitle() and "(0.71 standard" in figure.get_suptitle()
    lines = {line.get_label(): line for line in axis.lines}
    assert lines["mean of the pieces"].get_color() == style.COLOURS["streaming MLMC"]
    assert lines["its standard error"].get_ydata().tolist() == [0.2, 0.14]


def test_losses_are_medians_against_iterations_span_and_seconds():
    record = streaming.with_seconds(RECORD, {"naive": 1.0, "MLMC": 2.0, "streaming MLMC": 0.5})
    best = streaming.at_best_rates(record)
    axes = draw.losses({"SGD": best, "Adam": best}).axes
    assert len(axes) == 6
    for axis, per_step in zip(axes[:3], (1.0, 1.0, 0.5), strict=True):
        line = next(line for line in axis.lines if line.get_label() == "streaming MLMC")
        np.testing.assert_allclose(line.get_xdata(), per_step * np.arange(10, 61, 10))
        np.testing.assert_allclose(line.get_ydata(), np.exp(-0.2 * np.arange(10, 61, 10)))


def test_the_title_of_losses_compares_streaming_mlmc_with_mlmc_also_if_it_was_not_timed():
    best = streaming.at_best_rates(streaming.with_seconds(RECORD, {"MLMC": 2.0, "streaming MLMC": 0.5}))
    late = style.interval(*streaming.late_loss_ratio(best))
    ends = best[best.step == 60].groupby("method").span.first()
    span = style.short(ends["streaming MLMC"] / ends["MLMC"])
    assert draw.losses_found(best) == f"streaming MLMC / MLMC: late loss {late}, span {span}, seconds 0.25"
    assert draw.losses_found(best.assign(seconds=np.nan)).endswith("seconds unknown")


def test_the_title_of_seconds_has_the_first_and_the_last_plan_at_which_both_were_timed():
    rows = [
        (method, plan, plan * factor)
        for method, factor in {"MLMC": 9.0, "streaming MLMC": 3}.items()
        for plan in (2, 4, 6)
    ]
    table = pd.DataFrame([*rows, ("streaming MLMC", 8, 1.0)], columns=["method", "plan", "seconds"])
    only = table[table.method == "streaming MLMC"]
    assert draw.seconds_found(table, only).endswith(": 3 (l_max = 2), 3 (l_max = 6)")
    assert draw.seconds_found(only, table[table["plan"] == 4]).endswith(": 3 (4 paths)")
    assert draw.seconds_found(only, only).endswith(": not timed")


def test_seconds_are_drawn_only_where_they_were_measured():
    rows = [("MLMC", 2, 8.0), ("streaming MLMC", 2, 1.0), ("streaming MLMC", 4, 1.1), ("level 0", 2, 0.5)]
    table = pd.DataFrame(rows, columns=["method", "plan", "seconds"])
    table = table.assign(low=table.seconds / 2, high=table.seconds * 2)
    left, right = draw.seconds(table, table).axes
    drawn = {container.get_label(): container.lines[0].get_xdata().tolist() for container in left.containers}
    assert drawn == {"MLMC": [2], "streaming MLMC": [2, 4], "level 0": [2]}
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["2", "4"]


def test_curves_of_stationary_errors_end_where_a_method_is_unstable():
    limits = streaming_costs.limits_table(2, [0.5, 1.0])
    errors = {0.5: streaming_costs.stationary_table(2, 0.5, [0.1, 0.95])}
    left, right = draw.limits(limits, errors).axes
    lines = {line.get_label(): line.get_xdata().tolist() for line in right.lines}
    assert lines["MLMC"] == [0.1, 0.95] and lines["streaming MLMC"] == [0.1]
    assert [len(line.get_xdata()) for line in left.lines] == [2] * 5
    by_d = limits[limits.method == "streaming MLMC"].set_index("d").limit
    found = draw.limits_found(limits, errors | {1.0: streaming_costs.stationary_table(2, 1.0, [0.1])})
    assert f"{style.short(by_d[0.5])} (d = 0.5), {style.short(by_d[1.0])} (d = 1);" in found
    assert "(d = 0.5, until it is unstable)" in found and found.endswith("(d = 1)")
