"""The computed parts of the README: ``python -m dmlmc.reproduce.readme`` fills them in, and so does ``make reproduce``.

The headline and the table of claims come from ``figures/data/summary.json``, which ``make reproduce`` writes. The
bytes of a step, and what settings of the environment gain, come from ``figures/data/benchmarks.json``, which ``make
bench`` writes.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmlmc._internal.files import write
from dmlmc.experiments.wall_clock import COMPILATION, LESS_OPTIMISED, STEP_OF_NEURAL_SDE, gains
from dmlmc.reproduce.claims import CLAIMS
from dmlmc.reproduce.summary import DATA, as_rows

TUNED, PUBLISHED = ("SGD", "Adam"), "paper's"
README = Path(__file__).parents[2] / "README.md"


def filled(text: str, records: Sequence[dict[str, Any]], bench: dict[str, Any]) -> str:
    """The text of a README with its computed parts replaced.

    ``records`` are those of ``summary.json``, ``bench`` is the contents of ``benchmarks.json``.
    """
    text = fill_between(text, markers("headline"), headline(records))
    table = markdown_table(claim_rows(records))
    text = fill_between(text, markers("summary"), f"{table}{short_of_margins(records)}")
    text = fill_between(text, markers("memory"), bytes_of_a_step(bench["memory"]))
    return fill_between(text, markers("environment"), environment(bench))


def markers(part: str) -> tuple[str, str]:
    """The lines before and after a computed part.

    >>> markers("memory")[1]
    '<!-- memory: end -->'
    """
    return f"<!-- {part}: begin -->", f"<!-- {part}: end -->"


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
        f"To reach the same loss at that rate, delayed MLMC needs {span} times less span and {work} times less work",
        f"than MLMC. With small batches and every method at its own best rate ({' and '.join(TUNED)}), it needs",
        f"{at_tuned_rates(PUBLISHED)} times less span with the paper's sample counts,",
        f"{at_tuned_rates('held')} times less with *held* ones, the default here.",
    )
    return "\n".join(sentences)


def bytes_of_a_step(memory: dict[str, Any]) -> str:
    """What a step of each method needs, at the largest l_max that was measured: one sentence."""
    finest = max(row["max_level"] for row in memory["rows"])
    rows = {row["method"]: row for row in memory["rows"] if row["max_level"] == finest}
    peaks = ", ".join(f"{method} {row['peak'] / 2**10:.0f}" for method, row in rows.items())
    paths = next(iter(rows.values()))["level0_samples"]
    setting = f"any SDE, l_max = {finest}, {paths} paths at level 0"
    return f"KiB of a step, counted by XLA on {memory['machine']['device']} ({setting}):\n{peaks}."


def environment(bench: dict[str, Any]) -> str:
    """What a user of a CPU gains with a lower level of XLA's optimisation."""
    found = gains(bench, LESS_OPTIMISED)
    if not found:  # a GPU
        return ""
    steps = [one.estimate for name, one in found.items() if name.startswith(STEP_OF_NEURAL_SDE)]
    compilation = found[COMPILATION].estimate
    return (
        f"On a CPU, try `{LESS_OPTIMISED}`. Without it, steps of a neural SDE take\n"
        f"{min(steps):.2g} to {max(steps):.2g} times as long, compilation {compilation:.2g} times (`make bench`)."
    )


def claim_rows(records: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The cells of the table of claims, header first: those with a headline, and one row per headline."""
    headlines = {claim.claim: claim.headline for claim in CLAIMS if claim.headline is not None}
    rows: dict[str, list[tuple[str, str]]] = {}
    for claim, _, found, interval, _ in as_rows(records)[1:]:
        if claim in headlines:
            rows.setdefault(headlines[claim], []).append((found, interval))
    joined = ((headline, *("; ".join(cells) for cells in zip(*found, strict=True))) for headline, found in rows.items())
    return [("claim", "found", "interval"), *joined]


def short_of_margins(records: Sequence[dict[str, Any]]) -> str:
    """A paragraph below the table for each claim that was not confirmed, whether the table has it or not."""
    short = {record["claim"] for record in records if record["reproduced"] is False}
    names = dict.fromkeys(claim.headline or claim.claim for claim in CLAIMS if claim.claim in short)
    return "".join(f"\n\nShort of our margin: {name}." for name in names)


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


def fill(readme: Path, data: Path) -> None:
    """Fill a README from the data of ``make reproduce`` and ``make bench``."""
    records = json.loads((data / "summary.json").read_text(encoding="utf-8"))
    bench = json.loads((data / "benchmarks.json").read_text(encoding="utf-8"))
    write(readme, filled(readme.read_text(encoding="utf-8"), records, bench))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: fill the README of this checkout."""
    argparse.ArgumentParser("python -m dmlmc.reproduce.readme", description=__doc__).parse_args(arguments)
    fill(README, DATA)
    return 0


if __name__ == "__main__":
    sys.exit(main())
