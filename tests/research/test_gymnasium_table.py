"""The table of environments is what was measured, and every row is there."""

import pytest

from research import gymnasium
from research.study import load
from tacit.cli.app import app


def test_ten_environments_at_three_budgets():
    stored = load("gymnasium")
    cells = {gymnasium.key(row, c) for row in gymnasium.ROWS for c in gymnasium.COLUMNS}
    assert len(gymnasium.ROWS) == 10
    assert stored.keys() == cells
    for row in gymnasium.ROWS:
        for column in gymnasium.COLUMNS:
            found = stored[gymnasium.key(row, column)]
            assert found["command"] == row.command(column)
            assert len(found["greedy"]) == len(found["served"]) >= 1
            if found.get("optimum") is not None:
                assert max(found["greedy"]) <= found["optimum"] + 1e-4


@pytest.mark.parametrize("row", gymnasium.ROWS, ids=lambda row: row.name)
def test_a_cells_command_is_one_that_the_program_takes(row):
    import typer

    group = typer.main.get_command(app)
    for column in gymnasium.BUDGETS:
        _, name, *arguments = row.command(column).split()
        context = group.commands[name].make_context(name, arguments, resilient_parsing=False)
        assert context.params["world"] == row.world
        assert context.params["users"] == row.users


def test_a_cell_is_what_the_command_prints():
    """Run 0 of a cell, in a smaller one."""
    from tests.cli.calls import call, entry

    row = gymnasium.Row("CliffWalking-v1", 1, users=50)
    found = gymnasium.measured(row, "not private", range(1))
    printed = entry(call(*row.command("not private").split()[1:], "--json"))
    assert round(printed["runs"][0]["greedy_value"], 4) == found["greedy"][0]
    assert round(printed["runs"][0]["served_value"], 4) == found["served"][0]
    assert (round(printed["optimal_value"], 4), found["optimum"]) == (-13.0, -13.0)
