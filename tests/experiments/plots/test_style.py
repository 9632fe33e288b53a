import matplotlib.pyplot as plt
import numpy as np
import pytest

from dmlmc.experiments.plots import style


def test_figures_are_saved_as_pdf_and_png(tmp_path):
    style.save_figure(plt.figure(), tmp_path / "new", "name")
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"name.pdf", "name.png"}


def test_a_title_is_above_the_figure_in_lines_that_fit_and_does_not_change_the_panels():
    figure, (axis,) = style.panels(1, (5.0, 3.0))
    before = style.finished(figure).axes[0].get_position().bounds
    style.finished(figure, "a long title of many words " * 5 + "\nbars: 95%")
    assert axis.get_position().bounds == pytest.approx(before)
    lines = figure.get_suptitle().split("\n")
    assert lines[-1] == "bars: 95%" and max(map(len, lines)) <= 60 and len(lines) == 4
    assert " ".join(lines[:-1]) == ("a long title of many words " * 5).strip()
    figure.canvas.draw()
    title = next(text for text in figure.texts if text.get_text() == figure.get_suptitle())
    assert title.get_window_extent().y0 >= figure.bbox.y1 - 1 and title.get_window_extent().width < figure.bbox.width


def test_a_legend_below_lists_what_is_on_any_panel_once():
    figure, (left, right) = style.panels(2, (6.0, 3.0))
    for axis, labels in ((left, "ab"), (right, "bc")):
        for label in labels:
            axis.plot([0], [0], label=label)
    style.legend_below(figure, left, right)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    style.finished(figure).canvas.draw()
    assert not any(legend.get_window_extent().overlaps(axis.get_window_extent()) for axis in (left, right))


def test_a_number_that_is_not_known_is_said_to_be_so():
    assert style.interval(np.nan, 1.0, 2.0) == style.short(np.inf) == "unknown"
    assert style.interval(2.0, 1.0, np.inf) == "2"  # the interval is not known


def test_the_log_axis_holds_every_value_and_every_positive_end_within_a_decade():
    assert style.log_bottom([12.0, 6.0], [3.0, 1.2]) == pytest.approx(1.0)
    assert style.log_bottom([12.0, 6.0], [-3.0, np.nan]) == pytest.approx(5.0)
    assert style.log_bottom([12.0, np.inf, np.nan, -1.0], [0.0, 0.0, 0.0, 0.0]) == pytest.approx(10.0)
    assert style.log_bottom([6.0], [0.61]) < 0.61 and style.log_bottom([6.0], [0.59]) == pytest.approx(5.0)
    assert style.log_bottom([np.inf, np.nan], [1.0, 1.0]) is None


@pytest.mark.parametrize(("low", "said"), [([1.0, 0.1], False), ([1.0, 0.0], True), ([1.0, -2.0, np.nan], True)])
def test_a_note_says_that_bars_end_at_the_axis_if_one_reaches_zero(low, said):
    figure = plt.figure()
    style.note_below_zero(figure, low, drawn="bands", height=-0.2)
    assert [text.get_text() for text in figure.texts] == ["bands that reach below zero end at the axis"] * said
    assert all(text.get_position() == (0.5, -0.2) for text in figure.texts)
