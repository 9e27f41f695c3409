"""``tacit serve``'s chores: the check, tokens, and mistakes in the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tacit.service.store import Store, new_token
from tests.cli.calls import call, content, one_line
from tests.service.running import running
from tests.service.test_service import come
from tests.service.world import make_app, write_app


def test_check_finds_what_is_wrong(tmp_path: Path) -> None:
    path = write_app(tmp_path)
    before = content(call("serve", path, "--check", "--json"))
    assert before["well"]
    assert not (tmp_path / "service.db").exists()  # a check makes nothing
    with running(make_app(tmp_path)) as run:
        come(run.client(), 20)
        state = run.wait(lambda s: s["version"] == 1)
    found = content(call("serve", path, "--check", "--json"))
    assert found["well"], found
    good = call("serve", path, "--check", "--expect", state["ledger_head"])
    assert good.exit_code == 0
    assert call("serve", path, "--check", "--expect", "00" * 32).exit_code == 1
    os.chmod(tmp_path / "agent.state", 0o644)
    ledger = tmp_path / "budget.ledger"
    ledger.write_text(ledger.read_text().replace('"event": "save"', '"event": "sove"', 1))
    outcome = call("serve", path, "--check", "--json")
    assert outcome.exit_code == 1
    found = json.loads(outcome.stdout)
    wrong = {name for name, well, _ in found["checks"] if not well}
    assert wrong == {"state", "ledger"}


def test_tokens_are_made_and_revoked(tmp_path: Path) -> None:
    path = write_app(tmp_path)
    token = content(call("serve", path, "--new-token", "officer", "--json"))["token"]
    text = (tmp_path / "service.db").read_bytes()
    wal = tmp_path / "service.db-wal"
    text += wal.read_bytes() if wal.exists() else b""
    assert token.split("-", 3)[3].encode() not in text
    assert call("serve", path, "--revoke", token.split("-")[2]).exit_code == 0
    store = Store(str(tmp_path / "service.db"))
    assert store.ask("SELECT revoked FROM tokens") == [(1,)]
    with pytest.raises(ValueError, match="role"):
        new_token(store, "king")
    store.close_all()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("porte = 1", "porte"),
        ('port = "x"', "port"),
        ('sandbox = "yes"', "sandbox"),
        ('certificate = "a.pem"', "certificate_key"),
    ],
)
def test_mistakes_in_the_file_are_one_line(tmp_path: Path, line: str, words: str) -> None:
    said = one_line(call("serve", write_app(tmp_path, serve=line), "--check"))
    assert words in said
