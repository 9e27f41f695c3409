"""The service over HTTP: who is taken, what is published, and what is refused."""

import contextlib
import json
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tacit.core.agent import Agent
from tacit.privacy import local
from tacit.privacy.errors import InvalidArgument
from tacit.service import intake
from tacit.service.client import Client, Refused
from tacit.service.http import Service, forgotten
from tacit.service.tokens import new_token
from tacit.store import ledger
from tacit.store.runs import Answer
from tacit.store.store import Store, StoreGone
from tests.service.running import running
from tests.service.world import come, episode, make_app, reads, write_app


def rows(folder, question):
    with contextlib.closing(sqlite3.connect(folder / "app.db")) as opened:
        return opened.execute(question).fetchall()


def verified(folder):
    with Store(folder / "app.db") as store:
        return ledger.verify(store)


def test_a_block_is_released_once_and_its_raw_data_is_gone(tmp_path, caplog, capfd):
    caplog.set_level("DEBUG", "tacit.service")
    with running(make_app(tmp_path)) as run:
        device = run.client()
        assert come(device, 8) == ["waiting"] * 8
        state = run.wait(lambda s: s["version"] == 1)
        assert (state["served"], state["waiting"], state["block"]) == (8, 0, 1)
        assert reads(device).version == 1
    assert rows(tmp_path, "SELECT DISTINCT fate FROM events") == [("counted",)]
    assert rows(tmp_path, "SELECT * FROM packets") == []
    assert rows(tmp_path, "SELECT COUNT(*) FROM entries WHERE event = 'release'") == [(1,)]
    assert verified(tmp_path) == []
    # No file and no word of a log has a token.
    said = caplog.text + "".join(capfd.readouterr())
    for token in run.tokens.values():
        assert token not in said
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        assert not any(token.encode() in path.read_bytes() for path in files)


def test_an_event_counts_once_a_ticket_once_and_a_user_once_in_a_block(tmp_path):
    with running(make_app(tmp_path)) as run:
        device = run.client()
        body = episode(device.policy(), device._ticket, user="ann", event="1")
        answers = [device.post("/v1/episodes", body) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        assert answers[0]["status"] == "waiting"
        # Another event for the same place; another event of hers; another user's same event.
        assert device.post("/v1/episodes", body | {"event": "2"})["status"] == "used"
        reads(device)
        second = body | {"event": "3", "ticket": device._ticket}
        assert device.post("/v1/episodes", second)["status"] == "refused"
        reads(device)
        other = body | {"user": "bob", "ticket": device._ticket}
        assert device.post("/v1/episodes", other)["status"] == "waiting"
        assert run.wait(lambda s: True)["waiting"] == 2


def test_reading_a_policy_takes_a_place_unless_it_is_the_same(tmp_path):
    with running(make_app(tmp_path)) as run:
        device = run.client()
        code, first, _ = device.request("GET", "/v1/policy")
        assert (code, bool(first["Tacit-Ticket"])) == (200, True)
        same = {"If-None-Match": first["ETag"]}
        code, again, _ = device.request("GET", "/v1/policy", same)
        assert (code, again["Tacit-Ticket"]) == (304, None)
        code, more, _ = device.request("GET", "/v1/policy?place=1", same)
        assert code == 304
        assert more["Tacit-Ticket"] not in (None, first["Tacit-Ticket"])
        assert run.wait(lambda s: s["places"] == 2)["waiting"] == 0
        # A device keeps a place that it did not use, and takes one for what it sends next.
        client = run.client()
        client.policy()
        kept = client._ticket
        policy = client.policy()
        assert client._ticket == kept
        made = episode(policy, "")
        client.send("ann", made["states"], made["actions"], made["rewards"])
        client.policy()
        assert client._ticket != kept
        assert run.wait(lambda s: s["places"] == 4)["waiting"] == 1


@pytest.mark.parametrize(
    "ticket",
    [
        *("", "0.1.2", "0.1794893035.0b3ef84d669df2beee49dd7d7d53adb1"),
        *("é" * 300, "\ud800", "0\x00"),
    ],
)
def test_forged_tickets_change_nothing(running_once, ticket):
    device = running_once.client()
    body = episode(device.policy(), ticket)
    running_once.service.watch()
    before = running_once.wait(lambda s: True)
    assert device.post("/v1/episodes", body)["status"] == "unknown"
    assert running_once.wait(lambda s: True) == before


@pytest.fixture(scope="module")
def running_once(tmp_path_factory):
    app = make_app(
        tmp_path_factory.mktemp("service"), window=3600, serve="body = 4000\nseconds = 1"
    )
    with running(app) as run:
        yield run


def test_roles_and_tokens(running_once):
    asked = {
        "/v1/policy": {"device"},
        "/v1/state": {"curator", "officer"},
        "/v1/task": {"device", "curator", "officer"},
    }
    for path, roles in asked.items():
        for role in ("device", "curator", "officer"):
            code = running_once.client(role).request("GET", path)[0]
            assert code == (200 if role in roles else 403)
    for token in ("", "x", "tacit-device-00000000-x", running_once.tokens["device"] + "x"):
        assert running_once.client(token=token).request("GET", "/v1/policy")[0] == 401
    forget = running_once.client("device").request("POST", "/v1/forget", {}, b'{"user": "ann"}')
    assert forget[0] == 403


def test_bodies_that_are_none(running_once):
    device = running_once.client()
    good = episode(device.policy(), device._ticket)
    running_once.service.watch()
    before = running_once.wait(lambda s: True)
    wrong = [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"[" * 3000, 422),
        (json.dumps(good | {"states": [0, 1]}).encode(), 422),
        (json.dumps(good | {"user": 7}).encode(), 422),
        (json.dumps(good | {"ticket": None}).encode(), 422),
        (json.dumps(good | {"user": "x" * 201}).encode(), 401),  # so long a name has no token
        (b" " * 4001, 413),
    ]
    for body, code in wrong:
        assert device.request("POST", "/v1/episodes", {}, body)[0] == code, body[:40]
    assert running_once.wait(lambda s: True) == before


def test_a_slow_body_is_not_waited_for(running_once):
    import http.client

    host = running_once.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=600)
    connection.putrequest("POST", "/v1/episodes")
    connection.putheader("Authorization", f"Bearer {running_once.tokens['device']}")
    connection.putheader("Content-Length", "1000")
    connection.endheaders()
    connection.send(b"{")
    assert connection.getresponse().status == 408
    connection.close()


def test_values_never_raise_and_pack_alike():
    form = intake.Form(2, (3, ["a", "b", "c"]), (2, None))
    odd = [10**400, -1, 0.5, True, None, "nobody", [], {}, float("nan"), "a", 2]
    packed = [form.pack({"states": [v] * 3, "actions": [v] * 2, "rewards": [v] * 2}) for v in odd]
    assert len({len(row) for row in packed}) == 1
    made = form.block(packed)
    assert made["states"][:, 0].tolist() == [-1] * 9 + [0, 2]
    assert made["actions"][:, 0].tolist() == [-1] * 10 + [-1]
    finite = np.isfinite(made["rewards"][:, 0]).tolist()
    assert finite == [False, True, True] + [False] * 7 + [True]


def test_who_breaks_a_batch_costs_nobody_else_a_place():
    class Breaks:
        def receive(self, block, people, events, tickets):
            if "bad" in people:
                raise ValueError(*people)
            return [Answer("waiting")] * len(people)

    form, told = intake.Form(1, (2, None), (2, None)), dict[str, Any]()
    agent = SimpleNamespace(intake=Breaks())
    taken = intake.Intake([agent], form)
    packed = form.pack({"states": [0, 1], "actions": [0], "rewards": [1]})
    both = [(intake.Arrival(who, "", "", packed), who) for who in ("good", "bad", "fine")]
    taken._take([(came, lambda answer, w=who: told.update({w: answer})) for came, who in both])
    taken.close()
    assert told == {"good": Answer("waiting"), "bad": None, "fine": Answer("waiting")}
    assert taken.problem == ""


def test_a_window_closes_and_what_comes_later_is_late(tmp_path):
    with running(make_app(tmp_path, size=3)) as run:
        device = run.client()
        slow = episode(device.policy(), device._ticket)
        assert come(device, 2) == ["waiting"] * 2
        # All three places are taken; one of them is not filled, and nobody waits for it for ever.
        state = run.closes(lambda s: s["version"] == 1)
        assert (state["taken"], state["waiting"]) == (3, 0)
        assert device.post("/v1/episodes", slow)["status"] == "late"
    counted = rows(tmp_path, "SELECT COUNT(*) FROM events WHERE fate = 'counted'")
    assert counted == [(2,)]


def traces(folder, packed):
    """Which files of the store hold these bytes."""
    return [f.name for f in sorted(folder.glob("app.db*")) if packed in f.read_bytes()]


REWARDS = [0.123456789, 0.25, 0.625]  # found again byte by byte
PACKED = np.array(REWARDS).tobytes()


def test_forgetting_says_what_is_true_in_each_state(tmp_path):
    with running(make_app(tmp_path)) as run:
        device, curator = run.client(), run.client("curator")
        assert "No episode" in curator.post("/v1/forget", {"user": "ann"})["remains"]
        come(device, 2)
        body = episode(reads(device), device._ticket, user="ann") | {"rewards": REWARDS}
        assert device.post("/v1/episodes", body)["status"] == "waiting"
        come(device, 2)
        assert traces(tmp_path, PACKED)
        found = curator.post("/v1/forget", {"user": "ann"})
        assert (found["removed"], found["released"], found["erased"]) == (1, 0, True)
        assert "What waited of her was erased. A keyed hash of each event stays" in found["remains"]
        assert traces(tmp_path, PACKED) == []
        assert rows(tmp_path, "SELECT person FROM events WHERE fate = 'forgotten'") == [("",)]
        # The same event is not taken again; what she does later is.
        code, _, said = device.request("POST", "/v1/episodes", {}, json.dumps(body).encode())
        told = json.loads(said)
        assert (code, told["status"], told["accepted"]) == (410, "forgotten", False)
        assert traces(tmp_path, PACKED) == []
        assert run.wait(lambda s: True)["waiting"] == 4
        reads(device)
        again = body | {"event": "another", "ticket": device._ticket}
        assert device.post("/v1/episodes", again)["status"] == "waiting"
        # Her first place is empty, and the block is released without it when the window is over.
        come(device, 2)
        state = run.wait(lambda s: s["places"] == 8 or s["block"] == 1)
        assert state["taken"] == 8


def test_what_was_released_is_erased_and_cannot_be_taken_back(tmp_path):
    with running(make_app(tmp_path)) as run:
        device, curator = run.client(), run.client("curator")
        come(device, 1, user="ann", rewards=REWARDS)
        come(device, 7)
        run.wait(lambda s: s["version"] == 1)
        found = curator.post("/v1/forget", {"user": "ann"})
        assert (found["removed"], found["released"], found["erased"]) == (0, 1, True)
        assert "Her raw data was erased when her block was released" in found["remains"]
        assert traces(tmp_path, PACKED) == []


def test_a_log_that_somebody_reads_is_not_called_erased(tmp_path):
    with running(make_app(tmp_path)) as run:
        come(run.client(), 1, user="ann", rewards=REWARDS)
        with run.service.store._turn:
            run.service.store._only.execute("PRAGMA busy_timeout = 50")
        with contextlib.closing(sqlite3.connect(tmp_path / "app.db")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM packets").fetchall()
            found = forgotten(run.service, "ann", "cara")
            assert (found["removed"], found["erased"]) == (1, False)
            assert "still in its write-ahead log" in found["remains"]
            assert traces(tmp_path, PACKED) == ["app.db-wal"]
        found = forgotten(run.service, "ann", "cara")
        assert (found["removed"], found["erased"]) == (0, True)
        assert "write-ahead" not in found["remains"]
        assert traces(tmp_path, PACKED) == []


def test_pin_roll_back_unpin_stop(tmp_path):
    with running(make_app(tmp_path)) as run:
        device, curator = run.client(), run.client("curator")
        come(device, 8)
        first = device._read
        run.wait(lambda s: s["version"] == 1)
        # An older version serves again, under a new number, and goes on serving.
        assert curator.post("/v1/commands", {"what": "pin", "version": 0})["version"] == 2
        pinned = reads(device)
        assert pinned.version == 2
        assert np.array_equal(pinned.actions, first.actions)
        come(device, 8)
        state = run.closes(lambda s: s["latest"] == 3)
        assert (state["version"], state["pinned"]) == (2, True)
        curator.post("/v1/commands", {"what": "unpin"})
        come(device, 8)
        assert run.wait(lambda s: s["latest"] == 4)["version"] == 4
        with pytest.raises(Refused, match="99") as refused:
            curator.post("/v1/commands", {"what": "serve", "version": 99})
        assert refused.value.code == 422
        curator.post("/v1/commands", {"what": "stop"})
        device._tries = 1
        body = episode(first, device._ticket)
        sent = json.dumps(body).encode()
        assert device.request("GET", "/v1/policy")[0] == 503
        assert device.request("POST", "/v1/episodes", {}, sent)[0] == 503
        curator.post("/v1/commands", {"what": "start"})
        assert reads(device).version == 4
    assert verified(tmp_path) == []


def test_what_a_step_raises_is_logged_and_told_by_all_and_goes_on(tmp_path, monkeypatch, caplog):
    app = make_app(tmp_path, size=3)
    with running(app) as one, running(app) as two:
        with monkeypatch.context() as patched:
            patched.setattr(Agent, "step", breaks)
            come(one.client(), 3)
            for run in (one, two):
                device = run.client()
                device._tries = 1
                wait_for(lambda d=device: d.request("GET", "/readyz")[0] == 503)
                told = json.loads(device.request("GET", "/readyz")[2])
                assert told["problem"] == "see /v1/state"
                assert run.client("curator").get("/v1/state")["problem"] == "ZeroDivisionError"
        assert one.wait(lambda s: s["version"] == 1)["served"] == 3
        for run in (one, two):
            wait_for(lambda r=run: r.client().request("GET", "/readyz")[0] == 200)
    lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "tacit.service"]
    failed = [line for line in lines if line["event"] == "failed"]
    assert failed
    assert failed[0]["error"] == "ZeroDivisionError"
    assert "breaks" in failed[0]["at"][-1]
    assert "her name" not in caplog.text


def breaks(agent):
    raise ZeroDivisionError("her name, and 1 / 0")


def wait_for(what, seconds=600.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_ready_means_that_it_can_write(tmp_path, monkeypatch):
    with running(make_app(tmp_path)) as run:
        device = run.client()
        device._tries = 1
        assert device.request("GET", "/readyz")[0] == 200
        with monkeypatch.context() as patched:
            patched.setattr(Store, "write", _full)
            wait_for(lambda: device.request("GET", "/readyz")[0] == 503)
            assert "database" in json.loads(device.request("GET", "/readyz")[2])["problem"]
        wait_for(lambda: device.request("GET", "/readyz")[0] == 200)


@contextlib.contextmanager
def _full(store):
    raise StoreGone("the disk is full")
    yield


def test_devices_add_the_noise_of_all_their_episodes(tmp_path, monkeypatch):
    models, true = list[Any](), local.report

    def report(statistic, block, model):
        models.append(model)
        return true(statistic, block, model)

    monkeypatch.setattr(local, "report", report)
    app = make_app(tmp_path, privacy='model = "local"\nepisodes_per_user = 4', size=5)
    with running(app) as run:
        device = run.client()
        made = episode(device.policy(), "", 0)
        device.send("ann", made["states"], made["actions"], made["rewards"])
    assert models == [app.privacy]


def test_local_reports(tmp_path):
    """Honest devices over several versions: nobody is refused."""
    app = make_app(tmp_path, privacy='model = "local"', size=5)
    with running(app) as run:
        device = run.client()
        for version in range(3):
            for user in range(5):
                policy = device.policy()
                assert policy.version == version
                made = episode(policy, "", user)
                named = f"{version}-{user}"
                told = device.send(named, made["states"], made["actions"], made["rewards"])
                assert told["status"] == "waiting"
            run.wait(lambda s, v=version: s["version"] == v + 1)
        with pytest.raises(Refused, match="reports"):
            device.post("/v1/episodes", made)
        # A report is drawn once for an event, however often it is sent.
        policy, sent, post = reads(device), [], device.post
        given = [episode(policy, "")[name] for name in ("states", "actions", "rewards")]
        device.post = lambda path, body: sent.append(body) or post(path, body)
        for _ in range(2):
            assert device.send("ann", *given, event="1")["status"] == "waiting"
        assert sent[0] == sent[1]
        device.post = post
        reads(device)
        for ticket, report in ((device._ticket, [0.0]), ("0.0.0", [])):
            short = made | {"ticket": ticket, "report": report}
            with pytest.raises(Refused, match="report must be a list of"):
                device.post("/v1/reports", short)


def test_an_agent_that_counts_all_versions_alike(tmp_path):
    """Blocks have exactly as many places as planned, and nobody has one when none is left."""
    with running(make_app(tmp_path, agent="policy_improvement", users=24)) as run:
        device = run.client()
        assert come(device, 24) == ["waiting"] * 24
        made = episode(reads(device), "")
        assert device._ticket == ""
        told = device.send("ann", made["states"], made["actions"], made["rewards"])
        assert (told["status"], told["accepted"]) == ("unasked", False)
        assert run.wait(lambda s: s["served"] == 24)["version"] == 3
    found = rows(tmp_path, "SELECT places, users, stage FROM blocks ORDER BY block")
    assert found[:3] == [(8, 8, "done")] * 3


def test_forms_of_others_are_refused(running_once):
    """Without a cookie, with a forged one, and with a good one but another site's form."""
    device = running_once.client("curator")
    device._headers = {}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    token = running_once.tokens["curator"]
    code, headers, _ = device.request("POST", "/login", form, f"token={token}".encode())
    assert code == 303
    cookie = headers["set-cookie"].partition(";")[0]
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=strict" in headers["set-cookie"]
    name, _, rest = token.removeprefix("tacit-curator-").partition("-")
    assert rest not in cookie
    forged = f"tacit={name}.99999999999.{'0' * 32}"
    for held, body, wanted in (
        ("", b"what=stop", 303),
        (forged, b"what=stop", 303),
        (cookie, b"what=stop", 403),
        (cookie, b"what=stop&csrf=" + b"0" * 32, 403),
    ):
        assert device.request("POST", "/do", form | {"Cookie": held}, body)[0] == wanted
    assert not running_once.wait(lambda s: True)["stopped"]
    device_token = f"token={running_once.tokens['device']}".encode()
    assert device.request("POST", "/login", form, device_token)[0] == 403


def test_too_many_requests_are_told_to_be_slower(tmp_path):
    app = make_app(tmp_path)
    with running(replace(app, serving=replace(app.serving, rate=5))) as run:
        device = run.client()
        device._tries = 1
        codes = [device.request("GET", "/v1/task")[0] for _ in range(40)]
    assert codes[0] == 200
    assert 429 in codes


@pytest.mark.slow
def test_the_command_serves_by_tls_with_two_workers(tmp_path):
    """``tacit serve`` itself, in processes of its own."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", key, "-out", certificate, "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    with socket.create_server(("127.0.0.1", 0)) as made:
        port = made.getsockname()[1]
    names = f'certificate = "{certificate.name}"\ncertificate_key = "{key.name}"\n'
    path = write_app(tmp_path, serve=f"{names}port = {port}\nworkers = 2")
    with Store(tmp_path / "app.db") as store:
        token = new_token(store, "device")
    command = [sys.executable, "-c", "from tacit.cli.app import main; main()", "serve", path]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    context = ssl.create_default_context(cafile=certificate)
    device = Client(f"https://127.0.0.1:{port}", token, tries=100, context=context)
    try:
        for version in (0, 1):
            while device.policy().version < version:
                time.sleep(0.05)
            assert come(device, 8) == ["waiting"] * 8
    finally:
        device.close()
        process.terminate()
        process.wait(600)


def test_another_file_is_refused_by_name_and_stops_nothing(tmp_path):
    other = make_app(tmp_path, file="other.toml", horizon=4)
    with running(make_app(tmp_path)) as run:
        with pytest.raises(InvalidArgument, match="'run' in this store has other arguments"):
            Service(other)
        come(run.client(), 8)
        run.wait(lambda s: s["version"] == 1)
        assert run.client().request("GET", "/readyz")[0] == 200


def test_a_report_is_drawn_once_for_an_event(tmp_path):
    app = make_app(tmp_path, privacy='model = "local"', size=5)
    with running(app) as run:
        device, sent = run.client(), []
        made, post = episode(device.policy(), ""), device.post
        device.post = lambda path, body: sent.append(body) or post(path, body)
        for _ in range(2):
            given = made["states"], made["actions"], made["rewards"]
            assert device.send("ann", *given, event="1")["status"] == "waiting"
    assert sent[0] == sent[1]


def test_scripts_of_named_origins_may_ask(tmp_path):
    with running(make_app(tmp_path, serve='origins = "https://app.example.org"')) as run:
        device = run.client()
        for origin, allowed in (("https://app.example.org", True), ("https://other.org", False)):
            code, headers, _ = device.request("GET", "/v1/policy", {"Origin": origin})
            assert code == 200
            assert (headers["access-control-allow-origin"] == origin) == allowed
        assert "Tacit-Ticket" in headers["access-control-expose-headers"]


def test_metrics_are_public_facts(running_once):
    text = running_once.client().request("GET", "/metrics")[2].decode()
    assert "tacit_version 0" in text
    assert all(token not in text for token in running_once.tokens.values())
