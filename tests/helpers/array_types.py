"""Check the array types of jaxtyping with beartype in every test. tests/conftest.py installs this.

Other types are not checked: dmlmc checks those arguments itself, with errors that say what would work.
"""

import contextlib
import typing

import beartype
import jaxtyping


def has_array_type(annotation) -> bool:
    """Whether an annotation contains an array type of jaxtyping, also inside a union or a tuple."""
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(has_array_type(part) for part in typing.get_args(annotation))


def checked(function):
    """The function with beartype's checks for the annotations that contain array types."""
    function.__annotations__ = {
        name: annotation for name, annotation in function.__annotations__.items() if has_array_type(annotation)
    }
    return beartype.beartype(function)


@contextlib.contextmanager
def unchecked():
    """Switch the checks off, so that dmlmc's own errors are raised."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
