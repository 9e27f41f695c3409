"""What all tests of the service share."""

from collections.abc import Iterator

import pytest

from tacit.core import release_loop


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full block waits less long for places that other processes may have taken."""
    monkeypatch.setattr(release_loop, "GRACE", 0.2)


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real PostgreSQL server."""
    pgserver = pytest.importorskip("pgserver", reason="needs pgserver, which ships a PostgreSQL")
    server = pgserver.get_server(tmp_path_factory.mktemp("pg") / "data", cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()
