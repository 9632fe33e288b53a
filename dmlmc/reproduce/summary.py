"""The paper's claims and the results of the last run: ``python -m dmlmc.reproduce.summary`` prints them.

Each claim has its own rule for "reproduced". The numbers of a quick run are shown but not judged, because the paper's
values hold at the paper's sizes. A claim without data is "not run".
"""

import argparse
import json
import math
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from dmlmc.calibration.interval import Interval, Range
from dmlmc.reproduce.claims import CLAIMS

DATA = Path(__file__).parents[2] / "figures" / "data"


def judge(directory: Path, failed: Collection[str] = ()) -> list[dict[str, Any]]:
    """One record per claim from a data directory: claim, paper, found, low, high, reproduced.

    Numbers that were not measured are None. ``reproduced`` is also None for a quick run. Data of the notebooks in
    ``failed`` is ignored, because it is from an older run.
    """
    records = []
    for claim in CLAIMS:
        found: Interval | Range = Interval(math.nan, math.nan, math.nan)
        verdict = None
        profile = None if claim.notebook in failed else claim.profile(directory)
        if profile is not None:
            found = claim.measure(directory)
            verdict = bool(claim.holds(found)) if profile == "paper" else None
        known = (value if math.isfinite(value) else None for value in found)
        numbers = dict(zip(("found", "low", "high"), known, strict=True))
        records.append({"claim": claim.claim, "paper": claim.paper, **numbers, "reproduced": verdict})
    return records


def to_json(records: Sequence[dict[str, Any]]) -> str:
    """The records as the text of ``summary.json``."""
    return json.dumps(list(records), indent=1) + "\n"


def as_rows(records: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The cells of the table, header first.

    >>> row = {"claim": "span", "paper": "16", "found": 15.91, "low": None, "high": None, "reproduced": True}
    >>> as_rows([row])[1]
    ('span', '16', '15.9', 'unknown', 'yes')
    """
    rows: list[tuple[str, ...]] = [("claim", "paper", "found", "interval", "reproduced")]
    for record in records:
        if record["found"] is None:
            rows.append((record["claim"], record["paper"], "not run", "", ""))
            continue
        known = record["low"] is not None and record["high"] is not None
        interval = f"{record['low']:.3g} to {record['high']:.3g}" if known else "unknown"
        verdict = {True: "yes", False: "no", None: "too small to say"}[record["reproduced"]]
        rows.append((record["claim"], record["paper"], f"{record['found']:.3g}", interval, verdict))
    return rows


def as_text(records: Sequence[dict[str, Any]]) -> str:
    """The table for a terminal."""
    rows = as_rows(records)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: print the table and the rules."""
    parser = argparse.ArgumentParser("python -m dmlmc.reproduce.summary", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="directory with the data of the notebooks")
    options = parser.parse_args(arguments)
    print(as_text(judge(options.data)), "\nA claim counts as reproduced when", sep="\n")
    for claim in CLAIMS:
        print(f"- {claim.claim}: {claim.rule}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
