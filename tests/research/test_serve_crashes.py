"""Accidents of a running service: what is stored is on the page, and a few are tried again."""

from __future__ import annotations

import json

import pytest

from research import serve_crashes

pytestmark = pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR")


def test_the_page_has_the_stored_rows_and_nothing_was_wrong() -> None:
    held = json.loads(serve_crashes.STORED.read_text())
    page = serve_crashes.PAGE.read_text()
    for row in serve_crashes.table(held):
        assert row in page
    assert {told["kind"] for told in held.values()} == set(serve_crashes.KINDS)
    for told in held.values():
        assert told["problems"] == []
        assert told["kills"] + told["stops"] + told["ends"] + told["databases"] >= 25
        assert told["accepted"] > 0


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
