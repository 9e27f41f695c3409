"""Learning from logs: what the page says is what was measured, and it is what was aimed at."""

from functools import partial
from statistics import median

from research import offline, study
from research.offline import CASES, coverage
from research.study import load


def test_every_case_is_stored():
    assert list(load("offline")) == list(CASES)


def test_certificates_hold_as_often_as_they_promise():
    rows = {name: row for name, row in load("offline").items() if name.startswith("coverage")}
    counts = [row for name, row in rows.items() if name.endswith("counts")]
    assert sum(row["runs"] for row in counts) >= 2000
    assert sum(row["low"] for row in counts) >= 0.94 * sum(row["runs"] for row in counts)
    for name, row in rows.items():
        for key in ("all", "gain", "low", "today"):
            assert row[key] >= 0.94 * row["runs"], (name, key)
        assert row["wrong"] <= 0.05 * row["runs"], name


def test_policies_from_twelve_logs_are_bold_and_certified():
    rows = [row for name, row in load("offline").items() if name.startswith("log")]
    assert len(rows) == 12
    assert all(8 <= row["states"] <= 60 for row in rows)
    medians = {key: median(median(row[key]) for row in rows) for key in ("trial", "certified")}
    assert medians["trial"] >= 0.9
    assert medians["certified"] >= 0.6
    assert sum(row["valid"] for row in rows) >= 0.94 * sum(row["runs"] for row in rows)


def test_offline_icu_sepsis_beats_the_clinicians_and_proves_it():
    row = load("offline")["icu"]
    assert (row["runs"], row["users"]) == (100, 10**6)
    assert min(row["values"]) > row["clinicians"]
    assert row["valid"] >= 95
    assert row["above clinicians"] > 50
    pairs = zip(row["lows"], row["values"], strict=True)
    assert sum(low <= value for low, value in pairs) == row["valid"]


def test_answers_of_trials_hold_and_find_what_was_planned():
    rows = {name: row for name, row in load("offline").items() if name.startswith("trial")}
    assert len(rows) == 6
    for name, row in rows.items():
        assert row["runs"] == 2000
        assert 0.93 <= row["last"] / 2000 <= 0.97, name
        assert 0.93 <= row["all"] / 2000 <= 0.97, name
        if "candidate" in name:
            assert abs(row["found"] / 2000 - row["planned"]) <= 0.05, name
        if "nothing" in name:
            assert max(row["live"], row["found"]) <= 0.05 * 2000, name


def test_a_case_is_run_and_stored(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(offline, "RUNS", 2)
    monkeypatch.setattr(offline, "USERS", 500)
    monkeypatch.setattr(study, "HERE", tmp_path)
    monkeypatch.setattr(offline, "TRIALS", 2)
    cases = {"coverage, small": partial(coverage, "bandit", "unknown", "returns")}
    cases |= {name: case for name, case in CASES.items() if name == "trial, learning, 0.5"}
    monkeypatch.setattr(offline, "CASES", cases)
    assert offline.main([]) == 0
    assert offline.main(["--only", "nothing"]) == 0
    rows = load("offline")
    assert rows["coverage, small"]["runs"] == 2
    assert capsys.readouterr().out.count("small") == 1
