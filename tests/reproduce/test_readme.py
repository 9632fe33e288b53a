import json

import numpy as np
import pytest

from dmlmc.reproduce import readme, summary
from dmlmc.reproduce.claims import CLAIMS
from dmlmc.theory import scaling

RECORDS = json.loads((summary.DATA / "summary.json").read_text())
HEADLINE, SUMMARY, SCALING = (readme.markers(part) for part in ("headline", "summary", "scaling"))


def skeleton(body=""):
    form = "before\n{}\n{body}{}\nclaims\n{}\n{body}{}\nbetween\n{}\n{body}{}\nafter\n"
    return form.format(*HEADLINE, *SUMMARY, *SCALING, body=body)


def test_the_tables_of_the_readme_match_the_committed_summary_and_the_model():
    text = readme.README.read_text()
    assert readme.filled(text, RECORDS) == text


def test_the_readme_states_the_constants_behind_the_model():
    plain = " ".join(readme.README.read_text().split())
    assert "1 ms for a level-0 path, 1 µs for every further one, 10 µs per hop" in plain
    np.testing.assert_allclose(list(scaling.ASSUMED.values()), [1e-3, 1e-6, 1e-5])
    assert "2^20 samples at level 0" in plain and scaling.LEVEL0_SAMPLES == 2**20


def test_the_tables_go_between_the_markers_and_filling_twice_changes_nothing():
    once = readme.filled(skeleton("old\n"), RECORDS)
    assert once == readme.filled(once, RECORDS)
    lines = once.splitlines()
    assert lines[0] == "before" and lines[-1] == "after" and "old" not in lines
    claims, seconds = lines[lines.index("claims") + 1 : lines.index("between")], lines[lines.index("between") + 1 : -1]
    assert (claims[0], claims[-1], seconds[0], seconds[-1]) == (*SUMMARY, *SCALING)
    assert len(claims) == 2 + 2 + len(RECORDS) and {line.count("|") for line in claims[1:-1]} == {7}
    assert len(seconds) == 2 + 1 + len(scaling.scaling_rows())
    with pytest.raises(ValueError, match="text must hold the lines"):
        readme.filled("no markers", RECORDS)


def test_the_headline_has_the_numbers_of_the_claims_and_says_what_is_not_known():
    known = {"span to equal loss, MLMC over delayed MLMC": 15.9, "work to equal loss, MLMC over delayed MLMC": 2.58}
    for number, (optimiser, counts) in enumerate((o, c) for o in ("SGD", "Adam") for c in ("paper's", "held")):
        known[f"span to equal loss at tuned rates, {optimiser}, {counts} counts"] = 2.0 + number
    assert set(known) <= {claim.claim for claim in CLAIMS}
    text = readme.headline([{"claim": name, "found": found} for name, found in known.items()])
    assert "16 times less span and 2.6 times less work" in text
    assert "rate (SGD and Adam), it needs 2 and 4 times" in text and "and 3 and 5 times less with *held*" in text
    assert "not known how many times less span" in readme.headline([])


def test_the_command_fills_both_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(readme, "README", tmp_path / "README.md")
    readme.README.write_text(skeleton())
    assert readme.main([]) == 0
    assert readme.README.read_text() == readme.filled(skeleton(), RECORDS)
    assert "| 16 to 16 | counted |" in readme.README.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]  # no temporary file is left
