"""The paper's claims and the results of the last run: ``python -m dmlmc.reproduce.summary`` prints them.

Each claim has its own rule, in ``dmlmc.reproduce.claims``, and a verdict in words:

- "yes" and "no";
- "counted": arithmetic, no finding;
- "close to 1, interval below it" (or above): the whole interval is within the margin, but does not hold the value;
- "close to 2, interval reaches past the margin": the estimate is within the margin and the interval is not;
- "more than claimed (early phase)": the effect is there and larger than the paper says, in runs that end early;
- "too small to say": the numbers of a quick run are shown but not judged, because the paper's values hold at its sizes;
- "not run": there is no data, or it is of an older run that did not measure this.

In ``summary.json`` ``reproduced`` is true for yes, counted, and an interval within the margin, false for no, and null
for the rest: only the words can say what was found.
"""

import argparse
import json
import math
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from dmlmc.reproduce.claims import CLAIMS
from dmlmc.reproduce.verdicts import Verdict

DATA = Path(__file__).parents[2] / "figures" / "data"


def judge(directory: Path, failed: Collection[str] = ()) -> list[dict[str, Any]]:
    """One record per claim from a data directory: claim, paper, found, low, high, reproduced, verdict.

    Numbers that were not measured are None. Data of the notebooks in ``failed`` is ignored, because it is from an older
    run.
    """
    records = []
    for claim in CLAIMS:
        profile = None if claim.notebook in failed else claim.profile(directory)
        found = None if profile is None else claim.measure(directory)
        verdict = Verdict(None, "not run")
        if profile is not None and found is not None:
            verdict = claim.judge(found, profile)
        known = (value if math.isfinite(value) else None for value in found or (math.nan,) * 3)
        numbers = dict(zip(("found", "low", "high"), known, strict=True))
        words = {"reproduced": verdict.reproduced, "verdict": verdict.text}
        records.append({"claim": claim.claim, "paper": claim.paper, **numbers, **words})
    return records


def to_json(records: Sequence[dict[str, Any]]) -> str:
    """The records as the text of ``summary.json``."""
    return json.dumps(list(records), indent=1) + "\n"


def as_rows(records: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The cells of the table, header first.

    >>> row = {"claim": "span", "paper": "16", "found": 15.91, "low": None, "high": None, "verdict": "yes"}
    >>> as_rows([row])[1]
    ('span', '16', '15.9', 'unknown', 'yes')
    """
    rows: list[tuple[str, ...]] = [("claim", "paper", "found", "interval", "reproduced")]
    for record in records:
        if record["found"] is None:
            rows.append((record["claim"], record["paper"], record["verdict"], "", ""))
            continue
        known = record["low"] is not None and record["high"] is not None
        interval = f"{record['low']:.3g} to {record['high']:.3g}" if known else "unknown"
        rows.append((record["claim"], record["paper"], f"{record['found']:.3g}", interval, record["verdict"]))
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
    print(as_text(judge(options.data)), "\nThe rules:", sep="\n")
    for claim in CLAIMS:
        print(f"- {claim.claim}: {claim.rule}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
