"""Encrypted states: nothing is told without the key, and nothing that was changed is read."""

import copy
import io
import logging
import os
import pickle
import subprocess
import sys
import traceback

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit import Block, JointDP
from tacit.privacy import encryption
from tacit.privacy.curator import JointCurator
from tacit.privacy.encryption import StateKey, is_encrypted
from tacit.privacy.errors import CorruptFile, MissingExtra, WrongKey
from tacit.privacy.standard import ClippedSum
from tacit.privacy.storage import read_state, write_state

pytest.importorskip("cryptography", reason="encrypted states need the extra encrypt")

SECRET = bytes(range(32))
KEY, OTHER = StateKey(SECRET), StateKey(bytes(32))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state"


def test_a_state_comes_back_and_tells_nothing(path):
    arrays = {"sums": np.linspace(0.0, 1.0, 500)}
    person = "somebody who is not among random bytes"
    write_state(path, "curator", {"person": person}, arrays, key=KEY)
    data = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert is_encrypted(data)
    assert person.encode() not in data
    assert arrays["sums"].tobytes()[:64] not in data
    state = read_state(path, "curator", key=KEY)
    assert state.meta == {"person": person}
    np.testing.assert_array_equal(state.arrays["sums"], arrays["sums"])
    write_state(path, "curator", {"person": person}, arrays, key=KEY)
    assert path.read_bytes()[60:] != data[60:]  # a salt of its own


def test_the_wrong_key_and_no_key_are_typed_errors(path, monkeypatch):
    write_state(path, "curator", {}, {}, key=KEY)
    with pytest.raises(WrongKey, match="another key"):
        read_state(path, "curator", key=OTHER)
    with pytest.raises(WrongKey, match="TACIT_STATE_KEY_FILE"):
        read_state(path, "curator")
    # Also where a forger puts the other key's fingerprint into the file.
    data = path.read_bytes()
    path.write_bytes(data[:12] + OTHER._derived(b"") + data[28:])
    with pytest.raises(CorruptFile, match="damaged or changed"):
        read_state(path, "curator", key=OTHER)


def test_no_changed_byte_is_read(path):
    write_state(path, "curator", {"step": 3}, {"a": np.arange(4.0)}, key=KEY)
    data = path.read_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises((CorruptFile, WrongKey)):
            read_state(path, "curator", key=KEY)
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(CorruptFile):
            read_state(path, "curator", key=KEY)


@settings(max_examples=40, deadline=None)
@given(size=st.integers(0, 300), part=st.integers(1, 64))
def test_parts_cannot_be_moved_left_out_or_lent(size, part):
    data = bytes(i % 251 for i in range(size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encryption, "_PART", part)
        sealed, again = KEY.encrypt(data), KEY.encrypt(data)
        assert KEY.decrypt(sealed, "x") == data
        head, whole = encryption._HEADER.size, part + 16
        parts = [sealed[i : i + whole] for i in range(head, len(sealed), whole)]
        others = [again[i : i + whole] for i in range(head, len(again), whole)]
        forged = [parts[:-1], [*parts, parts[-1]], [*parts[1:], parts[0]], [others[0], *parts[1:]]]
        for wrong in forged:
            if wrong != parts:
                with pytest.raises(CorruptFile):
                    KEY.decrypt(sealed[:head] + b"".join(wrong), "x")


def test_runs_are_encrypted_by_the_environment(tmp_path, monkeypatch):
    """Saves and autosaves of curators and agents, and what resumes from them."""
    StateKey.create(tmp_path / "key")
    monkeypatch.setenv("TACIT_STATE_KEY_FILE", str(tmp_path / "key"))
    ledger, state = tmp_path / "ledger", tmp_path / "state"
    curator = JointDP(1.0, 1e-6).curator(ledger=ledger, autosave=state)
    curator.add(Block(2, {"values": np.ones((2, 1))}), ["ann", "bob"])
    curator.release(ClippedSum(1))
    assert is_encrypted(state.read_bytes())
    again = JointCurator.load(state, ledger=ledger, autosave=state)
    np.testing.assert_array_equal(again.last_release["sum"], curator.last_release["sum"])
    agent = tacit.UCBVI(tacit.tabular.riverswim(3, 4).spec, 40, JointDP(1.0, 1e-6))
    agent.save(tmp_path / "agent")
    assert is_encrypted((tmp_path / "agent").read_bytes())
    agent.publish(tmp_path / "policy.npz")  # what is public stays public
    assert tacit.published.load(tmp_path / "policy.npz").version == 0
    monkeypatch.setenv("TACIT_STATE_KEY_FILE", "")
    with pytest.raises(WrongKey):
        JointCurator.load(state, ledger=ledger)
    monkeypatch.setenv("TACIT_STATE_KEY", (tmp_path / "key").read_text())
    JointCurator.load(state, ledger=ledger)


def test_a_run_begins_with_a_key_at_any_time(path, monkeypatch):
    write_state(path, "curator", {"step": 1}, {})
    monkeypatch.setenv("TACIT_STATE_KEY", SECRET.hex())
    assert read_state(path, "curator").meta == {"step": 1}
    write_state(path, "curator", {"step": 2}, {})
    assert is_encrypted(path.read_bytes())
    write_state(path, "curator", {"step": 3}, {}, secret=False)
    assert not is_encrypted(path.read_bytes())


def test_keys_in_files(tmp_path):
    path = tmp_path / "key"
    made = StateKey.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert StateKey.read(path)._secret == made._secret
    with pytest.raises(FileExistsError):
        StateKey.create(path)
    path.chmod(0o644)
    with pytest.raises(WrongKey, match="others can read"):
        StateKey.read(path)


@pytest.mark.parametrize("text", ["", "secret words", "ab" * 31, "ab" * 33, "é" * 64, "zz" * 32])
def test_what_is_no_key_is_refused_and_not_repeated(tmp_path, monkeypatch, text):
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(WrongKey, match="64 hexadecimal digits") as caught:
        StateKey.read(path)
    assert not text or text not in str(caught.value)
    if text:
        monkeypatch.setenv("TACIT_STATE_KEY", text)
        with pytest.raises(WrongKey, match="64 hexadecimal digits"):
            StateKey.from_environment()


def test_a_key_that_is_named_must_be_there(tmp_path, monkeypatch, path):
    monkeypatch.setenv("TACIT_STATE_KEY_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(WrongKey, match="cannot be read"):
        write_state(path, "curator", {}, {})
    assert not path.exists()  # above all nothing that is not encrypted
    monkeypatch.setenv("TACIT_STATE_KEY", SECRET.hex())
    with pytest.raises(WrongKey, match="both set"):
        write_state(path, "curator", {}, {})
    for wrong in (b"short", "a" * 32, None):
        with pytest.raises(WrongKey, match="32 bytes"):
            StateKey(wrong)


def test_keys_are_silent(path, caplog):
    """Neither representation, errors with their causes, logs, copies nor pickles show them."""
    caplog.set_level(logging.DEBUG)
    write_state(path, "curator", {"person": "in no path"}, {}, key=KEY)
    said = io.StringIO()
    path.write_bytes(path.read_bytes()[:-1])
    for key in (KEY, OTHER):
        try:
            read_state(path, "curator", key=key)
        except (CorruptFile, WrongKey):
            said.write(traceback.format_exc())
    text = repr(KEY) + str(KEY) + said.getvalue() + caplog.text
    for form in (SECRET.hex(), repr(SECRET), "in no path"):
        assert form not in text
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="not copied"):
            act(KEY)


def test_without_the_package_the_extra_is_named(tmp_path):
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from tacit.privacy.errors import MissingExtra\n"
        "from tacit.privacy.storage import write_state, read_state\n"
        "try:\n"
        f"    write_state({str(tmp_path / 's')!r}, 'curator', {{}}, {{}})\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )
    options = {"capture_output": True, "text": True, "timeout": 60}
    environment = os.environ | {"TACIT_STATE_KEY": SECRET.hex()}
    done = subprocess.run([sys.executable, "-c", code], env=environment, **options)
    assert "pip install 'tacit[encrypt]'" in done.stdout, done.stderr
    assert not (tmp_path / "s").exists()
    assert issubclass(MissingExtra, ImportError)
