import numpy as np
import pandas as pd

from dmlmc.calibration.interval import Interval
from dmlmc.experiments.plots import wall_clock
from dmlmc.experiments.plots.style import COLOURS
from dmlmc.theory.scaling import scaling_table

METHODS = ["naive", "MLMC", "delayed MLMC"]


def legend(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def dots_of(container):
    return container.lines[0].get_ydata().astype(float)


def bars_of(container):
    """The lower and upper ends of error bars."""
    (lines,) = container.lines[2]
    return [(float(low[1]), float(high[1])) for low, high in lines.get_segments()]


def test_measured_seconds_are_dots_with_bars_and_predicted_ones_lines_in_milliseconds():
    rows = [
        {"max_level": level, "method": method, "seconds": 2.0**level, "low": 2.0**level - 1, "high": 2.0**level + 2}
        | {"predicted": 3.0**level}
        for level in (2, 4)
        for method in METHODS
    ]
    figure = wall_clock.step_times({"few paths": (pd.DataFrame(rows), Interval(1.5, 1.0, 2.0))}, "a finding")
    (axis,) = figure.axes
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [9e3, 81e3])
    np.testing.assert_allclose(dots_of(axis.containers[0]), [4e3, 16e3])
    np.testing.assert_allclose(bars_of(axis.containers[0]), [(3e3, 6e3), (15e3, 18e3)])
    assert set(axis.lines[-1].get_ydata()) == {1.5e3}
    assert sorted(legend(axis)) == sorted([*METHODS, "a step at level 0"])
    assert axis.get_ylabel() == "milliseconds per SGD step"
    assert figure.get_suptitle() == "a finding (bars: 95% bootstrap intervals of the median)"


def test_the_bars_are_the_ratios_with_their_intervals():
    ratios = pd.DataFrame({"gradient": ["naive", "level 0"] * 2, "way": ["a", "a", "b", "b"], "ratio": [4.0, 3, 2, 1]})
    (axis,) = wall_clock.gradient_ratios(ratios.assign(low=ratios.ratio - 0.5, high=ratios.ratio + 1)).axes
    bars = [group for group in axis.containers if hasattr(group, "patches")]
    np.testing.assert_allclose([bar.get_height() for group in bars for bar in group], [4, 3, 2, 1])
    assert bars_of(bars[0].errorbar) == [(3.5, 5.0), (2.5, 4.0)]
    assert sorted(legend(axis)) == ["a", "b", "dmlmc"] and "take 1 to 4 times as long" in axis.get_title()


def test_the_reference_lines_pass_through_the_first_and_the_last_point():
    chain = pd.DataFrame({"paths": [1, 4, 16], "seconds": [3.0, 4.0, 8.0], "low": 1.0, "high": 9.0})
    (axis,) = wall_clock.path_times(chain, 3).axes
    lines = {line.get_label(): line for line in axis.lines}
    np.testing.assert_allclose(dots_of(axis.containers[0]), 1e3 * chain.seconds)
    np.testing.assert_allclose(lines["in proportion to the paths"].get_ydata(), [0.5e3, 2e3, 8e3])
    np.testing.assert_allclose(lines["as long as one path"].get_ydata(), 3e3)
    assert axis.get_title().startswith("Level 3: 16 paths take 2.7 times as long as one")


def test_the_model_has_a_line_per_method_and_a_panel_per_finest_level():
    table = scaling_table()
    figure = wall_clock.scaling(table)
    for axis, level in zip(figure.axes, (6, 12), strict=True):
        lines = {line.get_label(): line for line in axis.lines}
        assert list(lines) == [*METHODS, "streaming MLMC"]
        for method, line in lines.items():
            here = table[(table.max_level == level) & (table.method == method)]
            np.testing.assert_array_equal(line.get_ydata(), here.seconds)
            assert line.get_color() == COLOURS[method]
    assert "not a measurement" in figure.get_suptitle()
