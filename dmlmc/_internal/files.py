"""Files that are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``. It replaces ``path`` at the end, and is deleted if anything fails before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
