"""Learning from logs: what the page says is what was measured, and it is what was aimed at."""

from __future__ import annotations

from functools import partial

from research import offline, study
from research.offline import CASES, coverage
from research.study import load


def test_every_case_is_stored() -> None:
    assert list(load("offline")) == list(CASES)


def test_intervals_hold_as_often_as_they_promise() -> None:
    for name, row in load("offline").items():
        if name.startswith("coverage"):
            assert row["runs"] == 1000
            for key in ("all", "value", "low", "today"):
                assert row[key] >= 0.95 * row["runs"], (name, key)
            assert row["wrong"] <= 0.05 * row["runs"], name


def test_offline_icu_sepsis_beats_the_clinicians_and_proves_it() -> None:
    row = load("offline")["icu"]
    assert (row["runs"], row["users"]) == (100, 10**6)
    assert min(row["values"]) > row["clinicians"]
    assert row["valid"] >= 95
    assert row["above clinicians"] > 50
    pairs = zip(row["lows"], row["values"], strict=True)
    assert sum(low <= value for low, value in pairs) == row["valid"]


def test_a_case_is_run_and_stored(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(offline, "RUNS", 2)
    monkeypatch.setattr(offline, "USERS", 500)
    monkeypatch.setattr(study, "HERE", tmp_path)
    cases = {
        "coverage, small": partial(coverage, "bandit", "unknown", "returns"),
    }
    monkeypatch.setattr(offline, "CASES", cases)
    assert offline.main([]) == 0
    assert offline.main(["--only", "nothing"]) == 0
    rows = load("offline")
    assert rows["coverage, small"]["runs"] == 2
    assert capsys.readouterr().out.count("small") == 1
