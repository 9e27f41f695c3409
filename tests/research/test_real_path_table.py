"""Bugs of the real path: the rows, one audit of one of them, and what the page says of all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research import real_path_table
from research.planted.of_real_path import REAL_PATH

PAGE = Path(__file__).parents[2] / "docs" / "checking.md"


def test_bugs_have_names_of_their_own_and_say_what_they_gain() -> None:
    rows = [(bug.name, bug.agent, bug.privacy) for bug in REAL_PATH]
    assert len(REAL_PATH) >= 45
    assert len({str(row) for row in rows}) == len(rows)
    assert {bug.kind for bug in REAL_PATH} == set("abcdefghij")
    assert all(bug.what and bug.gain for bug in REAL_PATH)


def test_the_page_tells_what_was_found_and_what_was_not() -> None:
    rows = json.loads(real_path_table.TABLE.read_text())
    rows = rows["rows"] if isinstance(rows, dict) else rows
    assert {row["name"] for row in rows} == {bug.name for bug in REAL_PATH}
    assert all(row["clean"] for row in rows)
    caught = sum(row["caught"] for row in rows)
    text = " ".join(PAGE.read_text().split())
    assert f"finds {caught} of {len(rows)}" in text
    for row in rows:
        assert (f"`{row['name']}`" in text) == (not row["caught"]), row["name"]


@pytest.mark.slow
def test_a_bug_of_the_sampler_is_found(capsys) -> None:
    real_path_table.main(["--only", "ScaleIsPowerOfTwo"])
    assert "caught" in capsys.readouterr().out.replace("not caught", "")
