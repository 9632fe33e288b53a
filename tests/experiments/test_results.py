import json

import numpy as np
import pandas as pd

from dmlmc.experiments.results import save_results


def test_saved_results_can_be_read_back(tmp_path):
    record = pd.DataFrame({"method": "MLMC", "step": [0, 10], "loss": [1.0, 1 / 3]})
    summary = {"profile": "quick", "ratio": {"mean": 16.0, "low": 15.5, "high": 16.5}}
    save_results(tmp_path, "name", record, summary)
    assert json.loads((tmp_path / "data" / "name.json").read_text()) == summary
    again = pd.read_csv(tmp_path / "data" / "name_curves.csv")
    assert again.columns.tolist() == record.columns.tolist() and again.step.tolist() == [0, 10]
    np.testing.assert_allclose(again.loss, record.loss, rtol=1e-5)


def test_a_number_that_is_not_finite_is_null(tmp_path):
    summary = {"ratio": {"mean": np.nan, "all": [1.0, np.inf, (2, -np.inf)]}, "name": "NaN", "count": 3}
    save_results(tmp_path, "name", pd.DataFrame({"loss": [1.0]}), summary)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads((tmp_path / "data" / "name.json").read_text(), parse_constant=refuse)
    assert found == {"ratio": {"mean": None, "all": [1.0, None, [2, None]]}, "name": "NaN", "count": 3}
