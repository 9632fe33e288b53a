import pandas as pd

from dmlmc.experiments.plots import deep_hedging


def test_hedge_ratios_shade_the_range_of_prices():
    curves = pd.DataFrame({"t": 0.5, "s": [1.0, 2.0], "source": "MLMC", "seed": 0, "ratio": [0.2, 0.4]})
    figure = deep_hedging.hedge_ratios(curves, pd.DataFrame({"t": [0.5], "low": [1.2], "high": [1.7]}))
    (axis,) = figure.axes
    assert axis.get_title() == "t = 0.5" and axis.patches[0].get_x() == 1.2 and axis.patches[0].get_width() == 0.5


def test_option_prices_show_every_seed_and_the_marks():
    prices = pd.DataFrame({"method": ["naive", "MLMC", "MLMC"], "price": [0.5, 0.6, 0.7]})
    figure = deep_hedging.option_prices(prices, {"fair": 0.1})
    (axis,) = figure.axes
    assert sum(len(dots.get_offsets()) for dots in axis.collections) == 3
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["fair"]
