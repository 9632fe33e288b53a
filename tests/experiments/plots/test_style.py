import matplotlib.pyplot as plt
import numpy as np
import pytest

from dmlmc.experiments.plots import style


def test_figures_are_saved_as_pdf_and_png(tmp_path):
    style.save_figure(plt.figure(), tmp_path / "new", "name")
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"name.pdf", "name.png"}


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
