"""Many states: what the page says is what was measured, and a case can be run."""

from __future__ import annotations

import pytest

from research import icu_sepsis
from research.icu_sepsis import CASES, Case, stored


def test_every_case_is_stored() -> None:
    assert list(stored()) == [case.name for case in CASES]


def test_thresholds_are_met_on_icu_sepsis() -> None:
    """Medians of the rows: what the page is proud of."""
    rows = stored()
    for name, least in (("users 1e5", 0.3), ("users 1e6", 0.7), ("users 1e7", 0.9)):
        assert sorted(rows[name].scores)[len(rows[name].scores) // 2] >= least


def test_a_case_is_run_and_stored(monkeypatch, tmp_path, capsys) -> None:
    small = Case("small", 3000, 1.0, 2, ("sparse_mdp:states=20",))
    monkeypatch.setattr(icu_sepsis, "CASES", (small,))
    monkeypatch.setattr(icu_sepsis, "TABLE", tmp_path / "table.json")
    assert icu_sepsis.main(["--only", "sma"]) == 0
    assert icu_sepsis.main(["--only", "other"]) == 0
    row = stored()["small"]
    assert len(row.scores) == row.runs == 2
    assert capsys.readouterr().out.startswith(row.line)
    assert small.run(0)[0] == pytest.approx(row.scores[0], abs=1e-4)
