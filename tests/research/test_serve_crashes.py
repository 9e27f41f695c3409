"""Crashes of a running service: what is stored is on the page, and a few are tried again."""

from __future__ import annotations

import json

import pytest

from research import serve_crashes


def test_the_page_has_the_stored_rows_and_nothing_was_wrong() -> None:
    held = json.loads(serve_crashes.STORED.read_text())
    page = serve_crashes.PAGE.read_text()
    for row in serve_crashes.table(held):
        assert row in page
    for told in held.values():
        assert told["problems"] == []
        assert told["kills"] >= 300
        assert told["leaders"] >= 100
        assert told["accepted"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR")
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_few_crashes(database: str) -> None:
    told = serve_crashes.campaign(database, 12, seed=7)
    assert told.problems == []
    assert told.kills == 12
    assert told.blocks > 0
