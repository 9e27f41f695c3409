"""What all tests of the service share."""

from __future__ import annotations

import pytest

from tacit.core import agent


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full block waits less long for places that other processes may have taken."""
    monkeypatch.setattr(agent, "_GRACE", 0.2)
