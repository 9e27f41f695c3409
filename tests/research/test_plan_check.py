"""Plans for continuous worlds: the page says what was measured, and a plan can be checked."""

from __future__ import annotations

from statistics import median

from research import plan_check
from research.plan_check import ROWS, Row, load, measured, table


def test_every_row_is_stored() -> None:
    assert load().keys() == {row.key for row in ROWS}


def test_half_of_fresh_runs_reach_what_a_simulated_plan_promises() -> None:
    for row in ROWS:
        found = load()[row.key]
        scores = found["scores"]
        assert len(scores) == row.runs
        assert median(scores) >= 0.9, row.key


def test_a_plan_is_checked_on_seeds_that_it_did_not_see(monkeypatch, tmp_path, capsys) -> None:
    small = Row("line:horizon=10", "fitted_functional_q", 10.0, 2)
    first = measured(small)
    assert first == measured(small)
    assert len(first["scores"]) == 2
    monkeypatch.setattr(plan_check, "ROWS", (small,))
    monkeypatch.setattr(plan_check, "STORED", tmp_path / "plans.json")
    assert plan_check.main(["--only", "plane"]) == 0
    assert load() == {}
    assert plan_check.main([]) == 0
    assert table({small.key: first}) in capsys.readouterr().out
