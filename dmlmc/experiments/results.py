"""Save a notebook's results: the numbers behind its figures, which the table of claims reads."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from dmlmc._internal.files import write


def save_results(directory: str | Path, name: str, record: pd.DataFrame, summary: dict[str, Any]) -> None:
    """Write the summary to ``data/name.json`` and the record to ``data/name_curves.csv``, under ``directory``."""
    data = Path(directory) / "data"
    write(data / f"{name}_curves.csv", record.to_csv(index=False, float_format="%.6g"))
    write(data / f"{name}.json", json.dumps(summary, indent=1) + "\n")
