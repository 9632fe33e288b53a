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
