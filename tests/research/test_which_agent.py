"""The rules for agents against the others: the page shows what is stored, and it agrees."""

from __future__ import annotations

from research.which_agent import ROWS, load, main, rule, table


def test_every_row_compares_what_is_taken() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert rule(row) in row.agents, row.name


def test_what_is_stored_is_shown_without_running(capsys) -> None:
    assert main(["--show"]) == 0
    assert capsys.readouterr().out.strip() == table(load())
