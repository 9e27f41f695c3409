"""What larger blocks and less exploring are worth: the pages show what is stored."""

from __future__ import annotations

from research.fewer_users_control import CASES, load, main, table


def test_every_case_is_stored() -> None:
    stored = load()
    assert set(stored) == {case.name for case in CASES}
    assert len(stored) == len(CASES)


def test_what_is_stored_is_shown_without_running(capsys) -> None:
    assert main(["--show"]) == 0
    assert table(load(), "CertaintyEquivalence") in capsys.readouterr().out
