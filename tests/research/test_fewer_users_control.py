"""What larger blocks and less exploring are worth: the pages show what is stored."""

from __future__ import annotations

from pathlib import Path

from research.fewer_users_control import CASES, load, main, table

DOCS = Path(__file__).parents[2] / "docs"


def test_the_pages_show_what_is_stored() -> None:
    stored = load()
    assert set(stored) == {case.name for case in CASES}
    assert len(stored) == len(CASES)
    page = (DOCS / "lq.md").read_text()
    assert table(stored, "CertaintyEquivalence") in page
    assert table(stored, "CertaintyEquivalence", held_out=True) in page


def test_what_is_stored_is_shown_without_running(capsys) -> None:
    assert main(["--show"]) == 0
    assert table(load(), "CertaintyEquivalence") in capsys.readouterr().out
