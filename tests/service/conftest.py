"""What all tests of the service share."""

from __future__ import annotations

import pytest

from tacit.core import release_loop


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full block waits less long for places that other processes may have taken."""
    monkeypatch.setattr(release_loop, "GRACE", 0.2)
