"""Learning from logs: what the page says is what was measured, and it is what was aimed at."""

from __future__ import annotations

from functools import partial

from research import offline
from research.offline import CASES, coverage, stored, width


def test_every_case_is_stored() -> None:
    assert list(stored()) == list(CASES)


def test_intervals_hold_as_often_as_they_promise() -> None:
    for name, row in stored().items():
        if name.startswith("coverage"):
            assert row["runs"] == 1000
            for key in ("all", "value", "low", "today"):
                assert row[key] >= 0.95 * row["runs"], (name, key)
            assert row["wrong"] <= 0.05 * row["runs"], name


def test_privacy_at_most_doubles_the_width() -> None:
    for name, row in stored().items():
        if name.startswith("width"):
            assert row["users"] == 10**6
            assert row["value"] <= 2.0 * row["value, not private"], name
            assert row["today"] <= 2.0 * row["today, not private"], name


def test_offline_icu_sepsis_beats_the_clinicians_and_proves_it() -> None:
    row = stored()["icu"]
    assert (row["runs"], row["users"]) == (100, 10**6)
    assert min(row["values"]) > row["clinicians"]
    assert row["valid"] >= 95
    assert row["above clinicians"] > 50
    pairs = zip(row["lows"], row["values"], strict=True)
    assert sum(low <= value for low, value in pairs) == row["valid"]


def test_a_case_is_run_and_stored(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(offline, "RUNS", 2)
    monkeypatch.setattr(offline, "USERS", 500)
    monkeypatch.setattr(offline, "MANY", 2000)
    monkeypatch.setattr(offline, "TABLE", tmp_path / "table.json")
    cases = {
        "coverage, small": partial(coverage, "bandit", "unknown", "returns"),
        "width, small": partial(width, "bandit", "known"),
    }
    monkeypatch.setattr(offline, "CASES", cases)
    assert offline.main([]) == 0
    assert offline.main(["--only", "nothing"]) == 0
    rows = stored()
    assert rows["coverage, small"]["runs"] == 2
    assert rows["width, small"]["users"] == 2000
    assert capsys.readouterr().out.count("small") == 2
