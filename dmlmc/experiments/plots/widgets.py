"""Figures that follow sliders in a notebook, and are still pictures where there are none."""

import base64
import io
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return buffer.getvalue()


def picture_under_sliders(draw: Callable[..., Figure], sliders: dict[str, Any]) -> Any:
    """The picture that ``draw`` makes of the sliders' values, drawn again when one of them moves.

    Where widgets cannot live, as in an executed copy or on a web page, the same output shows as the picture alone. The
    picture is an image widget: output widgets, as of ``ipywidgets.interact``, can hang a headless run.
    """
    import ipywidgets  # of the dev extra: only a notebook can show it

    class Explorer(ipywidgets.VBox):
        def _repr_mimebundle_(self, **kwargs):
            still = {"text/plain": "picture under sliders", "image/png": base64.b64encode(image.value).decode()}
            return super()._repr_mimebundle_(**kwargs) | still

    image = ipywidgets.Image(format="png", layout={"max_width": "900px"})

    def redraw(_: Any = None) -> None:
        figure = draw(**{name: slider.value for name, slider in sliders.items()})
        image.value = png(figure)
        plt.close(figure)

    redraw()
    for slider in sliders.values():
        slider.observe(redraw, names="value")
    return Explorer([ipywidgets.HBox(list(sliders.values()), layout={"flex_flow": "row wrap"}), image])
