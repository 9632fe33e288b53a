"""What a notebook found, on disk: the numbers behind its figures, for the table of claims and for the reader."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from dmlmc._internal.files import write


def save_results(directory: Any, name: str, record: pd.DataFrame, summary: dict[str, Any]) -> None:
    """Write ``data/name.json`` (the summary) and ``data/name_curves.csv`` (the record) below a directory."""
    data = Path(directory) / "data"
    write(data / f"{name}_curves.csv", record.to_csv(index=False, float_format="%.6g"))
    write(data / f"{name}.json", json.dumps(summary, indent=1) + "\n")
