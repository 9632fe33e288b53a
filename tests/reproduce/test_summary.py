import json
import shutil

import pandas as pd
import pytest

from dmlmc.reproduce import claims, summary


@pytest.fixture
def data(tmp_path):
    """The committed data of notebooks 02 and 03 at paper size, and made-up rates and seconds."""
    names = ("deep_hedging.json", "deep_hedging_curves.csv", "theorem.json", "theorem_curves.csv")
    for name in names:
        shutil.copy(summary.DATA / name, tmp_path)
    estimates = {"b": 1.95, "c": 1.0, "d": 1.05, "euler_b": 0.95}
    rates = {name: {"estimate": value, "low": value - 0.1, "high": value + 0.1} for name, value in estimates.items()}
    (tmp_path / "assumptions.json").write_text(json.dumps({"profile": "paper", **rates}))
    names = ("mlmc_over_delayed", "mlmc_over_delayed_at_batch", "naive_over_delayed_at_batch")
    seconds = {name: {"estimate": 14.0, "low": 13.5, "high": 16.0} for name in names}
    (tmp_path / "wall_clock.json").write_text(json.dumps({"profile": "paper", **seconds}))
    ratios = {"paper's": (2.0, 0.9, 3.0), "held": (15.0, 14.5, 15.5)}  # given back, and kept
    one = {
        f"delayed MLMC, {counts} counts": {"span_ratio_to_mlmc": dict(zip(("mean", "low", "high"), found, strict=True))}
        for counts, found in ratios.items()
    }
    tuned = {"profile": "paper", "problems": {"deep hedging": {"SGD": one, "Adam": one}}}
    (tmp_path / "tuned.json").write_text(json.dumps(tuned))
    write_streaming(tmp_path)
    return tmp_path


def write_streaming(directory):
    """Made-up data of notebook 05: all that was wanted, but MLMC ahead with 512 paths, and a loss a fifth larger."""

    def times(**by_plan):
        return {key[1:]: {"estimate": x, "low": 0.98 * x, "high": 1.02 * x} for key, x in by_plan.items()}

    found = {"mlmc_over_streaming": times(_6=26.0, _10=310.0), "streaming_over_level0": times(_2=2.0, _6=2.9, _12=2.5)}
    (directory / "streaming.json").write_text(json.dumps({"profile": "paper", **found}))
    batches = {"profile": "paper", "mlmc_over_streaming": times(_4=26.0, _512=0.9)}
    (directory / "streaming_batches.json").write_text(json.dumps(batches))
    losses = {"deep hedging": {"MLMC": 1.0, "streaming MLMC": 1.05}, "neural SDE": {"MLMC": 1.0, "streaming MLMC": 1.2}}
    rows = [
        {"problem": problem, "optimiser": optimiser, "method": method, "learning_rate": 0.1, "seed": seed, "loss": loss}
        for problem, by_method in losses.items()
        for optimiser in ("SGD", "Adam")
        for method, loss in by_method.items()
        for seed in range(3)
    ]
    pd.DataFrame(rows).to_csv(directory / "streaming_curves.csv", index=False)


def verdicts(directory, **options):
    return [record["reproduced"] for record in summary.judge(directory, **options)]


TUNED = [False, True] * 2  # the paper's counts give their gain back, held counts keep it, for SGD and for Adam
SECONDS = [True] * 3  # of delayed MLMC, with few paths and at the paper's batch
STREAMING = [True, True, True, False, True, True, False, False]


def test_a_record_has_seven_fields_and_is_plain_json(data):
    records = summary.judge(data)
    fields = ["claim", "paper", "found", "low", "high", "reproduced", "verdict"]
    assert all(list(record) == fields for record in records)
    assert json.loads(summary.to_json(records)) == records
    assert verdicts(data) == [True] * 6 + TUNED + [True, None] + SECONDS + [True] + STREAMING  # None: more than claimed
    words = [record["verdict"] for record in records]
    assert words == [
        "yes",
        "counted",
        "yes",
        "yes",
        "counted",
        "yes",
        *("given back", "kept") * 2,
        "yes",
        "more than claimed (early phase)",
        *("yes",) * len(SECONDS),
        "yes",
        *("yes" if reproduced else "no" for reproduced in STREAMING),
    ]


def test_the_measured_ratios_are_those_that_the_notebook_saved(data):
    targets = json.loads((data / "deep_hedging.json").read_text())["targets"]
    for cost in ("span", "work"):
        (record,) = [one for one in summary.judge(data) if one["claim"].startswith(f"{cost} to equal loss, MLMC")]
        saved = [target[f"{cost}_ratio"] for target in targets]
        # The curves are saved with six digits.
        assert record["found"] == pytest.approx(sum(one["mean"] for one in saved) / len(saved), rel=1e-4)
        assert record["low"] == pytest.approx(min(one["low"] for one in saved), rel=1e-4)
        assert record["high"] == pytest.approx(max(one["high"] for one in saved), rel=1e-4)


def test_a_notebook_that_was_not_run_or_failed_is_not_judged(data):
    (data / "assumptions.json").unlink()
    assert verdicts(data) == [None] * 4 + [True] * 2 + TUNED + [True, None] + SECONDS + [True] + STREAMING
    failed = ["03_deep_hedging", "04_tuned", "05_streaming"]
    assert verdicts(data, failed=failed) == [None] * 4 + [True] + [None] * 7 + SECONDS + [True] + [None] * 8
    assert summary.judge(data)[0]["verdict"] == "not run"
    assert summary.as_text(summary.judge(data)).count("not run") == 4
    assert json.loads(summary.to_json(summary.judge(data)))[0]["found"] is None


def test_a_claim_that_is_younger_than_the_data_is_not_run(data):
    found = json.loads((data / "wall_clock.json").read_text())
    del found["naive_over_delayed_at_batch"]
    (data / "wall_clock.json").write_text(json.dumps(found))
    words = {record["claim"]: record["verdict"] for record in summary.judge(data)}
    assert words["seconds per step at the paper's batch, naive over delayed MLMC"] == "not run"
    assert words["seconds per step at the paper's batch, MLMC over delayed MLMC"] == "yes"


def test_streaming_is_judged_at_its_worst_level_and_batch_and_not_before_level_12_was_timed(data):
    found = {record["claim"]: record["found"] for record in summary.judge(data)}
    assert found["seconds per step with four paths, streaming MLMC over level 0, every l_max up to 12"] == 2.9
    assert found["seconds per step at equal long-run noise, MLMC over streaming MLMC, every batch"] == 0.9
    assert found["late loss at equal iterations, neural SDE, SGD, streaming MLMC over MLMC"] == pytest.approx(1.2)
    (data / "streaming.json").write_text((data / "streaming.json").read_text().replace('"12"', '"8"'))
    (record,) = [one for one in summary.judge(data) if "every l_max up to 12" in one["claim"]]
    assert record["found"] is None and record["verdict"] == "no"


def test_a_loss_that_was_not_reached_at_tuned_rates_is_given_back(data):
    text = (data / "tuned.json").read_text()
    (data / "tuned.json").write_text(text.replace("14.5", "null").replace("15.0", "null").replace("15.5", "null"))
    held = [record for record in summary.judge(data) if "tuned rates" in record["claim"] and "held" in record["claim"]]
    assert [(record["found"], record["verdict"]) for record in held] == [(None, "given back")] * 2


def test_a_quick_run_shows_numbers_and_judges_only_counts(data):
    for name in (
        "deep_hedging.json",
        "assumptions.json",
        "theorem.json",
        "tuned.json",
        "wall_clock.json",
        "streaming.json",
    ):
        text = (data / name).read_text()
        (data / name).write_text(text.replace('"profile": "paper"', '"profile": "quick"'))
    judged = [record["claim"] for record in summary.judge(data) if record["reproduced"] is not None]
    assert judged == ["cost of level l grows as 2^(c l)", "span per step, MLMC over delayed MLMC"]
    assert all(record["found"] is not None for record in summary.judge(data))
    assert summary.as_text(summary.judge(data)).count("too small to say") == 22


def test_the_committed_summary_follows_from_the_committed_data():
    assert json.loads((summary.DATA / "summary.json").read_text()) == summary.judge(summary.DATA)


def test_what_is_counted_comes_out_as_stated():
    counts = {record["claim"]: record for record in summary.judge(summary.DATA) if record["verdict"] == "counted"}
    assert [record["claim"] for record in counts.values()] == [
        claim.claim for claim in claims.CLAIMS if claim.kind == "counted"
    ]
    span, cost = counts["span per step, MLMC over delayed MLMC"], counts["cost of level l grows as 2^(c l)"]
    assert (span["found"], span["low"], span["high"]) == (16, 16, 16)
    assert cost["found"] == pytest.approx(1, abs=1e-6)


def test_the_command_prints_the_table_and_the_rules(data, capsys):
    assert summary.main(["--data", str(data)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(summary.as_text(summary.judge(data)))
    assert all(f"- {claim.claim}: {claim.rule}." in printed for claim in claims.CLAIMS)
