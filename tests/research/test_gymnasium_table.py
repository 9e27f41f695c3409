"""The table of environments is what was measured, and every row is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from research import gymnasium
from tacit.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def test_the_page_shows_what_is_stored():
    assert gymnasium.table(gymnasium.load()) in PAGE.read_text()


def test_ten_environments_at_three_budgets():
    stored = gymnasium.load()
    expected = {gymnasium.key(row, e) for row in gymnasium.ROWS for e in gymnasium.EPSILONS}
    assert stored.keys() == expected
    assert len(gymnasium.ROWS) == 10
    for row in gymnasium.ROWS:
        for epsilon in gymnasium.EPSILONS:
            found = stored[gymnasium.key(row, epsilon)]
            assert found["command"] == row.command(epsilon)
            assert 1 <= len(found["greedy"]) <= gymnasium.RUNS
            if found["optimum"] is not None:
                assert max(found["greedy"]) <= found["optimum"] + 1e-4


@pytest.mark.parametrize("row", gymnasium.ROWS, ids=lambda row: row.name)
def test_a_cells_command_is_one_that_the_program_takes(row):
    import typer

    group = typer.main.get_command(app)
    for epsilon in gymnasium.EPSILONS:
        _, name, *arguments = row.command(epsilon).split()
        context = group.commands[name].make_context(name, arguments, resilient_parsing=False)
        assert context.params["world"] == f"gym:{row.name}"
        assert context.params["users"] == str(row.users[gymnasium.EPSILONS.index(epsilon)])


def test_a_cell_is_what_the_command_prints():
    """Run 0 of a cell, in a smaller one."""
    from tests.cli.calls import call, content

    row = gymnasium.Row("CliffWalking-v1", (50, 50, 50))
    found = gymnasium.measured(row, None, runs=1)
    printed = content(call(*row.command(None).split()[1:], "--json"))
    assert round(printed["runs"][0]["greedy_value"], 4) == found["greedy"][0]
    assert (round(printed["optimal_value"], 4), found["optimum"]) == (-13.0, -13.0)
