"""Signed policies, read in Python with and without cryptography, under Node and in Chromium."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import published
from tacit.privacy.errors import InvalidArgument
from tacit.service.app_file import read_app
from tacit.service.client import Client
from tacit.service.sealing import public_keys, secret, sign_file, signed
from tacit.store.store import Store
from tests.cli.calls import call, one_line
from tests.node import node
from tests.service.people import signed as token_of
from tests.service.running import running
from tests.service.test_javascript import CHROMIUM, DRIVER, browser, files
from tests.service.world import come, make_app, reads, write_app

__all__ = ["browser", "files"]  # fixtures
CLIENTS = Path(__file__).parents[2] / "clients"
OLD, NEW, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in (1, 2, 3))
(OLD_KEY, NEW_KEY, OTHER_KEY) = public_keys([OLD, NEW, OTHER])


def write_key(path, key):
    kinds = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, *kinds))
    path.chmod(0o600)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A policy that a service signed with both keys, as when they rotate."""
    folder = tmp_path_factory.mktemp("signed")
    for name, key in (("old.pem", OLD), ("new.pem", NEW)):
        write_key(folder / name, key)
    app = make_app(folder, store='app.db"\nsigning = "new.pem old.pem')
    with running(app) as run:
        come(run.client(), 8)
        run.wait(lambda s: s["version"] == 1)
        device = Client(run.address, token_of("ann"), keys=[OLD_KEY])
        assert device.policy().version == 1
        device.close()
        refuses = Client(run.address, token_of("bob"), keys=[OTHER_KEY])
        with pytest.raises(ValueError, match="no key that is trusted"):
            refuses.policy()
        refuses.close()
        return bytes(run.client().request("GET", "/v1/policy")[2])


def tampered(policy):
    """Whoever changes it makes the hash fit, and has the signatures that are there."""
    held = json.loads(policy)
    actions = held["arrays"]["actions"]["data"]
    actions[0] = 1 - actions[0]
    arrays = {k: v for k, v in held["arrays"].items() if k != "signatures"}
    held["arrays"]["hash"]["data"] = [module().digest(arrays)]
    marks = held["arrays"]["signatures"]["data"]
    longer = json.loads(policy)
    mine = f"{OLD_KEY}:{'0' * 128}"
    longer["arrays"]["signatures"] = {"dtype": "text", "shape": [1], "data": [mine]}
    assert len(marks) == 2
    return {
        "another action": json.dumps(held).encode(),
        "another signature": json.dumps(longer).encode(),
        "another's key": signed(json.dumps(held).encode(), [OTHER]),
    }


def module():
    """The client that needs Python alone."""
    spec = importlib.util.spec_from_file_location("client_policy", CLIENTS / "python/policy.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def by_python(policy, keys):
    try:
        return published.signer(policy, keys)
    except ValueError:
        return ""


def by_python_alone(policy, keys):
    return str(module().parse(policy.decode()).signer(keys))


def by_node(policy, keys):
    return str(node("check_signer.mjs", given={"policy": policy.decode(), "keys": keys}))


def verdicts(check, policy):
    assert check(policy, [OLD_KEY]) == OLD_KEY
    assert check(policy, [NEW_KEY]) == NEW_KEY
    assert check(policy, [OTHER_KEY]) == ""
    assert check(policy, []) == ""
    for what, other in tampered(policy).items():
        assert check(other, [OLD_KEY, NEW_KEY]) == "", what


@pytest.mark.parametrize("check", [by_python, by_python_alone, by_node])
def test_who_signed_a_policy(check, policy):
    verdicts(check, policy)


IN_PAGE = """
const done = arguments[arguments.length - 1];
import("/policy.js").then(({ parse }) => parse(arguments[0]).signer(arguments[1])).then(done)
  .catch((error) => done(String(error)));
"""


@pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs Chromium and its driver: apt-get install -y chromium chromium-driver",
)
def test_who_signed_a_policy_in_a_browser(browser, files, policy):
    browser.get(f"{files}/README.md")
    verdicts(lambda text, keys: browser.execute_async_script(IN_PAGE, text.decode(), keys), policy)


def test_ed25519_of_python_alone_is_that_of_a_library():
    verify = module()._ed25519
    for i in range(20):
        key = Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32)
        public, text = key.public_key().public_bytes_raw(), b"x" * i
        mark = key.sign(text)
        assert verify(public, mark, text)
        assert not verify(public, mark, text + b"y")
        assert not verify(public, mark[:32] + bytes(32), text)
        assert not verify(public, bytes([mark[0] ^ 1]) + mark[1:], text)
        order = (int.from_bytes(mark[32:], "little") + 2**252) % 2**256
        assert not verify(public, mark[:32] + order.to_bytes(32, "little"), text)


def test_files_are_signed_and_verified_by_the_command(tmp_path):
    write_key(tmp_path / "key.pem", OLD)
    agent = make_app(tmp_path).agent(files=False)
    path = tmp_path / "policy.json"
    agent.publish(path, force=True)
    sign_file(path, "key.pem", tmp_path)
    said = call("policy", "verify", path, "--key", OLD_KEY)
    assert said.exit_code == 0
    assert OLD_KEY[:16] in said.stdout
    refused = one_line(call("policy", "verify", path, "--key", OTHER_KEY))
    assert "no key that is trusted" in refused
    assert published.load(path).version == 0
    with pytest.raises(InvalidArgument, match="as JSON"):
        sign_file(tmp_path / "policy.npz", "key.pem", tmp_path)


def test_secrets_lie_apart_from_the_store(tmp_path, monkeypatch):
    """Whoever has the database alone has no key of its hashes, and nothing raw."""
    monkeypatch.setenv("TACIT_TEST_KEY", Fernet.generate_key().decode())
    app = make_app(tmp_path, store='app.db"\nkey = "env:TACIT_TEST_KEY')
    with running(app) as run:
        assert come(run.client(), 3) == ["waiting"] * 3
        key = run.service.store._key
        device = run.client()
        reads(device)
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("app.db*"))
    assert key not in held
    with Store(tmp_path / "app.db") as bare, pytest.raises(InvalidArgument, match="closed"):
        bare.pseudonyms(["ann"])
    monkeypatch.setenv("TACIT_TEST_KEY", Fernet.generate_key().decode())
    with pytest.raises(InvalidArgument, match="another key"):
        app.open()


def test_a_secret_that_others_can_read_is_refused(tmp_path):
    (tmp_path / "key").write_text(" secret \n")
    os.chmod(tmp_path / "key", 0o644)
    with pytest.raises(InvalidArgument, match="chmod 600"):
        secret("key", tmp_path)
    os.chmod(tmp_path / "key", 0o600)
    assert secret("key", tmp_path) == b"secret"
    for where in ("env:TACIT_NO_SUCH", "http://keys.example.org/key"):
        with pytest.raises(InvalidArgument):
            secret(where, tmp_path)
    (tmp_path / "empty.pem").touch(mode=0o600)
    path = write_app(tmp_path, store='app.db"\nsigning = "empty.pem')
    with pytest.raises(InvalidArgument):
        read_app(str(path), logs=False) and sign_file(path, "empty.pem", tmp_path)
