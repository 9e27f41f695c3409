"""A hostile campaign against a service: every byte gets a typed answer, and nothing changes."""

import contextlib
import http.client
import json
import random
import re
import resource
import socket
import time
from collections import Counter

import pytest

from tacit.cli.serve import tools
from tacit.service.entrance import Door
from tacit.store import ledger
from tests.service.people import signed
from tests.service.running import running
from tests.service.test_people import log_in, page
from tests.service.world import come, episode, make_app, reads

TYPED = {200, 202, 303, 304, 400, 401, 403, 404, 405, 408, 409, 410, 413, 422, 429, 431, 503}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    app = make_app(tmp_path_factory.mktemp("attacks"), window=3600, size=50, serve="seconds = 2")
    with running(app, tools()) as made:
        yield made


def connect(run):
    return socket.create_connection(("127.0.0.1", int(run.address.rsplit(":", 1)[1])), timeout=600)


def raw(run, data):
    """Code of the answer to bytes; 0 if the connection was ended without one."""
    with connect(run) as made:
        try:
            made.sendall(data)
            told = made.recv(64)
        except (ConnectionError, BrokenPipeError):
            return 0
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", told)
    return int(found[1]) if found else 0


def send(run, method, path, body, **headers):
    made = http.client.HTTPConnection(run.address.removeprefix("http://"), timeout=600)
    made.request(method, path, body, headers)
    told = made.getresponse()
    found = told.status, told.headers, told.read()
    made.close()
    return found


def test_half_sent_heads_stop_nobody(run):
    """2,100 connections that send half a head, and never the rest."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    held, device = [], run.client()
    for _ in range(2100):
        made = connect(run)
        made.sendall(b"GET /v1/policy HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        held.append(made)
        if len(held) % 300 == 0:
            assert come(device, 1) == ["waiting"]
    assert len(Door.waiting) <= 512
    assert come(device, 1) == ["waiting"]
    for made in held:
        made.close()


def test_slow_and_long_heads_end(run):
    with connect(run) as made:
        made.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        made.settimeout(600)
        assert made.recv(10) == b""  # nobody waits for it
    with connect(run) as made:  # after one request that was well, too
        made.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert made.recv(4096).startswith(b"HTTP/1.1 200")
        made.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        made.settimeout(600)
        with contextlib.suppress(ConnectionError):
            while made.recv(4096):
                pass
    with connect(run) as made:
        made.sendall(b"GET /healthz HTTP/1.1\r\n")
        told = b""
        try:
            for _ in range(4000):
                made.sendall(b"X-Long: " + b"x" * 1000 + b"\r\n")
            told = made.recv(64)
        except ConnectionError:
            pass
        assert told[:12] in (b"", b"HTTP/1.1 431")


VALUES = {
    "4,301 digits": "1" + "0" * 4300,
    "as many below zero": "-1" + "0" * 4300,
    "lists in lists": "[" * 20000 + "]" * 20000,
    "objects in objects": '{"a":' * 9000 + "1" + "}" * 9000,
    "no number": "NaN",
    "too large a number": "1e999",
    "half a letter": '"\\ud800"',
    "a zero byte": '"\\u0000"',
    "a text with brackets": json.dumps("[{" * 3000),
}


@pytest.mark.parametrize("what", [*VALUES])
def test_values_never_decide_who_is_taken(run, what):
    device = run.client()
    for name in ("rewards", "states", "actions"):
        body = episode(reads(device), device._ticket)
        user = body.pop("user")
        text = json.dumps(body | {name: ["@", *body[name][1:]]}).replace('"@"', VALUES[what])
        given = {"Authorization": f"Bearer {signed(user)}"}
        code, _, told = send(run, "POST", "/v1/episodes", text.encode(), **given)
        assert (code, json.loads(told)["status"]) == (202, "waiting")


def test_odd_numbers_and_letters_on_pages(run):
    cookie = log_in(run, run.tokens["curator"]).partition(";")[0]
    content = page(run.address, "/policies", cookie)[2]
    csrf = content.split('name="csrf" value="')[1].split('"')[0]
    odd = ("--5", "5" * 5000, "1e3", "", "-2", b"\xed\xa0\x80", "\u0665" * 40)
    for version in odd:
        form = {"csrf": csrf, "what": "pin", "version": version}
        assert page(run.address, "/do", cookie, form)[0] == 422, version
    for version in ("--5", "5" * 5000, "%ED%A0%80", "1.5", ""):
        for path in (f"/policies/compare?first={version}&second=0", f"/v1/policies/{version}"):
            given = {"Authorization": f"Bearer {run.tokens['device']}", "Cookie": cookie}
            assert send(run, "GET", path, None, **given)[0] in (404, 422), path
    assert page(run.address, "/people", cookie, {"csrf": csrf, "user": b"\xed\xa0\x80"})[0] == 200
    assert page(run.address, "/do", cookie, {"csrf": b"\xed\xa0\x80", "what": "stop"})[0] == 403


def test_nobody_is_sent_to_another_host_and_readyz_says_no_configuration(run):
    for path in ("/v1/policy/", "/policies/", "/login/", "//evil.example/"):
        code, headers, _ = send(run, "GET", path, None, Host="evil.example")
        assert code in (303, 404)
        assert "evil" not in headers.get("Location", "")
    code, headers, _ = send(run, "GET", "/", None, Host="evil.example")
    assert (code, headers["Location"]) == (303, "/login")
    told = json.loads(send(run, "GET", "/readyz", None)[2])
    assert told == {"status": "ready", "problem": ""}


def mangled(rng, token):
    """A request that is nearly one."""
    path = rng.choice(["/v1/policy", "/v1/episodes", "/v1/task", "/login", "/do", "/v1/commands"])
    body = bytes(rng.randrange(256) for _ in range(rng.randrange(60)))
    if rng.random() < 0.5:
        text = '{"user":"\\ud800","event":[],"ticket":%s,"what":"pin","version":--5}'
        body = (text % rng.choice(["1", "null", '"x"', "9" * 5000])).encode()
    said = rng.choice([token, "x.y.z", token[:-1] + "x", "\xff" * 9, ""])
    lines = [
        f"{rng.choice(['GET', 'POST', 'PUT', 'BREW', 'OPTIONS'])} {path} HTTP/1.1",
        f"Host: {rng.choice(['x', 'evil.example', ''])}",
        f"Authorization: Bearer {said}",
        f"Cookie: tacit={said}",
        f"X-Forwarded-For: {rng.choice(['1.2.3.4', 'x' * 99, ',,,'])}",
        f"Content-Length: {rng.choice([len(body), len(body), len(body), '-1', 'x'])}",
    ]
    head = bytearray("\r\n".join(lines).encode("latin-1"))
    for _ in range(rng.choice([0, 0, 1, 3])):
        head[rng.randrange(len(head))] = rng.randrange(256)
    return bytes(head) + b"\r\nConnection: close\r\n\r\n" + body


def campaign(folder, requests):
    """So many mangled requests on loopback; nothing may change, and intake stays up."""
    rng = random.Random(20261118)
    with running(make_app(folder, window=3600, size=10**4), tools()) as run:
        device, codes = run.client(), Counter[int]()
        before = run.wait(lambda s: True)
        for k in range(requests):
            codes[raw(run, mangled(rng, signed("eve")))] += 1
            if k % 5000 == 0:
                assert come(device, 1) == ["waiting"]
        run.service.watch()
        after = run.wait(lambda s: True)
        people = -(-requests // 5000)
        assert after["waiting"] - before["waiting"] == people
        assert after["version"] == before["version"] == 0
        assert ledger.verify(run.service.store) == []
        assert run.service.requests[500] == 0
    assert set(codes) <= TYPED | {0}
    return codes


def test_a_thousand_mangled_requests(tmp_path):
    codes = campaign(tmp_path, 1000)
    # A head that is broken so that no end of it is seen is ended without an answer.
    assert codes[0] < 100


@pytest.mark.slow
def test_a_hundred_thousand_mangled_requests(tmp_path):
    print(campaign(tmp_path, 100_000))  # noqa: T201


def test_a_token_that_is_replayed_changes_nothing(run):
    """Whoever copied a token and a body gets her answer again; after its end, nobody does."""
    device = run.client()
    body = episode(reads(device), device._ticket, user="rita")
    given = {"Authorization": f"Bearer {signed('rita')}"}
    text = json.dumps(body).encode()
    told = {send(run, "POST", "/v1/episodes", text, **given)[2] for _ in range(3)}
    assert len(told) == 1
    old = {"Authorization": f"Bearer {signed('rita', exp=int(time.time()) - 5)}"}
    assert send(run, "POST", "/v1/episodes", text, **old)[0] == 401
