"""No public name changes by accident."""

from __future__ import annotations

from tests.public_api import RECORD, described


def test_public_names_are_as_recorded():
    """After a change that was meant: ``make public-api``, and a line in the changelog."""
    assert described().splitlines() == RECORD.read_text().splitlines()
