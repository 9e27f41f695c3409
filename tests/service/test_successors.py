"""A run that goes on past its declared users, in a service and in nightly files."""

import sqlite3
from contextlib import closing

import pytest

from tacit.privacy.errors import InvalidArgument
from tacit.service.app_file import read_app
from tacit.store import ledger
from tacit.store.store import Store
from tests.cli.calls import call
from tests.service.running import running
from tests.service.world import come, episode, make_app, reads

MORE = {"users": "16\nsuccessor = true", "size": 8}


def test_a_run_goes_on_past_its_users(tmp_path):
    app = make_app(tmp_path, **MORE)
    with running(app) as run:
        device = run.client()
        body = episode(reads(device), device._ticket, user="ann", event="1")
        assert device.post("/v1/episodes", body)["status"] == "waiting"
        first = device._ticket
        assert come(device, 7) == ["waiting"] * 7
        run.wait(lambda s: s["version"] == 1)
        assert come(device, 8) == ["waiting"] * 8
        run.wait(lambda s: s["version"] == 2 and s["served"] == 0)
        assert run.service.agent.run_name == "run+"
        # What was taken before is told the same; who came before may come no more.
        assert device.post("/v1/episodes", body)["status"] == "counted"
        late = episode(reads(device), first, user="eve", event="1")
        assert device.post("/v1/episodes", late)["status"] == "late"
        again = episode(reads(device), device._ticket, user="ann", event="2")
        assert device.post("/v1/episodes", again)["status"] == "refused"
        assert device.request("GET", "/v1/policies/1")[0] == 200
        assert come(device, 5) == ["waiting"] * 5
        officer = run.client("officer")
        assert officer.request("GET", "/metrics")[0] == 200
    with running(app) as run:  # and after a restart
        device = run.client()
        assert run.service.agent.run_name == "run+"
        assert device.post("/v1/episodes", body)["status"] == "counted"
        reads(device)
        assert device._ticket.startswith("2.0."), "places that were lost were taken"
    with closing(sqlite3.connect(tmp_path / "app.db")) as db:
        found = db.execute("SELECT run, succeeded, served FROM runs ORDER BY run").fetchall()
    assert found == [("run", 1, 16), ("run+", 0, 0)]
    with Store(tmp_path / "app.db") as store:
        assert ledger.verify(store) == []


def test_two_apps_share_a_store_and_accounts(tmp_path):
    """Both run at once; a person whose budget is for one of them is refused by the other."""
    limit = ("--epsilon", 1, "--delta", 1e-7)
    assert call("ledger", "limit", tmp_path / "app.db", *limit).exit_code == 0
    one, two = (make_app(tmp_path, size=4, name=name) for name in ("nudges", "sleep"))
    with running(one) as first, running(two) as second:
        devices, told = (first.client(), second.client()), []
        for device in devices:
            body = episode(reads(device), device._ticket, user="ann", event="1")
            told.append(device.post("/v1/episodes", body)["status"])
        assert told == ["waiting", "refused"]
        for run, device, more in zip((first, second), devices, (3, 4), strict=True):
            assert come(device, more) == ["waiting"] * more
            assert run.closes(lambda s: s["served"] == 4)["version"] == 1
    with Store(tmp_path / "app.db") as store:
        assert ledger.verify(store) == []


def test_a_successor_is_a_truth_value(tmp_path):
    with pytest.raises(InvalidArgument, match="successor"):
        make_app(tmp_path, users="16\nsuccessor = 3")
    with running(make_app(tmp_path, users=8)) as run:
        device = run.client()
        assert come(device, 8) == ["waiting"] * 8
        run.wait(lambda s: s["served"] == 8)
        reads(device)
        assert device._ticket == "", "without the word a run ends"
    assert not read_app(str(tmp_path / "app.toml"), logs=False).successor
