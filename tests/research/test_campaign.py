"""Accidents of a running service, a few of them."""

from __future__ import annotations

import pytest

from research import serve_crashes

pytestmark = pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR")


def test_an_accident_or_two() -> None:
    told = serve_crashes.campaign("sqlite", "joint", 2, seed=7)
    assert told.problems == []
    assert told.releases == told.sums > 0


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("kind", serve_crashes.KINDS)
def test_a_few_accidents(database: str, kind: str) -> None:
    told = serve_crashes.campaign(database, kind, 12, seed=7)
    assert told.problems == []
    assert told.releases > 0
