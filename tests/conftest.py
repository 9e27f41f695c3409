"""Marks tests that take long, those of ``slow.txt``, which ``make test-slow`` runs.

Hypothesis tries the same examples in every run: a test fails by its code, and never by chance.
``HYPOTHESIS_PROFILE=default`` looks for others.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

LISTED = Path(__file__).with_name("slow.txt")

settings.register_profile("steady", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
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
