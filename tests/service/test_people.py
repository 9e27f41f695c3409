"""Who is who: people by their own tokens, and what nobody else learns of them."""

import base64
import contextlib
import functools
import hashlib
import hmac
import http.client
import http.server
import json
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.service.check import checked
from tacit.service.identity import client_of, networks
from tacit.service.tokens import new_token, revoke_token
from tacit.store import ledger
from tests.service.people import KEY, as_person, public, signed
from tests.service.running import running
from tests.service.world import episode, make_app, reads

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SHARED = {"people": ""}  # an app in which nobody has a token of her own


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with running(make_app(tmp_path_factory.mktemp("people"), window=3600)) as made:
        yield made


def answer(run, token, body):
    code, _, told = run.client(token=token).request(
        "POST", "/v1/episodes", {}, json.dumps(body).encode()
    )
    return code, told


def fresh(run, seed=0, **more):
    """An episode with a place of its own."""
    device = run.client()
    return episode(reads(device), device._ticket, seed, **more)


def by_hand(header, claims, key):
    """A token as nobody's library makes it."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(x).encode()).rstrip(b"=") for x in (header, claims)
    ]
    mark = hmac.digest(key, b".".join(parts), hashlib.sha256) if key else b""
    return b".".join([*parts, base64.urlsafe_b64encode(mark).rstrip(b"=")]).decode()


def forged():
    claims = {"sub": "ann", "aud": "tests", "exp": int(time.time()) + 3600}
    raw = KEY.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    good, other = signed("ann"), Ed25519PrivateKey.generate()
    return {
        "no algorithm": by_hand({"alg": "none", "kid": "one"}, claims, b""),
        "the public key as a secret": by_hand({"alg": "HS256", "kid": "one"}, claims, raw),
        "another key": signed("ann", other),
        "a key that is not known": signed("ann", other, "two"),
        "too old": signed("ann", exp=int(time.time()) - 1),
        "for another app": signed("ann", aud="games"),
        "for an app in a dictionary": signed("ann", aud={"tests": 1}),
        "of a later hour": signed("ann", iat=int(time.time()) + 900),
        "for ever": by_hand({"alg": "EdDSA", "kid": "one"}, {"sub": "ann", "aud": "tests"}, raw),
        "of nobody": signed(""),
        "of a number": signed(7),
        "of too long a name": signed("x" * 201),
        "of a king": signed("ann", tacit_role="king"),
        "not yet": signed("ann", nbf=int(time.time()) + 900),
        "cut": good[:-4],
        "with other claims": ".".join(
            [good.split(".")[0], signed("bob").split(".")[1], good.split(".")[2]]
        ),
        "long": good + "x" * 9000,
        "nested": by_hand({"alg": "EdDSA", "kid": {"a": [1]}}, claims, raw),
    }


@pytest.mark.filterwarnings("ignore")  # the library that forges warns of what it does
@pytest.mark.parametrize("what", [*forged()])
def test_forged_tokens_are_nobodys(run, what):
    token = forged()[what]
    for path in ("/v1/policy", "/v1/state", "/v1/task"):
        assert run.client(token=token).request("GET", path)[0] == 401
    body = fresh(run, user="ann", event=what)
    assert answer(run, token, body)[0] == 401


def test_a_person_gets_her_own_answer_and_nobody_elses(run):
    ann, bob = signed("ann"), signed("bob")
    body = fresh(run, event="1")
    del body["user"]  # the token says who she is
    assert json.loads(answer(run, ann, body)[1])["status"] == "waiting"
    assert json.loads(answer(run, ann, body | {"user": "ann"})[1])["status"] == "waiting"
    second = fresh(run, user="ann", event="2")
    assert json.loads(answer(run, ann, second)[1])["status"] == "refused"
    # Bob learns nothing of Ann: who took part and who did not get him the same bytes.
    asked = [fresh(run, user=user, event="1") for user in ("ann", "nobody")]
    told = {answer(run, bob, body | {"ticket": asked[0]["ticket"]}) for body in asked}
    assert {code for code, _ in told} == {403}
    assert len(told) == 1


def requests_of_a_stranger(run):
    """Of people who took part and who did not, with tickets that are good, used, forged, late."""
    known, new = fresh(run, user="ann", event="1"), fresh(run, user="zoe", event="1")
    return [
        known,
        new,
        known | {"event": "2"},
        new | {"user": "ann"},
        known | {"ticket": "0.0.x"},
        new | {"ticket": "0.0.x"},
        fresh(run, user="ann", event="9", rewards=[10**300, None, []]),
    ]


@pytest.mark.parametrize("identity", [True, False])
def test_a_shared_token_gets_the_same_answer_whoever_took_part(tmp_path, identity):
    with running(make_app(tmp_path, window=3600, **({} if identity else SHARED))) as run:
        token = run.tokens["device"]
        first = fresh(run, user="ann", event="1")
        answer(run, signed("ann") if identity else token, first)
        told = [answer(run, token, body) for body in [first, *requests_of_a_stranger(run)]]
        assert len(set(told)) == 1
        assert (told[0][0], json.loads(told[0][1])["status"]) == (202, "received")
        state = run.wait(lambda s: True)
        if identity:
            assert state["waiting"] == 1  # nobody used up anything of anybody
            ann = answer(run, signed("zoe"), fresh(run, user="zoe", event="1"))
            assert json.loads(ann[1])["status"] == "waiting"
        else:
            assert state["waiting"] == 2
            assert "token of her own" in {k: w for k, _, w in checked(run.service.app)}["people"]


def test_roles_of_people(run):
    for role in ("device", "curator", "officer"):
        client = run.client(token=signed("eve", tacit_role=role))
        assert client.request("GET", "/v1/state")[0] == (403 if role == "device" else 200)
        assert client.request("GET", "/v1/policy")[0] == (200 if role == "device" else 403)


def test_a_person_takes_a_few_places_and_leaves_others_theirs(tmp_path):
    with running(make_app(tmp_path, size=100)) as run:
        greedy = run.client(token=signed("eve"))
        got = [
            greedy.request("GET", "/v1/policy?place=1")[1]["Tacit-Ticket"] is not None
            for _ in range(7)
        ]
        assert got == [True] * 4 + [False] * 3
        assert run.client(token=signed("ann")).request("GET", "/v1/policy")[1]["Tacit-Ticket"]


def test_limits_are_of_a_person_and_of_an_address_that_a_proxy_says(tmp_path):
    people = 'jwks = "people.json"\naudience = "tests"\nperson_rate = 1'
    app = make_app(tmp_path, people=people, serve='proxies = "10.0.0.0/8"')
    with running(app) as run:
        eve, ann = run.client(token=signed("eve")), run.client(token=signed("ann"))
        eve._tries = 1
        said = [{"X-Forwarded-For": f"192.0.2.{i}"} for i in range(9)]
        seen = [eve.request("GET", "/v1/task", headers)[0] for headers in said]
        assert 429 in seen  # however many addresses she says that she has
        assert ann.request("GET", "/v1/task")[0] == 200


@pytest.mark.parametrize(
    ("peer", "forwarded", "proxies", "wanted"),
    [
        ("192.0.2.1", "198.51.100.7", "", "192.0.2.1"),  # from anywhere: not believed
        ("10.0.0.1", "198.51.100.7", "10.0.0.0/8", "198.51.100.7"),
        ("10.0.0.1", "6.6.6.6, 198.51.100.7", "10.0.0.0/8", "198.51.100.7"),
        ("10.0.0.1", "198.51.100.7, 10.2.3.4", "10.0.0.0/8", "198.51.100.7"),
        ("10.0.0.1", "nonsense", "10.0.0.0/8", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.0/8", "10.0.0.1"),
        ("10.0.0.1", "2001:db8::1", "10.0.0.0/8", "2001:db8::/64"),
        ("2001:db8::5", "", "", "2001:db8::/64"),
    ],
)
def test_who_asks(peer, forwarded, proxies, wanted):
    assert client_of([*forwarded.split(","), peer], networks(proxies)) == wanted


def page(address, path, cookie="", form=None, **headers):
    """A page as a browser asks for it; code, headers and content."""
    made = http.client.HTTPConnection(address.removeprefix("http://"), timeout=600)
    body = None if form is None else urlencode(form)
    sent = ({} if form is None else FORM) | ({"Cookie": cookie} if cookie else {}) | headers
    made.request("GET" if form is None else "POST", path, body, sent)
    found = made.getresponse()
    told = found.status, found.headers, found.read().decode()
    made.close()
    return told


def log_in(run, token, **headers):
    code, found, _ = page(run.address, "/login", "", {"token": token}, **headers)
    assert code == 303
    return found["Set-Cookie"]


@pytest.mark.parametrize("person", [True, False])
def test_a_session_ends_when_she_logs_out_in_every_process(tmp_path, person):
    app = make_app(tmp_path)
    with running(app) as one, running(app) as two:
        role = {"tacit_role": "officer"}
        token = signed("olga", **role) if person else new_token(one.service.store, "officer")
        for run in (one, two):
            run.service.watch()
        cookie = log_in(one, token).partition(";")[0]
        for run in (two, one):
            assert page(run.address, "/officer", cookie)[0] == 200
        content = page(one.address, "/officer", cookie)[2]
        csrf = content.split('name="csrf" value="')[1].split('"')[0]
        assert page(one.address, "/logout", cookie, {"csrf": csrf})[0] == 303
        two.service.watch()
        for run in (one, two):
            assert page(run.address, "/officer", cookie)[0] == 303  # whoever kept it
        with one.service.store.read() as db:
            did = [e.body["what"] for e in ledger.read(db) if e.event == "staff"]
        assert did == ["log in", "log out"]
        if not person:
            cookie = log_in(one, token).partition(";")[0]
            revoke_token(one.service.store, token.split("-")[2])
            one.service.watch()
            assert page(one.address, "/", cookie)[0] == 303


def test_cookies_are_secure_behind_a_proxy_and_nobody_else_says_so(tmp_path):
    said = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "198.51.100.7"}
    with running(make_app(tmp_path)) as run:
        token = run.tokens["curator"]
        assert "Secure" not in log_in(run, token, **said)  # a stranger's word
        assert page(run.address, "/login", **said)[1]["Strict-Transport-Security"] is None
    with running(make_app(tmp_path, serve='proxies = "127.0.0.1"')) as run:
        token = run.tokens["curator"]
        assert "Secure" in log_in(run, token, **said)
        assert page(run.address, "/login", **said)[1]["Strict-Transport-Security"]
        plain = said | {"X-Forwarded-Proto": "http"}
        assert page(run.address, "/login", **plain)[1]["Strict-Transport-Security"] is None


def test_a_proxy_that_knows_people_sends_their_tokens(run):
    token = {"Authorization": f"Bearer {signed('olga', tacit_role='officer')}"}
    assert page(run.address, "/officer", **token)[0] == 200
    assert page(run.address, "/officer", **as_person("ann"))[0] == 403
    assert page(run.address, "/officer")[0] == 303


def test_what_curators_and_officers_did_is_in_the_ledger(tmp_path):
    with running(make_app(tmp_path)) as run:
        curator = run.client(token=signed("cara", tacit_role="curator"))
        curator.post("/v1/commands", {"what": "stop"})
        curator.post("/v1/commands", {"what": "start"})
        curator.post("/v1/forget", {"user": "ann of all people"})
        with run.service.store.read() as db:
            did = [entry.body for entry in ledger.read(db) if entry.event == "staff"]
        assert [(one["by"], one["what"]) for one in did] == [
            ("cara", "stop"),
            ("cara", "start"),
            ("cara", "forget"),
        ]
        assert "ann of all people" not in json.dumps(did)
        assert ledger.verify(run.service.store) == []


class Issuer(http.server.BaseHTTPRequestHandler):
    """An issuer of OpenID Connect: what it says of itself, and its keys."""

    def __init__(self, keys, *given):
        self.keys = keys
        super().__init__(*given)

    def do_GET(self):
        here = f"http://127.0.0.1:{self.server.server_port}"
        found = {
            "/.well-known/openid-configuration": {"issuer": here, "jwks_uri": f"{here}/keys"},
            "/keys": {"keys": self.keys},
        }[self.path]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def issuer(keys):
    handler = functools.partial(Issuer, keys)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_issuer_says_its_keys_and_changes_them(tmp_path):
    second, secret = Ed25519PrivateKey.generate(), {"kty": "oct", "kid": "s", "k": "c2VjcmV0"}
    keys = [public(), secret]
    with issuer(keys) as here:
        people = f'issuer = "{here}"\naudience = "tests"'
        with running(make_app(tmp_path, people=people)) as run:
            ann = signed("ann", iss=here)
            assert run.client(token=ann).request("GET", "/v1/policy")[0] == 200
            for wrong in (signed("ann"), signed("ann", iss="https://others.example")):
                assert run.client(token=wrong).request("GET", "/v1/policy")[0] == 401
            claims = {"sub": "ann", "aud": "tests", "iss": here, "exp": int(time.time()) + 60}
            shared = by_hand({"alg": "HS256", "kid": "s"}, claims, b"secret")
            assert run.client(token=shared).request("GET", "/v1/policy")[0] == 401
            keys[:] = [public(second, "two")]
            new = signed("ann", second, "two", iss=here)
            assert run.client(token=new).request("GET", "/v1/policy")[0] == 401
            identity = run.service.identity
            assert identity is not None
            identity._fetched -= 20.0  # some seconds later
            identity.refresh()
            assert run.client(token=new).request("GET", "/v1/policy")[0] == 200
            assert run.client(token=ann).request("GET", "/v1/policy")[0] == 401


def test_the_page_says_what_was_measured_of_times():
    root = Path(__file__).parents[2]
    found = json.loads((root / "research" / "membership.json").read_text())
    page = (root / "docs" / "access.md").read_text()
    held, control = found["held"], found["control"]
    assert held["p"] > 0.01 > control["p"]
    assert abs(held["chance"] - 0.5) < held["would_show"] - 0.5
    words = f"chance {held['chance']:.3f} (0.5: no difference; p = {held['p']:.2f})"
    assert f"{words}; {held['would_show']:.3f} would be seen" in page
    assert f"chance is {control['chance']:.3f} (p = {control['p']:.0e})" in page
