"""Late rewards over HTTP: decisions and outcomes that come apart."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from tacit.privacy.errors import InvalidArgument
from tacit.service.app_file import read_app
from tacit.service.client import Refused
from tests.service.running import running
from tests.service.world import episode, make_app, reads, write_app

LATE = "[late]\ndefault_reward = 0.5"


def sends(device, user, ends=3):
    """A person's three decisions, and then some of their outcomes."""
    policy, state = reads(device), "new"
    for step in range(3):
        action = policy.act(step, state)
        told = device.decide("e", step=step, state=state, action=action, user=user, probability=1.0)
        assert told["status"] == "waiting", told
        state = "idle"
    for step in range(ends):
        after = {"next_state": "busy"} if step == 2 else {}
        told = device.outcome("e", step=step, reward=1.0, user=user, **after)
        assert told["status"] == "waiting", told


def test_outcomes_may_come_later_than_decisions(tmp_path):
    with running(make_app(tmp_path, size=3, serve=LATE, window=600)) as run:
        device = run.client()
        for user in ("ann", "bob"):
            sends(device, user)
        sends(device, "cid", ends=2)
        state = run.wait(lambda s: s["waiting"] == 3)
        assert (state["version"], state["served"]) == (0, 0), "an outcome may still come"
        device.outcome("e", step=2, reward=1.0, user="cid", next_state="busy")
        run.wait(lambda s: s["version"] == 1)
        assert device.outcome("e", step=2, reward=1.0, user="cid")["status"] == "closed"
        assert device.outcome("e", step=0, reward=1.0, user="dan")["status"] == "undecided"
        metrics = run.client("curator").request("GET", "/metrics")[2].decode()
    with closing(sqlite3.connect(tmp_path / "app.db")) as db:
        assert db.execute("SELECT COUNT(*) FROM packets").fetchone() == (0,)
        assert db.execute("SELECT fate, COUNT(*) FROM events").fetchall() == [("counted", 3)]
    # How many decisions and outcomes came is no public fact: their answers are not counted.
    assert 'code="409"' not in metrics


def test_what_never_came_has_the_declared_default(tmp_path):
    with running(make_app(tmp_path, size=2, serve=LATE)) as run:
        assert run.service.agent.intake.default_reward == 0.5
        device = run.client()
        sends(device, "ann", ends=0)
        reads(device)
        run.closes(lambda s: s["version"] == 1)
        assert device.outcome("e", step=0, reward=1.0, user="ann")["status"] == "closed"


def test_a_clock_publishes_what_is_there(tmp_path):
    with running(make_app(tmp_path, size=1000, serve='[schedule]\nevery = "1 second"')) as run:
        device = run.client()
        sends(device, "ann")
        state = run.wait(lambda s: s["version"] >= 1)
        assert state["served"] == 1


def test_mistakes_of_form_are_answered_and_change_nothing(tmp_path):
    with running(make_app(tmp_path, agent="concurrent_psrl", size=12)) as run:
        device = run.client()
        policy = reads(device)
        good = {"user": "ann", "event": "e", "ticket": device._ticket, "step": 0, "component": 0}
        good |= {"state": "new", "action": "wait", "version": policy.version}
        wrong = [{"step": s} for s in (-1, 3, "0", True, 0.0, None)]
        wrong += [{"version": 7}, {"component": None}, {"event": ""}, {"ticket": 5}]
        for more in wrong:
            with pytest.raises(Refused) as raised:
                device.post("/v1/decisions", good | more)
            assert raised.value.code == 422
        for name in ("state", "action", "step", "event", "component"):
            with pytest.raises(Refused, match="422"):
                device.post("/v1/decisions", {k: v for k, v in good.items() if k != name})
        with pytest.raises(Refused, match="reward is missing"):
            device.post("/v1/outcomes", {"user": "ann", "event": "e", "step": 0})
        assert device.post("/v1/decisions", good | {"ticket": "0.0.x"})["status"] == "unknown"
        assert run.wait(lambda s: True)["waiting"] == 0
        # Values of all kinds are taken.
        odd = [[], {}, 10**400, -1, "x", None, True, 1e308]
        for user, value in enumerate(odd):
            reads(device)
            mine = good | {"user": str(user), "ticket": device._ticket}
            told = device.post("/v1/decisions", mine | {"state": value, "action": value})
            assert told["status"] == "waiting"
            said = {"user": str(user), "event": "e", "step": 0, "next_state": value}
            told = device.post("/v1/outcomes", said | {"reward": value})
            assert told["status"] == "waiting"
        assert run.wait(lambda s: True)["waiting"] == len(odd)
        described = json.loads(run.client().request("GET", "/v1/openapi.json")[2])
        for path in ("/v1/decisions", "/v1/outcomes"):
            assert described["paths"][path]["post"]["requestBody"]["required"]


def test_whoever_has_a_shared_token_learns_nothing(tmp_path):
    with running(make_app(tmp_path, people="")) as run:
        shared = run.client(token=run.tokens["device"])
        policy = reads(shared)
        body = episode(policy, shared._ticket, user="ann", event="e")
        shared.post("/v1/episodes", body)
        words = [
            shared.decide("e", step=0, state="new", action="wait", user="ann"),
            shared.decide("e", step=0, state="new", action="wait", user="bob"),
            shared.outcome("e", step=0, reward=1.0, user="ann"),
            shared.outcome("e", step=0, reward=1.0, user="eve"),
        ]
        assert [word["status"] for word in words] == ["received"] * 4
        assert len({json.dumps(word) for word in words}) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('[schedule]\nevery = "soon"', "[schedule] every is 'soon'"),
        ("[schedule]\nevery = 3", "[schedule] every is 3"),
        ('[late]\ndefault_reward = "0"', "[late] default_reward is '0'"),
        ("[late]\ndefault = 0", "[late] has no key 'default'"),
    ],
)
def test_mistakes_in_the_file(tmp_path, words, said):
    path = write_app(tmp_path, serve=words)
    with pytest.raises(InvalidArgument) as raised:
        read_app(str(path), logs=False)
    assert said in str(raised.value)
