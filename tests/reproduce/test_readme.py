import itertools
import json

import pytest

from dmlmc.experiments import wall_clock
from dmlmc.reproduce import readme, summary
from dmlmc.reproduce.claims import CLAIMS

RECORDS = json.loads((summary.DATA / "summary.json").read_text())
BENCH = json.loads((summary.DATA / "benchmarks.json").read_text())
NAMES = "headline", "summary", "memory", "environment"
PARTS = HEADLINE, SUMMARY, BYTES, ENVIRONMENT = [readme.markers(part) for part in NAMES]


def skeleton(body=""):
    form = "before\n{}\n{body}{}\nclaims\n{}\n{body}{}\nbytes\n{}\n{body}{}\nenvironment\n{}\n{body}{}\nafter\n"
    return form.format(*(line for part in PARTS for line in part), body=body)


def test_the_readme_matches_the_committed_summary_and_benchmarks():
    text = readme.README.read_text()
    assert readme.filled(text, RECORDS, BENCH) == text


def test_the_parts_go_between_the_markers_and_filling_twice_changes_nothing():
    once = readme.filled(skeleton("old\n"), RECORDS, BENCH)
    assert once == readme.filled(once, RECORDS, BENCH)
    lines = once.splitlines()
    assert lines[0] == "before" and lines[-1] == "after" and "old" not in lines
    ends = [*map(lines.index, ("claims", "bytes", "environment")), -1]
    claims, sizes, settings = (lines[begin + 1 : end] for begin, end in itertools.pairwise(ends))
    assert (claims[0], claims[-1], sizes[0], sizes[-1], settings[0], settings[-1]) == (*SUMMARY, *BYTES, *ENVIRONMENT)
    assert "\n".join(sizes[1:-1]) == readme.bytes_of_a_step(BENCH["memory"])
    assert "\n".join(settings[1:-1]) == readme.environment(BENCH)
    assert {line.count("|") for line in claims[1:-1] if "|" in line} == {4}
    with pytest.raises(ValueError, match="text must hold the lines"):
        readme.filled("no markers", RECORDS, BENCH)


def test_the_table_has_at_most_seven_findings_each_with_all_its_claims():
    head, *rows = readme.claim_rows(RECORDS)
    assert head == ("claim", "found", "interval") and 0 < len(rows) <= 7
    chosen = [claim for claim in CLAIMS if claim.headline is not None]
    assert all(claim.kind == "measured" for claim in chosen)  # what is counted is no finding
    assert [row[0] for row in rows] == list(dict.fromkeys(claim.headline for claim in chosen))
    by_claim = {row[0]: row[2:4] for row in summary.as_rows(RECORDS)}
    for headline, found, interval in rows:
        cells = [by_claim[claim.claim] for claim in chosen if claim.headline == headline]
        assert (found, interval) == tuple("; ".join(column) for column in zip(*cells, strict=True))


def test_a_claim_that_was_not_confirmed_is_named_below_the_table():
    confirmed = [record | {"reproduced": True} for record in RECORDS]
    assert readme.short_of_margins(confirmed) == ""
    in_table, elsewhere = (next(one for one in CLAIMS if (one.headline is None) == absent) for absent in (False, True))
    for short, name in ((in_table, in_table.headline), (elsewhere, elsewhere.claim)):
        records = [record | {"reproduced": record["claim"] != short.claim} for record in confirmed]
        assert readme.short_of_margins(records) == f"\n\nShort of our margin: {name}."


def test_the_headline_has_the_numbers_of_the_claims_and_says_what_is_not_known():
    known = {"span to equal loss, MLMC over delayed MLMC": 15.9, "work to equal loss, MLMC over delayed MLMC": 2.58}
    for number, (optimiser, counts) in enumerate((o, c) for o in ("SGD", "Adam") for c in ("paper's", "held")):
        known[f"span to equal loss at tuned rates, {optimiser}, {counts} counts"] = 2.0 + number
    assert set(known) <= {claim.claim for claim in CLAIMS}
    text = readme.headline([{"claim": name, "found": found} for name, found in known.items()])
    assert "16 times less span and 2.6 times less work" in text
    text = " ".join(text.split())
    assert "rate (SGD and Adam), it needs 2 and 4 times" in text and "3 and 5 times less with *held*" in text
    assert "not known how many times less span" in readme.headline([])


def test_the_bytes_of_a_step_are_those_at_the_largest_l_max():
    rows = [
        {"method": method, "max_level": level, "level0_samples": 8, "peak": 1024 * level * peak}
        for level in (5, 2)
        for method, peak in (("naive", 41), ("streaming MLMC", 2000))
    ]
    text = " ".join(readme.bytes_of_a_step({"machine": {"device": "abacus"}, "rows": rows}).split())
    assert "on abacus (any SDE, l_max = 5, 8 paths at level 0)" in text
    assert text.endswith("naive 205, streaming MLMC 10000.")


def test_the_gain_of_less_optimisation_is_that_of_our_steps_and_a_gpu_has_none():
    times = {  # as it is, with one thread, at the lower level of optimisation
        "naive": (4.0, 2.0, 9.0),
        f"{wall_clock.STEP_OF_NEURAL_SDE}, MLMC": (6.0, 9.0, 4.0), f"{wall_clock.STEP_OF_NEURAL_SDE}, other": (6, 9, 5),
        wall_clock.COMPILATION: (7.0, 9.0, 5.0),
    }  # fmt: skip
    settings = wall_clock.AS_IT_IS, wall_clock.ONE_THREAD, wall_clock.LESS_OPTIMISED
    measured = {
        name: {f"{wall_clock.OURS}, {one}": {"repeats": [t] * 3} for one, t in zip(settings, seconds, strict=True)}
        for name, seconds in times.items()
    }
    text = readme.environment({"environments": measured})
    assert "steps of a neural SDE take\n1.2 to 1.5 times as long, compilation 1.4 times" in text
    assert readme.environment({}) == ""


def test_the_command_fills_every_part(tmp_path, monkeypatch):
    monkeypatch.setattr(readme, "README", tmp_path / "README.md")
    readme.README.write_text(skeleton())
    assert readme.main([]) == 0
    assert readme.README.read_text() == readme.filled(skeleton(), RECORDS, BENCH)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]  # no temporary file is left
