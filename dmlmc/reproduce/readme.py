"""The computed parts of the README: ``python -m dmlmc.reproduce.readme`` fills them in.

The headline and the table of claims come from ``figures/data/summary.json``, which ``make reproduce`` writes. The
bytes of a step come from ``figures/data/benchmarks.json``, which ``make bench`` writes. The table of seconds on many
devices comes from the model of ``dmlmc.theory.scaling``.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmlmc._internal.files import write
from dmlmc.reproduce.claims import CLAIMS
from dmlmc.reproduce.summary import DATA, as_rows
from dmlmc.schedule import DELAYED, STREAMING
from dmlmc.theory.scaling import scaling_rows

TUNED, PUBLISHED = ("SGD", "Adam"), "paper's"
README = Path(__file__).parents[2] / "README.md"


def filled(text: str, records: Sequence[dict[str, Any]], memory: dict[str, Any]) -> str:
    """The text of a README with headline and tables replaced.

    ``records`` are those of ``summary.json``, ``memory`` is that of ``benchmarks.json``.
    """
    text = fill_between(text, markers("headline"), headline(records))
    text = fill_between(text, markers("summary"), markdown_table(claim_rows(records)))
    text = fill_between(text, markers("memory"), bytes_of_a_step(memory))
    return fill_between(text, markers("scaling"), markdown_table(scaling_rows()))


def markers(table: str) -> tuple[str, str]:
    """The lines before and after a table.

    >>> markers("scaling")[1]
    '<!-- scaling: end -->'
    """
    return f"<!-- {table}: begin, filled by python -m dmlmc.reproduce.readme -->", f"<!-- {table}: end -->"


def headline(records: Sequence[dict[str, Any]]) -> str:
    """What was found of the gain in span, at the published learning rate and at tuned ones."""
    found = {record["claim"]: record["found"] for record in records}

    def times(claim: str) -> str:
        return "not known how many" if found.get(claim) is None else f"{found[claim]:.2g}"

    def at_tuned_rates(counts: str) -> str:
        names = (f"span to equal loss at tuned rates, {optimiser}, {counts} counts" for optimiser in TUNED)
        return " and ".join(times(name) for name in names)

    span, work = (times(f"{cost} to equal loss, MLMC over delayed MLMC") for cost in ("span", "work"))
    sentences = (
        f"To reach the same loss, delayed MLMC needs {span} times less span and {work} times less work than MLMC at",
        "the published learning rate, where neither noise nor staleness matters yet. With small batches and every",
        f"method at its own best rate ({' and '.join(TUNED)}), it needs {at_tuned_rates(PUBLISHED)} times less span",
        f"with the paper's sample counts, and {at_tuned_rates('held')} times less with *held* ones, the default here.",
    )
    return "\n".join(sentences)


def bytes_of_a_step(memory: dict[str, Any]) -> str:
    """What a step of each method needs and keeps, at the largest l_max that was measured."""
    finest = max(row["max_level"] for row in memory["rows"])
    rows = {row["method"]: row for row in memory["rows"] if row["max_level"] == finest}
    first = next(iter(rows.values()))
    peaks = ", ".join(f"{method} {_kibibytes(row['peak'])}" for method, row in rows.items())
    kept = {method: _kibibytes(rows[method]["state"]) for method in (DELAYED, STREAMING)}
    ratios = [row["temporaries"] / row["predicted_temporaries"] for row in memory["rows"]]
    sentences = (
        f"Memory of one step in KiB, as XLA counts it, device {memory['machine']['device']} (deep hedging as any SDE, "
        f"l_max = {finest},",
        f"{first['level0_samples']} paths at level 0, {_kibibytes(first['parameters'])} KiB of parameters): {peaks}.",
        f"From step to step delayed MLMC keeps {kept[DELAYED]} of them, one gradient per stale level, streaming MLMC",
        f"{kept[STREAMING]}, the states of its paths in flight, naive and MLMC nothing. The rest holds the paths of",
        "one level, states and noise at every time step, and the derivative of one time step. Temporaries measured for",
        f"several sizes are {min(ratios):.1f} to {max(ratios):.1f} times what this count gives.",
    )
    return "\n".join(sentences)


def _kibibytes(count: int) -> str:
    return f"{count / 2**10:.0f}"


def claim_rows(records: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The cells of the table of claims, header first, each claim with its rule."""
    rules = {claim.claim: claim.rule for claim in CLAIMS}
    head, *rows = as_rows(records)
    return [(*head, "rule"), *((*row, rules[row[0]]) for row in rows)]


def fill_between(text: str, markers: tuple[str, str], body: str) -> str:
    """The text with ``body`` between two marker lines.

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
    """A Markdown table of rows of cells, header first.

    >>> print(markdown_table([("level", "cost"), ("6", "64")]))
    | level | cost |
    | --- | --- |
    | 6 | 64 |
    """
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *body))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: fill headline and tables."""
    argparse.ArgumentParser("python -m dmlmc.reproduce.readme", description=__doc__).parse_args(arguments)
    records = json.loads((DATA / "summary.json").read_text())
    memory = json.loads((DATA / "benchmarks.json").read_text(encoding="utf-8"))["memory"]
    write(README, filled(README.read_text(encoding="utf-8"), records, memory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
