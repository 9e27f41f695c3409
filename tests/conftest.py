"""Marks tests that take long: those of ``slow.txt``, which ``make test-slow`` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

LISTED = Path(__file__).with_name("slow.txt")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is listed; a name that is not found in a file that was collected is an error."""
    listed = {line for line in LISTED.read_text().splitlines() if not line.startswith("#")}
    found = {item.nodeid for item in items}
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.slow)
    if len({name.partition("::")[0] for name in found}) > 100:
        missing = sorted(listed - found)
        if missing:
            raise pytest.UsageError(f"tests/slow.txt lists tests that do not exist: {missing[:3]}")
