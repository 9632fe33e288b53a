import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dmlmc import plots


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def record():
    steps = np.arange(0, 50, 10)
    rows = [
        pd.DataFrame(
            {"method": m, "seed": s, "step": steps, "work": steps, "span": 2 * steps, "loss": (s + 1) / (1 + steps)}
        )
        for m in plots.COLOURS
        for s in (0, 1)
    ]
    return pd.concat(rows)


def test_learning_curves_draw_the_mean_of_each_method_in_its_colour():
    figure = plots.learning_curves(record(), ["work", "span"], floor=1e-3)
    assert [axis.get_xlabel() for axis in figure.axes] == [plots.AXES["work"], plots.AXES["span"]]
    lines = {line.get_label(): line for line in figure.axes[1].lines}
    assert list(lines) == list(plots.COLOURS)
    for method, line in lines.items():
        assert line.get_color() == plots.COLOURS[method]
        np.testing.assert_allclose(line.get_xdata(), [20, 40, 60, 80])
        np.testing.assert_allclose(line.get_ydata(), 1.5 / (1 + np.arange(10, 50, 10)))
    assert figure.axes[0].get_legend().get_title().get_text() == "floor: 1.0e-03"


def test_hedge_ratios_shade_where_paths_live():
    curves = pd.DataFrame({"t": 0.5, "s": [1.0, 2.0], "source": "MLMC", "seed": 0, "ratio": [0.2, 0.4]})
    figure = plots.hedge_ratios(curves, pd.DataFrame({"t": [0.5], "low": [1.2], "high": [1.7]}))
    (axis,) = figure.axes
    assert axis.get_title() == "t = 0.5" and axis.patches[0].get_x() == 1.2 and axis.patches[0].get_width() == 0.5


def test_option_prices_show_every_seed_and_the_marks():
    prices = pd.DataFrame({"method": ["naive", "MLMC", "MLMC"], "price": [0.5, 0.6, 0.7]})
    figure = plots.option_prices(prices, {"fair": 0.1})
    (axis,) = figure.axes
    assert sum(len(dots.get_offsets()) for dots in axis.collections) == 3
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["fair"]


def test_figures_are_saved_as_pdf_and_png(tmp_path):
    plots.save_figure(plt.figure(), tmp_path / "new", "name")
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"name.pdf", "name.png"}
