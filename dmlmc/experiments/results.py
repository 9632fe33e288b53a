"""Save a notebook's results: the numbers behind its figures, which the table of claims reads."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from dmlmc._internal.files import write


def save_results(directory: str | Path, name: str, record: pd.DataFrame, summary: dict[str, Any]) -> None:
    """Write the summary to ``data/name.json`` and the record to ``data/name_curves.csv``, under ``directory``.

    A number that is not finite, such as a ratio that no run reached, is null in the JSON.
    """
    data = Path(directory) / "data"
    write(data / f"{name}_curves.csv", record.to_csv(index=False, float_format="%.6g"))
    write(data / f"{name}.json", json.dumps(_plain(summary), indent=1, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
