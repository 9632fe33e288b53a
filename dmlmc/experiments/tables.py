"""Tables to display in notebooks: plans, costs of methods, rates measured at several points, texts."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dmlmc.calibration.checklist import CheckList
from dmlmc.estimators import GradientEstimator
from dmlmc.experiments.tuned import spent, steps_to_spend
from dmlmc.schedule import Plan

WORK, SPAN = "mean work per step [level-0 paths]", "mean span per step [level-0 paths]"


def plans(named: Mapping[str, Plan]) -> pd.DataFrame:
    """By name: samples and periods by level, the costs of a step, and the noise over that of the plan without delay.

    >>> from dmlmc import Rates, plan
    >>> plans({"held": plan(Rates(1.8, 1.0, 1.0), max_level=2, level0_samples=64)}).loc["held"].tolist()
    ['64, 50, 40', '1, 2, 4', '199', '2', '1.00']
    """
    rows = {
        name: {
            "samples of levels 0, 1, ...": ", ".join(map(str, one.samples)),
            "periods [steps]": ", ".join(map(str, one.periods)),
            WORK: f"{one.mean_work():.4g}",
            SPAN: f"{one.mean_span():.3g}",
            "long-run variance / without delay": f"{one.long_run_variance() / one.without_delay().variance():.2f}",
        }
        for name, one in named.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("plan")


def costs(estimators: Sequence[GradientEstimator], budgets: Mapping[str, float] | None = None) -> pd.DataFrame:
    """By method: the mean costs of a step, over 512 steps, and how many steps it takes to spend all ``budgets``."""
    rows = {}
    for estimator in estimators:
        total = spent(estimator, 512)
        row = {WORK: f"{total['work'] / 512:.4g}", SPAN: f"{total['span'] / 512:.3g}"}
        if budgets is not None:
            row["steps of a run"] = str(steps_to_spend(estimator, budgets))
        rows[estimator.method] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def rates(reports: Mapping[str, CheckList]) -> pd.DataFrame:
    """By name: b and d with 95% intervals, and the variance of each level's gradient."""
    rows = {}
    for name, report in reports.items():
        rows[name] = {"b": str(report.fitted.b), "d": str(report.fitted.d)}
        rows[name] |= {f"variance, level {row.level}": f"{row.variance:.2g}" for row in report.table.itertuples()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("measured")


def of_texts(texts: pd.DataFrame) -> Any:
    """A table of texts for a notebook, aligned to the left. A DataFrame aligns them to the right."""
    from IPython.display import HTML  # in the extra "paper"; only notebooks need it

    left = [{"selector": "td, th", "props": "text-align: left; vertical-align: top"}]
    return HTML(texts.style.format(escape="html").set_uuid("texts").set_table_styles(left).to_html())
