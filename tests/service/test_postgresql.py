"""The same service on a real PostgreSQL server, and two processes' worth of it on one database."""

import pytest
from sqlalchemy import func, select

from tacit.store import ledger
from tacit.store.schema import events, packets
from tacit.store.store import Store, StoreGone
from tests.service.running import running
from tests.service.test_service import wait_for
from tests.service.world import come, episode, make_app, reads

pytestmark = pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR")


def test_two_services_release_a_block_once(tmp_path, database):
    app = make_app(tmp_path, store=database)
    with running(app) as one, running(app) as two:
        wait_for(lambda: one.service.loop.leads != two.service.loop.leads)
        devices = [one.client(), two.client()]
        body = episode(devices[0].policy(), devices[0]._ticket)
        answers = [device.post("/v1/episodes", body) for device in devices]
        assert answers[0] == answers[1]
        assert come(devices[0], 4) + come(devices[1], 3) == ["waiting"] * 7
        for run in (one, two):
            state = run.wait(lambda s: s["version"] == 1)
            assert (state["served"], state["waiting"]) == (8, 0)
        removed = two.client("curator").post("/v1/forget", {"user": body["user"]})
        assert (removed["removed"], removed["released"], removed["erased"]) == (0, 1, False)
        assert "PostgreSQL keeps what was erased" in removed["remains"]
        one.close()
        # Whoever is left leads, and goes on from what is on disk.
        wait_for(lambda: two.service.loop.leads)
        assert reads(two.client()).version == 1
        assert come(two.client(), 7) == ["waiting"] * 7
        with two.service.store.read() as db:
            fates = db.execute(select(events.c.fate, func.count()).group_by(events.c.fate)).all()
            assert sorted(fates) == [("counted", 8), ("waiting", 7)]
            assert db.scalar(select(func.sum(packets.c.users))) == 7
        assert ledger.verify(two.service.store) == []


def test_a_database_that_does_not_answer_is_one_error():
    with pytest.raises(StoreGone, match="does not answer"):
        Store("postgresql://postgres@127.0.0.1:1/none")
    with pytest.raises(StoreGone, match="cannot be made"):
        Store("/nowhere/at/all.db", patience=0.3)
