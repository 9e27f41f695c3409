"""The stored table of actions that are vectors is the one that the page shows."""

from __future__ import annotations

from pathlib import Path

from research.continuous_actions import ROWS, load, table

PAGE = Path(__file__).parents[2] / "docs/continuous.md"


def test_the_page_shows_what_is_stored() -> None:
    stored = load()
    assert set(stored) <= {row.name for row in ROWS}
    assert table(stored) in PAGE.read_text(encoding="utf-8")


def test_trajectories_are_good_where_they_were_measured() -> None:
    """Medians: a pendulum with any torque near the best, more hours in range than at random."""
    found = {name: [run["greedy"] for run in runs.values()] for name, runs in load().items()}
    for name, values in found.items():
        middle = sorted(values)[len(values) // 2]
        if name.startswith("pendulum"):
            assert middle > -200.0, name
        if name.startswith("glucose"):
            assert middle > 14.0, name
