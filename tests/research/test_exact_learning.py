"""What exact noise costs in learning: the stored table, and what the page says of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import tacit
from research import exact_learning
from research.exact_learning import TABLE, Row, gained
from tacit.registry import build_world

PAGE = Path(__file__).parents[2] / "docs" / "noise.md"
ROWS = [Row(**row) for row in json.loads(TABLE.read_text())]


def test_rounding_costs_less_than_a_hundredth_of_what_is_learnt() -> None:
    assert len(ROWS) == len(exact_learning.ROWS)
    for row in ROWS:
        assert row.cost + 3.0 * row.cost_error < 0.01 * row.rounded, row.agent
        assert abs(row.apart) < 4.0 * row.apart_error, row.agent


def test_the_page_has_the_stored_lines() -> None:
    text = PAGE.read_text()
    for row in ROWS:
        assert row.line in text, row.agent


def test_a_coarse_grid_would_be_seen(monkeypatch) -> None:
    world = build_world("riverswim:states=3,horizon=4")
    few = (tacit.UCBVI, world, 600, 0)
    rounded, fine = gained(*few, "rounded"), gained(*few, "fine")
    assert np.isclose(rounded, fine, atol=1e-3)
    monkeypatch.setattr("tacit.privacy.exact.ROUNDING", 30.0)
    assert abs(gained(*few, "rounded") - fine) > 1e-3
