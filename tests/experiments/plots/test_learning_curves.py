import numpy as np
import pandas as pd

from dmlmc.experiments.plots import style
from dmlmc.experiments.plots.deep_hedging import figure_2
from dmlmc.experiments.plots.learning_curves import learning_curves


def record():
    steps = np.arange(0, 50, 10)
    rows = [
        pd.DataFrame(
            {"method": method, "seed": seed, "step": steps, "work": steps, "span": 2 * steps}
            | {"loss": (seed + 1) / (1 + steps)}
        )
        for method in style.COLOURS
        for seed in (0, 1)
    ]
    return pd.concat(rows)


def test_learning_curves_show_the_mean_of_each_method_in_its_colour():
    figure = learning_curves(record(), ["work", "span"], floor=1e-3)
    assert [axis.get_xlabel() for axis in figure.axes] == [style.AXES["work"], style.AXES["span"]]
    lines = {line.get_label(): line for line in figure.axes[1].lines}
    assert list(lines) == list(style.COLOURS)
    for method, line in lines.items():
        assert line.get_color() == style.COLOURS[method]
        np.testing.assert_allclose(line.get_xdata(), [20, 40, 60, 80])
        np.testing.assert_allclose(line.get_ydata(), 1.5 / (1 + np.arange(10, 50, 10)))
    assert figure.axes[0].get_legend().get_title().get_text() == "floor: 1e-03"


def test_figure_2_has_panels_for_work_span_and_iterations():
    axes = figure_2(record()).axes
    assert [axis.get_xlabel() for axis in axes] == [style.AXES[cost] for cost in ("work", "span", "step")]
