"""Files that are written whole or not at all, and the tables between markers in one of them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place at the end, and is gone if anything fails before."""
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
        temporary.write_text(text)


def fill_between(text: str, markers: tuple[str, str], body: str) -> str:
    """A text with what is between two marker lines replaced.

    >>> fill_between("a <1> old <2> z", ("<1>", "<2>"), "new")
    'a <1>\\nnew\\n<2> z'
    """
    before, begin, rest = text.partition(markers[0])
    _, end, after = rest.partition(markers[1])
    if not (begin and end):
        raise ValueError(
            f"fill_between: text must hold the lines {markers[0]!r} and {markers[1]!r}, got neither or one."
        )
    return f"{before}{begin}\n{body}\n{end}{after}"


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the head first, as a table in Markdown."""
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *body))
