import numpy as np
import pandas as pd

from dmlmc.experiments.plots import wall_clock


def test_measured_seconds_are_dots_and_predicted_ones_lines():
    methods = ["naive", "MLMC", "delayed MLMC", "level 0"]
    rows = [
        {"max_level": level, "method": method, "seconds": 2.0**level, "predicted": 3.0**level}
        for level in (2, 4)
        for method in methods
    ]
    (axis,) = wall_clock.step_times({"few paths": pd.DataFrame(rows)}).axes
    line, dots = axis.lines[:2]
    np.testing.assert_allclose(line.get_ydata(), [9.0, 81.0])
    np.testing.assert_allclose(dots.get_ydata(), [4.0, 16.0])
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [*methods[:3], "a level-0 step"]


def test_the_bars_are_the_ratios():
    ratios = pd.DataFrame({"gradient": ["naive", "level 0"] * 2, "way": ["a", "a", "b", "b"], "ratio": [4.0, 3, 2, 1]})
    one, two = wall_clock.gradient_ratios({"ours": ratios, "ours, too": ratios.assign(ratio=ratios.ratio + 1)}).axes
    np.testing.assert_allclose([bar.get_height() for group in one.containers for bar in group], [4, 3, 2, 1])
    np.testing.assert_allclose([bar.get_height() for group in two.containers for bar in group], [5, 4, 3, 2])
    assert [text.get_text() for text in one.get_legend().get_texts()] == ["a", "b"] and two.get_legend() is None


def test_the_reference_lines_pass_through_the_first_and_the_last_point():
    chain = pd.DataFrame({"paths": [1, 4, 16], "seconds": [3.0, 4.0, 8.0], "low": 1.0, "high": 9.0})
    (axis,) = wall_clock.path_times(chain).axes
    measured, per_path, flat = axis.lines
    np.testing.assert_allclose(measured.get_ydata(), chain.seconds)
    np.testing.assert_allclose(per_path.get_ydata(), [0.5, 2.0, 8.0])
    np.testing.assert_allclose(flat.get_ydata(), 3.0)
