"""What all tests of the service share."""

import tempfile
from pathlib import Path

import pytest

from tacit.core import release_loop


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A full block waits less long for places that other processes may have taken."""
    monkeypatch.setattr(release_loop, "GRACE", 0.2)


@pytest.fixture(scope="session")
def database():
    """The URL of a real PostgreSQL server; not in pytest's folder, which other runs close to it."""
    pgserver = pytest.importorskip("pgserver", reason="needs pgserver, which ships a PostgreSQL")
    with tempfile.TemporaryDirectory() as folder:
        server = pgserver.get_server(Path(folder) / "pg", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()
