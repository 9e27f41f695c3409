"""The tables of agents that follow gradients are what was measured."""

from __future__ import annotations

import statistics
from pathlib import Path

from research import deep

PAGE = Path(__file__).parents[2] / "docs" / "continuous.md"


def test_the_page_shows_what_is_stored():
    assert deep.table(deep.load()) in PAGE.read_text()


def test_every_row_was_measured_with_the_seeds_it_names():
    stored = deep.load()
    assert stored.keys() == {row.key for row in deep.ROWS}
    for row in deep.ROWS:
        assert set(stored[row.key]) == {str(seed) for seed in range(row.seeds)}


def test_lunar_lander_is_learnt_in_less_than_a_million_steps():
    found = deep.load()[deep.ROWS[0].key].values()
    assert statistics.median(one["value"] for one in found) >= 150.0
    assert max(one["steps"] for one in found) < 1_000_000


def test_a_run_is_what_a_row_stores():
    """A small row, again."""
    row = deep.Row("actor_critic", "trap:horizon=5", 300, 10.0)
    first, again = deep.measured(row, 0), deep.measured(row, 0)
    assert first["value"] == again["value"]
    assert first["steps"] == 300 * 5
