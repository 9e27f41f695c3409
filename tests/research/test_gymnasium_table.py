"""The table of environments is what was measured, and every row is there."""

import pytest

from research import gymnasium
from research.study import load
from tacit.cli.app import app

# Served a little worse than at random: it explores, and far more users are needed.
KNOWN_WORSE = {"Taxi-v4"}


def test_twenty_environments_learn_or_are_refused_or_say_that_they_did_not():
    stored = load("gymnasium")
    cells = {
        gymnasium.key(row, c): row.command(c) for row in gymnasium.ROWS for c in gymnasium.COLUMNS
    }
    assert len(gymnasium.ROWS) == 20
    assert stored.keys() <= cells.keys()
    for key, found in stored.items():
        assert found["command"] == cells[key]
        if "refused" in found:
            assert found["refused"].startswith("observations")
            continue
        assert len(found["greedy"]) == len(found["served"]) >= 1
        if found.get("optimum") is not None:
            assert max(found["greedy"]) <= found["optimum"] + 1e-4
    for row in gymnasium.ROWS:
        found = stored.get(gymnasium.key(row, "epsilon 1"), {})
        if "verdict" in found:  # others were refused, or not run by today's code
            noise = 3.0 * found["error"]  # of values, which are estimates
            worse = min(found["served"]) < found["random"] - noise
            assert worse == (row.name in KNOWN_WORSE)
            assert "not better than random" in found["verdict"] or not worse


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
