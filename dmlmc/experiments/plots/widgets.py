"""Figures that sliders redraw in a notebook, with a still image where widgets do not work."""

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
    """The figure that ``draw`` returns for the sliders' values, redrawn when one of them moves.

    Where widgets do not work, as in an executed copy or on a web page, the output is a still image. The figure is an
    image widget, because the output widgets of ``ipywidgets.interact`` can hang a headless run.
    """
    import ipywidgets  # in the extra "paper"; only notebooks need it

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
