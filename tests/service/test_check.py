"""``tacit serve``'s chores: the check, tokens, and mistakes in the file."""

import contextlib
import json
import os
import sqlite3

import pytest

from tacit.service.tokens import new_token
from tacit.store.store import Store
from tests.cli.calls import call, content, one_line
from tests.service.running import running
from tests.service.test_service import rows
from tests.service.world import come, make_app, write_app


def test_check_finds_what_is_wrong(tmp_path):
    path = write_app(tmp_path)
    before = content(call("serve", path, "--check", "--json"))
    assert before["well"]
    assert not (tmp_path / "app.db").exists()  # a check makes nothing
    with running(make_app(tmp_path)) as run:
        come(run.client(), 8)
        run.wait(lambda s: s["version"] == 1)
    found = content(call("serve", path, "--check", "--json"))
    assert found["well"], found
    os.chmod(tmp_path / "app.db", 0o644)
    with contextlib.closing(sqlite3.connect(tmp_path / "app.db")) as opened:
        opened.execute("DROP TRIGGER entries_update")
        opened.execute("UPDATE entries SET at = at + 1 WHERE event = 'release'")
        opened.commit()
    other = write_app(tmp_path, file="other.toml", horizon=4)
    outcome = call("serve", other, "--check", "--json")
    assert outcome.exit_code == 1
    wrong = [
        (name, words) for name, well, words in json.loads(outcome.stdout)["checks"] if not well
    ]
    assert [name for name, _ in wrong] == ["mode", "arguments", "ledger"]
    assert "'run' in this store has other arguments" in dict(wrong)["arguments"]


def test_tokens_are_made_and_revoked(tmp_path):
    path = write_app(tmp_path)
    token = content(call("serve", path, "--new-token", "officer", "--json"))["token"]
    text = (tmp_path / "app.db").read_bytes()
    wal = tmp_path / "app.db-wal"
    text += wal.read_bytes() if wal.exists() else b""
    assert token.split("-", 3)[3].encode() not in text
    assert call("serve", path, "--revoke", token.split("-")[2]).exit_code == 0
    assert rows(tmp_path, "SELECT revoked FROM tokens") == [(1,)]
    with Store(tmp_path / "app.db") as store, pytest.raises(ValueError, match="role"):
        new_token(store, "king")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("porte = 1", "porte"),
        ('body = "long"', "body"),
        ('certificate = "a.pem"', "certificate_key"),
    ],
)
def test_mistakes_in_the_file_are_one_line(tmp_path, line, words):
    said = one_line(call("serve", write_app(tmp_path, serve=line), "--check"))
    assert words in said


def test_check_touches_nothing_of_anybody(tmp_path):
    """A database of something else, an empty file, and a store whose service is stopped."""
    path = write_app(tmp_path)

    def held():
        files = [file for file in tmp_path.iterdir() if file.is_file()]
        return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}

    for make in ("CREATE TABLE theirs (a INTEGER)", ""):
        (tmp_path / "app.db").unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(tmp_path / "app.db")) as opened:
            opened.execute(make) if make else (tmp_path / "app.db").touch()
        os.chmod(tmp_path / "app.db", 0o600)
        before = held()
        outcome = call("serve", path, "--check", "--json")
        assert outcome.exit_code == 1
        assert "something else" in outcome.stdout
        assert held() == before
    (tmp_path / "app.db").unlink()
    with running(make_app(tmp_path)) as run:
        come(run.client(), 8)
        run.wait(lambda s: s["version"] == 1)
        assert content(call("serve", path, "--check", "--json"))["well"]  # while it runs
    before = held()
    assert content(call("serve", path, "--check", "--json"))["well"]
    assert held() == before
