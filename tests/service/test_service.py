"""The service over HTTP: who is taken, what is published, and what is refused."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jinja2 import UndefinedError

from tacit.privacy.ledger import Ledger
from tacit.service import intake
from tacit.service.client import Client, Refused
from tacit.service.curator import Curator
from tacit.service.http import forgotten
from tacit.service.pages import Visitor, rendered
from tacit.service.store import Store, new_token
from tests.service.running import running
from tests.service.world import episode, make_app, write_app


def rows(folder: Path, question: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(folder / "service.db")) as opened:
        return opened.execute(question).fetchall()


def come(client: Client, users: int, **more: Any) -> list[str]:
    policy = client.policy()
    bodies = [episode(policy, client._ticket, k, **more) for k in range(users)]
    return [client.post("/v1/episodes", body)["status"] for body in bodies]


def test_a_block_is_released_once_and_its_raw_data_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    with running(make_app(tmp_path)) as run:
        device = run.client()
        first = device.policy()
        told = come(device, 20)
        assert told == ["waiting"] * 20
        state = run.wait(lambda s: s["version"] == 1)
        assert (state["served"], state["waiting"], state["block"]) == (20, 0, 1)
        # Who followed the version before is told so.
        late = device.post("/v1/episodes", episode(first, device._ticket))
        assert late["status"] == "retired"
        assert not late["accepted"]
        assert device.policy().version == 1
    assert set(rows(tmp_path, "SELECT state, body FROM episodes")) == {("counted", None)}
    ledger = Ledger.open(tmp_path / "budget.ledger", every_line=True)
    charged = [entry for entry in ledger.entries if entry.costs]
    assert len(charged) == 1
    assert ledger.has(state["ledger_head"])
    # No file and no word of a log has a token.
    said = caplog.text + "".join(capfd.readouterr())
    for token in run.tokens.values():
        assert token not in said
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        assert not any(token.encode() in path.read_bytes() for path in files)


def test_an_event_counts_once_and_a_user_once_in_a_block(tmp_path: Path) -> None:
    with running(make_app(tmp_path)) as run:
        device = run.client()
        body = episode(device.policy(), device._ticket, user="ann", event="1")
        answers = [device.post("/v1/episodes", body) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        assert answers[0]["status"] == "waiting"
        # Another event of hers is one too many; another user's same event is another one.
        assert device.post("/v1/episodes", body | {"event": "2"})["status"] == "refused"
        assert device.post("/v1/episodes", body | {"user": "bob"})["status"] == "waiting"
        assert run.wait(lambda s: True)["waiting"] == 2


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"version": 7}, "unknown"),
        ({"ticket": "0.1794893035.0b3ef84d669df2beee49dd7d7d53adb1"}, "unknown"),
        ({"ticket": None}, "unknown"),
        ({"ticket": "x.y.z"}, "unknown"),
    ],
)
def test_forged_versions_and_tickets_change_nothing(
    running_once: Any, change: dict[str, Any], status: str
) -> None:
    device = running_once.client()
    body = episode(device.policy(), device._ticket) | change
    before = running_once.wait(lambda s: True)
    assert device.post("/v1/episodes", body)["status"] == status
    assert running_once.wait(lambda s: True) == before


@pytest.fixture(scope="module")
def running_once(tmp_path_factory: pytest.TempPathFactory) -> Any:
    app = make_app(tmp_path_factory.mktemp("service"), serve="body = 4000\nseconds = 1")
    with running(app) as run:
        yield run


def test_roles_and_tokens(running_once: Any) -> None:
    asked = {
        "/v1/policy": {"device", "curator"},
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


def test_bodies_that_are_none(running_once: Any) -> None:
    device = running_once.client()
    good = episode(device.policy(), device._ticket)
    before = running_once.wait(lambda s: True)
    wrong: list[tuple[bytes, int]] = [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"[" * 3000, 422),
        (json.dumps(good | {"states": [0, 1]}).encode(), 422),
        (json.dumps(good | {"user": 7}).encode(), 422),
        (json.dumps(good | {"version": True}).encode(), 422),
        (json.dumps(good | {"user": "x" * 201}).encode(), 422),
        (b" " * 4001, 413),
    ]
    for body, code in wrong:
        assert device.request("POST", "/v1/episodes", {}, body)[0] == code, body[:40]
    assert running_once.wait(lambda s: True) == before


def test_a_slow_body_is_not_waited_for(running_once: Any) -> None:
    import http.client

    host = running_once.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.putrequest("POST", "/v1/episodes")
    connection.putheader("Authorization", f"Bearer {running_once.tokens['device']}")
    connection.putheader("Content-Length", "1000")
    connection.endheaders()
    connection.send(b"{")
    assert connection.getresponse().status == 408
    connection.close()


def test_values_never_raise_and_pack_alike() -> None:
    form = intake.Form(2, (3, ["a", "b", "c"]), (2, None))
    odd = [10**400, -1, 0.5, True, None, "nobody", [], {}, float("nan"), "a", 2]
    packed = [form.pack({"states": [v] * 3, "actions": [v] * 2, "rewards": [v] * 2}) for v in odd]
    assert len({len(row) for row in packed}) == 1
    made = form.episodes(packed, [0] * len(odd), [str(k) for k in range(len(odd))])
    assert made.states[:, 0].tolist() == [-1] * 9 + [0, 2]
    assert made.actions[:, 0].tolist() == [-1] * 10 + [-1]
    assert np.isfinite(made.rewards[:, 0]).tolist() == [False, True, True] + [False] * 7 + [True]


def test_a_reward_window_closes_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.service import http

    with running(make_app(tmp_path, serve="window = 60")) as run:
        device, now = run.client(), intake.clock()
        body = episode(device.policy(), device._ticket)
        monkeypatch.setattr(http, "clock", lambda: now + 120)
        assert device.post("/v1/episodes", body)["status"] == "late"
        # A clock that is set back makes nobody late, and stops nothing.
        monkeypatch.setattr(http, "clock", lambda: now - 10**6)
        assert device.post("/v1/episodes", body)["status"] == "waiting"


def traces(folder: Path, packed: bytes) -> list[str]:
    """Which files of the database hold these bytes."""
    return [f.name for f in sorted(folder.glob("service.db*")) if packed in f.read_bytes()]


def test_forgetting_says_what_is_true_in_each_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(make_app(tmp_path)) as run:
        device, curator = run.client(), run.client("curator")
        body = episode(device.policy(), device._ticket, user="ann")
        body["rewards"] = [0.123456789, 0.25, 0.625]  # found again byte by byte
        packed = run.service.form.pack(body)
        assert "No episode" in curator.post("/v1/forget", {"user": "ann"})["remains"]
        # She waits.
        come(device, 5)
        assert device.post("/v1/episodes", body)["status"] == "waiting"
        come(device, 5)
        assert traces(tmp_path, packed)
        found = curator.post("/v1/forget", {"user": "ann"})
        assert (found["removed"], found["released"], found["in_release"]) == (1, 0, 0)
        assert found["erased"]
        assert "What waited of her was erased. A keyed hash of each event stays" in found["remains"]
        assert traces(tmp_path, packed) == []
        assert rows(
            tmp_path,
            "SELECT COUNT(*), MAX(block), MAX(person = event), MAX(body) FROM episodes "
            "WHERE state = 'forgotten'",
        ) == [(1, -1, 1, None)], "a hash of the event, in no block, and no name"
        waiting = run.wait(lambda s: True)["waiting"]
        # The same event is not taken again; what she does later is.
        code, _, said = device.request("POST", "/v1/episodes", {}, json.dumps(body).encode())
        told = json.loads(said)
        assert (code, told["status"], told["accepted"]) == (410, "forgotten", False)
        assert traces(tmp_path, packed) == []
        assert run.wait(lambda s: True)["waiting"] == waiting
        again = body | {"event": "another"}
        assert device.post("/v1/episodes", again)["status"] == "waiting"
        # Her block is sealed, and not released.
        with monkeypatch.context() as patched:
            patched.setattr(Curator, "_release", lambda self, number: _full())
            come(device, 20)
            wait_for(lambda: rows(tmp_path, "SELECT * FROM blocks WHERE state = 'sealed'"))
            found = curator.post("/v1/forget", {"user": "ann"})
            assert (found["removed"], found["released"], found["in_release"]) == (0, 0, 1)
            assert "Her raw data is still here" in found["remains"]
            assert "was erased" not in found["remains"]
            assert traces(tmp_path, packed)
        run.wait(lambda s: s["version"] == 1)
        found = curator.post("/v1/forget", {"user": "ann"})
        assert (found["removed"], found["released"], found["in_release"]) == (0, 1, 0)
        assert "Her raw data was erased when her block was released" in found["remains"]
        assert traces(tmp_path, packed) == []


def _full() -> None:
    raise OSError("the disk is full")


def wait_for(what: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_a_log_that_somebody_reads_is_not_called_erased(tmp_path: Path) -> None:
    with running(make_app(tmp_path)) as run:
        device = run.client()
        body = episode(device.policy(), device._ticket, user="ann")
        packed = run.service.form.pack(body)
        assert device.post("/v1/episodes", body)["status"] == "waiting"
        store = run.service.store
        store.ask("PRAGMA busy_timeout = 50")  # of this thread's connection
        with contextlib.closing(sqlite3.connect(tmp_path / "service.db")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM episodes").fetchall()
            found = forgotten(run.service, "ann")
            assert (found["removed"], found["erased"]) == (1, False)
            assert "still in its write-ahead log" in found["remains"]
            assert traces(tmp_path, packed) == ["service.db-wal"]
        found = forgotten(run.service, "ann")
        assert (found["removed"], found["erased"]) == (0, True)
        assert "write-ahead" not in found["remains"]
        assert traces(tmp_path, packed) == []


def test_pin_roll_back_unpin_stop(tmp_path: Path) -> None:
    with running(make_app(tmp_path)) as run:
        device, curator = run.client(), run.client("curator")
        come(device, 20)
        run.wait(lambda s: s["version"] == 1)
        come(device, 5)  # who waits is released before another version serves
        curator.post("/v1/commands", {"what": "pin", "version": 0})
        state = run.wait(lambda s: s["pinned"])
        assert (state["version"], state["served"], state["waiting"]) == (0, 25, 0)
        come(device, 20)
        state = run.wait(lambda s: s["served"] == 45)
        assert (state["version"], state["newest"]) == (0, 3)
        curator.post("/v1/commands", {"what": "unpin"})
        run.wait(lambda s: not s["pinned"])
        come(device, 20)
        assert run.wait(lambda s: s["served"] == 65)["version"] == 4
        curator.post("/v1/commands", {"what": "serve", "version": 99})
        curator.post("/v1/commands", {"what": "stop"})
        assert device.request("GET", "/v1/policy")[0] == 503
        device._tries = 1
        assert (
            device.request(
                "POST",
                "/v1/episodes",
                {},
                json.dumps(episode(device._policy, device._ticket)).encode(),
            )[0]
            == 503
        )
        curator.post("/v1/commands", {"what": "start"})
        assert device.policy().version == 4
    asked = rows(tmp_path, "SELECT what, state FROM commands ORDER BY id")
    states = [("pin", "done"), ("unpin", "done"), ("serve", "failed")]
    assert asked == [*states, ("stop", "done"), ("start", "done")]


def test_a_service_goes_on_after_an_end(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    with running(app) as run:
        come(run.client(), 30)
    with running(app) as run:
        # The block was full when it ended, or is released now; nobody is lost.
        assert run.wait(lambda s: s["served"] >= 20)["served"] + 0 in (20, 30)


def test_a_first_start_that_was_cut_off(tmp_path: Path) -> None:
    """A ledger that was begun, and no state: set aside. One that somebody paid on: refused."""
    app = make_app(tmp_path)
    app.agent()
    (tmp_path / "agent.state").unlink()
    ledger = tmp_path / "budget.ledger"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(lines[:2]))
    with running(app) as run:
        come(run.client(), 20)
        run.wait(lambda s: s["version"] == 1)
    for path in (tmp_path / "agent.state", *tmp_path.glob("service.db*")):
        path.unlink()
    with running(app) as run:
        assert "another run's" in run.wait(lambda s: s["problem"])["problem"]


@pytest.mark.parametrize("what", ["state", "ledger", "database"])
def test_older_copies_are_refused(tmp_path: Path, what: str) -> None:
    app = make_app(tmp_path)
    names = {"state": "agent.state", "ledger": "budget.ledger", "database": "service.db"}
    path = tmp_path / names[what]
    with running(app) as run:
        come(run.client(), 20)
        run.wait(lambda s: s["version"] == 1)
    copy = path.read_bytes()
    with running(app) as run:
        come(run.client(), 20)
        run.wait(lambda s: s["version"] == 2)
    for more in tmp_path.glob(f"{path.name}-*"):
        more.unlink()  # what SQLite keeps beside the file belongs to the newer one
    path.write_bytes(copy)
    charged = lines_with_costs(tmp_path)
    with running(app) as run:
        run.wait(lambda s: s["problem"])
        come(run.client(), 20)
        assert run.wait(lambda s: s["problem"])["version"] == (1 if what == "database" else 2)
        assert run.client().request("GET", "/readyz")[0] == 503
    assert lines_with_costs(tmp_path) == charged


def lines_with_costs(folder: Path) -> int:
    text = (folder / "budget.ledger").read_text().splitlines()[1:]
    return sum(bool(json.loads(line)["costs"]) for line in text)


def test_local_reports(tmp_path: Path) -> None:
    app = make_app(tmp_path, privacy='model = "local"', size=10)
    with running(app) as run:
        device = run.client()
        for version in (0, 1):
            policy = device.policy()
            assert policy.version == version
            for user in range(10):
                made = episode(policy, "", user)
                told = device.send(
                    f"{version}-{user}", made["states"], made["actions"], made["rewards"]
                )
                assert told["status"] == "waiting"
            run.wait(lambda s, v=version: s["version"] == v + 1)
        with pytest.raises(Refused, match="reports"):
            device.post("/v1/episodes", made)
    # Only noisy vectors were ever stored, and they are gone too.
    assert set(rows(tmp_path, "SELECT body FROM episodes")) == {(None,)}


def test_an_agent_that_counts_all_versions_alike(tmp_path: Path) -> None:
    """Blocks are exactly as large as planned; whoever comes meanwhile is in the next one, and
    nobody is taken for whom no block is left.
    """
    with running(make_app(tmp_path, agent="policy_improvement", users=60)) as run:
        device = run.client()
        first = device.policy()
        told = [
            device.post("/v1/episodes", episode(first, device._ticket, k))["status"]
            for k in range(65)
        ]
        assert told.count("waiting") == 60
        assert told[60:] == ["ended"] * 5
        assert run.wait(lambda s: s["served"] == 60)["version"] == 3
    found = rows(tmp_path, "SELECT users, state FROM blocks ORDER BY number")
    assert found == [(20, "released")] * 3
    sizes = rows(tmp_path, "SELECT block, COUNT(*) FROM episodes GROUP BY block ORDER BY block")
    assert sizes == [(0, 20), (1, 20), (2, 20)]


def test_scripts_of_named_origins_may_ask(tmp_path: Path) -> None:
    with running(make_app(tmp_path, serve='origins = "https://app.example.org"')) as run:
        device = run.client()
        for origin, allowed in (("https://app.example.org", True), ("https://other.org", False)):
            code, headers, _ = device.request("GET", "/v1/policy", {"Origin": origin})
            assert code == 200
            assert (headers["access-control-allow-origin"] == origin) == allowed
        assert "Tacit-Ticket" in headers["access-control-expose-headers"]


def test_metrics_are_public_facts(running_once: Any) -> None:
    text = running_once.client().request("GET", "/metrics")[2].decode()
    assert "tacit_version 0" in text
    secret = running_once.service.seen.serving["secret"]
    assert secret not in text
    assert all(token not in text for token in running_once.tokens.values())


def test_forms_of_others_are_refused(running_once: Any) -> None:
    """Without a cookie, with a forged one, and with a good one but another site's form."""
    device = running_once.client()
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


def test_too_many_requests_are_told_to_be_slower(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    slow = replace(app, serving=replace(app.serving, rate=5))
    with running(slow) as run:
        device = run.client()
        device._tries = 1
        codes = [device.request("GET", "/v1/task")[0] for _ in range(40)]
    assert codes[0] == 200
    assert 429 in codes


@pytest.mark.slow
def test_the_command_serves_by_tls_with_two_workers(tmp_path: Path) -> None:
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
    store = Store(str(tmp_path / "service.db"))
    token = new_token(store, "device")
    store.close_all()
    command = [sys.executable, "-c", "from tacit.cli.app import main; main()", "serve", path]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    context = ssl.create_default_context(cafile=certificate)
    device = Client(f"https://127.0.0.1:{port}", token, tries=100, context=context)
    try:
        for version in (0, 1):
            while device.policy().version < version:
                time.sleep(0.05)
            assert come(device, 20) == ["waiting"] * 20
    finally:
        device.close()
        process.terminate()
        process.wait(60)


def test_pages_escape_what_is_not_theirs_and_lack_nothing():
    who = Visitor("name", "officer", "mark")
    given = {"first": 0, "second": 1}
    page = rendered("compare", "<i>", who, found={"same": False, "words": "<b>"}, **given)
    assert "They differ: &lt;b&gt;" in page
    assert "<h1>&lt;i&gt;</h1>" in page
    assert "<b>" not in page
    with pytest.raises(UndefinedError, match="found"):
        rendered("compare", "what differs", who, **given)
