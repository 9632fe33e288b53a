"""Progress bars: a widget in a notebook, a line in a terminal."""

import os
from typing import Any


def progress_bar(*arguments: Any, shown: bool, **options: Any) -> Any:
    """A bar of tqdm with these arguments and options. If it is not shown, it can be used in the same way.

    If the environment has the variable TQDM_DISABLE, no bar is shown. (tqdm reads it, too, but not in a notebook.)

    >>> list(progress_bar([1, 2], shown=False))
    [1, 2]
    """
    from tqdm.auto import tqdm  # here, because in a notebook it imports ipywidgets

    return tqdm(*arguments, **options, disable=not shown or "TQDM_DISABLE" in os.environ)
