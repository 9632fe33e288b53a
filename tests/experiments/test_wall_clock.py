import json
from pathlib import Path

import pandas as pd

import dmlmc
from dmlmc.calibration.interval import median_ratio
from dmlmc.experiments import wall_clock

DATA = Path(__file__).parents[2] / "figures" / "data"

METHODS = {"naive": (8.0, 9.0, 10.0), "MLMC": (4.0, 6.0, 5.0), "delayed MLMC": (2.0, 1.0, 3.0)}


def entry(max_level, level0, spans):
    """Made-up repeats as ``make bench`` writes them; the prediction is the span times the median at level 0."""
    repeats = METHODS | {"level 0": level0}
    return {
        "methods": [
            {"method": method, "seconds": sorted(values)[1], "low": min(values), "high": max(values)}
            | {"repeats": list(values), "predicted": span * sorted(level0)[1], "max_level": max_level}
            for (method, values), span in zip(repeats.items(), spans, strict=True)
        ]
    }


def bench(factor=1.0):
    steps = {"4": entry(4, (1.0, 2.0, 3.0), (16, 16, 3, 1)), "6": entry(6, (5.0, 6.0, 7.0), (64, 64, 4, 1))}
    ways = {"dmlmc": 0.5, "dmlmc, any SDE": 1.0, "diffrax.diffeqsolve": 3.0 * factor, "lax.scan": 4.0}
    repeats = {way: {"repeats": [times * one for one in (1.0, 2.0, 3.0)]} for way, times in ways.items()}
    machine = {"versions": {"jax": "1.2"}, "device": "abacus", "cores": 2, "scale": 1, "processor": "wood"}
    return {
        "latency_bound": steps, "compute_bound": steps, "machine": machine,
        "gradients": {"naive": repeats, "level 0": repeats},
    }  # fmt: skip


def test_level_0_has_one_median_of_all_repeats_and_the_predictions_use_it():
    table, level0 = wall_clock.step_table(bench()["latency_bound"])
    assert level0.estimate == 4.0 and level0.low <= 4.0 <= level0.high
    assert set(table.method) == set(METHODS)
    found = table.set_index(["max_level", "method"]).predicted
    assert found[4, "delayed MLMC"] == 3 * 4 and found[6, "delayed MLMC"] == 4 * 4 and found[6, "MLMC"] == 64 * 4


def test_the_ratios_are_of_medians_with_bootstrap_intervals_beside_those_of_the_spans():
    table = wall_clock.step_ratios(dict(reversed(bench()["latency_bound"].items())), "l_max")
    assert table.index.tolist() == [4, 6] and table.index.name == "l_max"
    expected = median_ratio(METHODS["naive"], METHODS["delayed MLMC"])
    assert table.loc[6, "naive / delayed MLMC"] == wall_clock.in_words(expected)
    assert (
        table.loc[6, "naive / delayed MLMC, by span"] == "16" and table.loc[4, "delayed MLMC / level 0, by span"] == "3"
    )


def test_measured_ratios_stand_beside_those_counted_from_the_plan():
    plan = dmlmc.plan(dmlmc.Rates(b=1.8, c=1.0, d=1.0), 6, level0_samples=512, allocation="paper")
    table = wall_clock.ratios_beside_counts(pd.DataFrame(entry(6, (1.0, 2.0, 3.0), (64, 64, 4, 1))["methods"]), plan)
    assert table.loc["MLMC / delayed MLMC", "span"] == table.loc["naive / delayed MLMC", "span"] == "16"
    works = {"MLMC": plan.without_delay().mean_work(), "naive": 148 * 64}
    for over, work in works.items():
        row = table.loc[f"{over} / delayed MLMC"]
        assert row.work == f"{work / plan.mean_work():.3g}"
        assert row.seconds == wall_clock.in_words(median_ratio(METHODS[over], METHODS["delayed MLMC"]))


def test_engines_are_compared_with_the_loss_of_any_sde_unless_asked():
    ratios = wall_clock.engine_ratios(bench()).set_index(["way", "gradient"]).ratio
    assert ratios.to_dict() == {
        (way, gradient): times
        for way, times in (("diffrax.diffeqsolve", 3.0), ("lax.scan", 4.0))
        for gradient in ("naive", "level 0")
    }
    trained = wall_clock.engine_ratios(bench(), wall_clock.AS_TRAINED)
    assert trained.ratio.tolist() == [6.0, 6.0, 8.0, 8.0]


def test_settings_are_compared_with_the_environment_as_it_is_and_ours_with_diffrax_under_each():
    ours, diffrax = wall_clock.OURS, wall_clock.ENGINES[0]
    settings = wall_clock.AS_IT_IS, wall_clock.ONE_THREAD, wall_clock.LESS_OPTIMISED
    seconds = {ours: (4.0, 2.0, 1.0), diffrax: (12.0, 10.0, 7.0)}
    entry = {
        f"{way}, {setting}": {"repeats": [one] * 3}
        for way, of_way in seconds.items()
        for setting, one in zip(settings, of_way, strict=True)
    }
    only_ours = {name: one for name, one in entry.items() if name.startswith(ours)}
    table = wall_clock.environment_table({"environments": {"naive": entry, "step": only_ours}})
    assert table.columns.tolist() == [
        *(f"dmlmc, as it is / {setting}" for setting in settings[1:]),
        *(f"diffrax / dmlmc, {setting}" for setting in settings),
    ]
    assert table.loc["naive"].tolist() == ["2 [2, 2]", "4 [4, 4]", "3 [3, 3]", "5 [5, 5]", "7 [7, 7]"]
    assert table.loc["step"].tolist() == ["2 [2, 2]", "4 [4, 4]", "", "", ""]
    assert wall_clock.environment_table({}).empty  # of a GPU


def test_every_run_is_appended_with_its_number_and_machine_and_none_is_lost(tmp_path):
    path = tmp_path / "benchmark_runs.json"
    for factor in (1.0, 2.0):
        wall_clock.append_run(path, bench(factor))
    first, second = json.loads(path.read_text())
    assert (first["run"], second["run"]) == (1, 2)
    assert {name: first[name] for name in ("jax", "device", "cores", "scale")} == {
        "jax": "1.2", "device": "abacus", "cores": 2, "scale": 1
    }  # fmt: skip
    name = "diffrax / dmlmc, naive gradient"
    assert (first["ratios"][name]["estimate"], second["ratios"][name]["estimate"]) == (3.0, 6.0)
    table = wall_clock.run_table([first, second])
    assert table.loc[2, name] == "6 [6, 6]" and list(table.columns[:4]) == ["jax", "device", "cores", "scale"]
    assert table.loc[1, "MLMC / delayed MLMC, four paths"] == wall_clock.in_words(
        median_ratio(METHODS["MLMC"], METHODS["delayed MLMC"])
    )


def test_the_committed_runs_end_with_the_committed_benchmarks():
    bench, runs = (json.loads((DATA / name).read_text()) for name in ("benchmarks.json", "benchmark_runs.json"))
    assert [run["run"] for run in runs] == list(range(1, len(runs) + 1))
    assert runs[-1] == {"run": len(runs), **wall_clock.run_of(bench)}
