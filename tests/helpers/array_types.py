"""beartype for the array types of jaxtyping, installed by tests/conftest.py.

Numbers, text and classes of our own are left out: dmlmc checks those itself, with errors that say what would work.
"""

import contextlib
import typing

import beartype
import jaxtyping


def speaks_of_arrays(annotation) -> bool:
    """Whether a type of jaxtyping with a shape stands in an annotation, perhaps in a union or a tuple."""
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(speaks_of_arrays(part) for part in typing.get_args(annotation))


def checked(function):
    function.__annotations__ = {
        name: annotation for name, annotation in function.__annotations__.items() if speaks_of_arrays(annotation)
    }
    return beartype.beartype(function)


@contextlib.contextmanager
def unchecked():
    """Switch the checks off, where dmlmc's own errors are to answer."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
