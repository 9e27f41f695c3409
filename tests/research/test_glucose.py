"""Dosing insulin: what the page says is what was measured, and a case can be run."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from research import glucose
from research.glucose import CASES, Case, stored


def test_stored_rows_are_cases() -> None:
    rows = stored()
    assert set(rows) <= {case.name for case in CASES}
    assert len(rows) >= 4


@pytest.mark.skipif(find_spec("simglucose") is None, reason="needs simglucose")
def test_a_case_is_run_and_stored(monkeypatch, tmp_path, capsys) -> None:
    small = Case("fitted_functional_q", None, 5, 1)
    monkeypatch.setattr(glucose, "CASES", (small,))
    monkeypatch.setattr(glucose, "TABLE", tmp_path / "table.json")
    assert glucose.main(["--only", "fitted"]) == 0
    assert glucose.main(["--only", "other"]) == 0
    row = stored()[small.name]
    assert len(row.greedy) == row.runs == 1
    assert capsys.readouterr().out.startswith(row.line)
