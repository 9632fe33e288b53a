import json

import numpy as np
import pytest

from dmlmc.reproduce import readme, summary
from dmlmc.reproduce.claims import CLAIMS
from dmlmc.theory import scaling

RECORDS = json.loads((summary.DATA / "summary.json").read_text())
MEMORY = json.loads((summary.DATA / "benchmarks.json").read_text())["memory"]
PARTS = HEADLINE, SUMMARY, BYTES, SCALING = [
    readme.markers(part) for part in ("headline", "summary", "memory", "scaling")
]


def skeleton(body=""):
    form = "before\n{}\n{body}{}\nclaims\n{}\n{body}{}\nbytes\n{}\n{body}{}\nbetween\n{}\n{body}{}\nafter\n"
    return form.format(*(line for part in PARTS for line in part), body=body)


def test_the_tables_of_the_readme_match_the_committed_summary_and_the_model():
    text = readme.README.read_text()
    assert readme.filled(text, RECORDS, MEMORY) == text


def test_the_readme_states_the_constants_behind_the_model():
    plain = " ".join(readme.README.read_text().split())
    assert "1 ms for a level-0 path, 1 µs for every further one, 10 µs per hop" in plain
    np.testing.assert_allclose(list(scaling.ASSUMED.values()), [1e-3, 1e-6, 1e-5])
    assert "2^20 samples at level 0" in plain and scaling.LEVEL0_SAMPLES == 2**20


def test_the_tables_go_between_the_markers_and_filling_twice_changes_nothing():
    once = readme.filled(skeleton("old\n"), RECORDS, MEMORY)
    assert once == readme.filled(once, RECORDS, MEMORY)
    lines = once.splitlines()
    assert lines[0] == "before" and lines[-1] == "after" and "old" not in lines
    titles = [lines.index(title) for title in ("claims", "bytes", "between")]
    claims, sizes, seconds = (lines[first + 1 : last] for first, last in zip(titles, [*titles[1:], -1], strict=True))
    assert (claims[0], claims[-1], seconds[0], seconds[-1]) == (*SUMMARY, *SCALING)
    assert (sizes[0], sizes[-1]) == BYTES and "\n".join(sizes[1:-1]) == readme.bytes_of_a_step(MEMORY)
    assert len(claims) == 2 + 2 + len(RECORDS) and {line.count("|") for line in claims[1:-1]} == {7}
    assert len(seconds) == 2 + 1 + len(scaling.scaling_rows())
    with pytest.raises(ValueError, match="text must hold the lines"):
        readme.filled("no markers", RECORDS, MEMORY)


def test_the_headline_has_the_numbers_of_the_claims_and_says_what_is_not_known():
    known = {"span to equal loss, MLMC over delayed MLMC": 15.9, "work to equal loss, MLMC over delayed MLMC": 2.58}
    for number, (optimiser, counts) in enumerate((o, c) for o in ("SGD", "Adam") for c in ("paper's", "held")):
        known[f"span to equal loss at tuned rates, {optimiser}, {counts} counts"] = 2.0 + number
    assert set(known) <= {claim.claim for claim in CLAIMS}
    text = readme.headline([{"claim": name, "found": found} for name, found in known.items()])
    assert "16 times less span and 2.6 times less work" in text
    assert "rate (SGD and Adam), it needs 2 and 4 times" in text and "and 3 and 5 times less with *held*" in text
    assert "not known how many times less span" in readme.headline([])


def test_the_bytes_of_a_step_are_those_at_the_largest_l_max_and_the_ratios_of_all_rows():
    sizes = {"level0_samples": 8, "parameters": 3 * 1024}
    rows = [
        {"method": method, "max_level": level, **sizes, "peak": 1024 * peak, "state": 1024 * state * (level == 5),
         "temporaries": temporaries, "predicted_temporaries": 10}
        for level, temporaries in ((2, 7), (5, 20))
        for method, peak, state in (
            ("naive", 41, 0), ("MLMC", 42, 0), ("delayed MLMC", 43, 11), ("streaming MLMC", 2000, 12)
        )
    ]  # fmt: skip
    text = " ".join(readme.bytes_of_a_step({"machine": {"device": "abacus"}, "rows": rows}).split())
    assert "device abacus (deep hedging as any SDE, l_max = 5, 8 paths at level 0, 3 KiB of parameters)" in text
    assert "naive 41, MLMC 42, delayed MLMC 43, streaming MLMC 2000. " in text
    assert "keeps 11 of them" in text and "streaming MLMC 12, the states" in text
    assert "0.7 to 2.0 times" in text


def test_the_command_fills_both_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(readme, "README", tmp_path / "README.md")
    readme.README.write_text(skeleton())
    assert readme.main([]) == 0
    assert readme.README.read_text() == readme.filled(skeleton(), RECORDS, MEMORY)
    assert "| 16 to 16 | counted |" in readme.README.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]  # no temporary file is left
