"""The same service on a real PostgreSQL server, and two processes' worth of it on one database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tacit.privacy.ledger import Ledger
from tacit.service.store import Fenced, Store, StoreGone

from tests.service.running import running
from tests.service.test_service import come
from tests.service.world import episode, make_app

pytestmark = pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR")
pgserver = pytest.importorskip("pgserver", reason="needs pgserver, which ships a PostgreSQL")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = pgserver.get_server(tmp_path_factory.mktemp("pg") / "data", cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


def test_two_services_release_a_block_once(tmp_path: Path, database: str) -> None:
    app = make_app(tmp_path, serve=f'database = "{database}"')
    with running(app) as one, running(app) as two:
        assert [one.service.curator.leads, two.service.curator.leads] == [True, False]
        devices = [one.client(), two.client()]
        body = episode(devices[0].policy(), devices[0]._ticket)
        answers = [device.post("/v1/episodes", body) for device in devices]
        assert answers[0] == answers[1]
        devices[1].policy()
        told = come(devices[0], 10) + come(devices[1], 9)
        assert told == ["waiting"] * 19
        for run in (one, two):
            state = run.wait(lambda s: s["version"] == 1)
            assert (state["served"], state["waiting"]) == (20, 0)
        removed = two.client("curator").post("/v1/forget", {"user": body["user"]})
        assert (removed["removed"], removed["released"], removed["erased"]) == (0, 1, False)
        assert "PostgreSQL keeps what was erased" in removed["remains"]
        one.close()
        # Whoever is left leads, and goes on from what is on disk.
        two.wait(lambda s: two.service.curator.leads)
        assert come(two.client(), 20) == ["waiting"] * 20
        two.wait(lambda s: s["version"] == 2)
        store = two.service.store
        assert set(store.ask("SELECT state, body FROM episodes")) == {("counted", None)}
    ledger = Ledger.open(tmp_path / "budget.ledger", every_line=True)
    assert sum(ledger.accounts.values()) == 2


def test_who_was_fenced_changes_nothing(database: str) -> None:
    store = Store(database)
    epoch = store.serving()["epoch"]
    with store.change() as change:
        change.put(epoch=epoch + 1)
    with pytest.raises(Fenced), store.change(epoch) as change:
        change.put(version=99)
    assert store.serving()["version"] != 99
    store.close_all()


def test_a_database_that_does_not_answer_is_one_error() -> None:
    with pytest.raises(StoreGone, match="does not answer"):
        Store("postgresql://postgres@127.0.0.1:1/none")
    with pytest.raises(StoreGone, match="does not answer"):
        Store("/nowhere/at/all.db", patience=0.3)
