"""The table of policy gradients is what was measured."""

from __future__ import annotations

from research import policy_gradients


def test_every_row_was_measured_with_the_seeds_it_names():
    stored = policy_gradients.load()
    assert stored.keys() == {row.key for row in policy_gradients.ROWS}
    for row in policy_gradients.ROWS:
        assert set(stored[row.key]) == {str(seed) for seed in range(row.seeds)}


def test_a_run_is_what_a_row_stores():
    """A small row, again."""
    row = policy_gradients.Row("trap:horizon=5", 300, 10.0)
    first, again = policy_gradients.measured(row, 0), policy_gradients.measured(row, 0)
    assert first["value"] == again["value"]
    assert first["steps"] == 300 * 5
