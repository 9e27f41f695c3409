"""What an officer signs: who answers for it, what is not hidden, one promise, and the registry."""

import html
import json
import re
import sqlite3
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml

import tacit
from tacit.service.app_file import ABOUT
from tests.cli.calls import call, one_line
from tests.service.world import make_app, write_app

SCHEMA = yaml.safe_load((Path(__file__).parent / "deployments-schema.yaml").read_text())
WORDS = {name: f"Words <of> the: '{name}'" for name in ABOUT} | {"sector": "Healthcare"}


def tiers(schema):
    """Fields of tiers 2 and 3."""
    parts = schema["properties"]["deployment"]["properties"]
    return {
        (part, field)
        for part, held in parts.items()
        for field, about in held["properties"].items()
        if about.get("tier") in (2, 3)
    }


@pytest.fixture
def files(tmp_path):
    """A store, its app's file, and a policy."""
    about = "".join(f"{name} = {json.dumps(words)}\n" for name, words in WORDS.items())
    path = write_app(tmp_path, privacy=f"[about]\n{about}")
    from tacit.service.app_file import read_app

    agent = read_app(str(path), logs=False).agent()
    agent.learn(night(agent.policy, 20))
    agent.publish(tmp_path / "policy.json")
    agent.store.close()
    return tmp_path / "app.db", path, tmp_path / "policy.json"


def night(policy, users):
    states = np.random.default_rng(0).integers(3, size=(users, 4))
    actions = policy.actions[np.arange(3), states[:, :3]]
    versions = np.full(users, policy.version)
    return tacit.Episodes(states, actions, states[:, 1:] > 0, versions, [*range(users)])


def test_the_registrys_own_schema_takes_the_record(files, tmp_path):
    store, app, policy = files
    for more, open_words in (("--app", 0), (None, 1)):
        output = tmp_path / "deployment.yaml"
        given = (more, app) if more else ()
        done = call("report", store, "--policy", policy, *given, "--output", output)
        assert done.exit_code == 0, done.output
        record = yaml.safe_load(output.read_text())
        checker = jsonschema.FormatChecker()
        jsonschema.validate(record, SCHEMA, format_checker=checker)
        held = record["deployment"]
        for part, field in tiers(SCHEMA):
            assert held[part][field] not in ("", None), (part, field)
        text = output.read_text()
        assert ("The operator must say." in text) == bool(open_words)
        assert held["privacy_loss"]["privacy_parameters"]["epsilon"] == 1.0
        assert float(held["privacy_loss"]["privacy_parameters"]["delta"]) == 1e-7
        assert held["deployment_model"]["model_name"] == "Central"
    assert held["basic"]["data_curators"] == ["The operator must say."]


def test_the_page_says_who_answers_and_what_is_not_hidden(files):
    store, app, policy = files
    plain = html.unescape(call("report", store, "--policy", policy, "--app", app).output)
    for name in set(ABOUT) - {"sector", "today"}:
        assert WORDS[name] in plain, name
    bare = call("report", store).output
    assert bare.count("The operator must say.") >= 12
    for words in ("That somebody takes part", "is not covered", "small groups get policies"):
        assert words in plain
        assert words in html.unescape(bare)
    assert re.search(r"<td>20</td>|<td>16</td>", plain)  # people are counted, not episodes alone


CHANGES = """
UPDATE runs SET users = 7; UPDATE runs SET episodes = 5; UPDATE runs SET cost = cost / 10;
UPDATE runs SET taken = 1; UPDATE people SET pays = 0; UPDATE people SET person = 'somebody';
DELETE FROM people WHERE id = (SELECT MIN(id) FROM people); UPDATE accounts SET spent = 0;
UPDATE stores SET most = 1; UPDATE stores SET head = ''; DELETE FROM releases;
DELETE FROM entries WHERE event = 'release';
UPDATE entries SET body = replace(body, '"users": 20', '"users": 8');
UPDATE entries SET body = replace(body, '"epsilon": 1.0', '"epsilon": 0.1')"""


@pytest.mark.parametrize("changed", CHANGES.replace("\n", " ").split(";"))
def test_a_store_that_was_changed_is_red(files, tmp_path, changed):
    store, app, policy = files
    with sqlite3.connect(store) as db:
        for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            db.execute(f"DROP TRIGGER {name}")
        people = [person for (person,) in db.execute("SELECT person FROM accounts")]
        assert db.execute(changed).rowcount > 0
    page = tmp_path / "report.html"
    done = call("report", store, "--policy", policy, "--app", app, "--output", page)
    assert (done.exit_code, '<p class="warning">' in page.read_text()) == (1, True)
    assert not any(person in page.read_text() for person in people)


def test_another_promise_is_red(files, tmp_path):
    """A policy, an app's file, their guarantees and the ledger say the same, or nobody signs."""
    store, app, policy = files
    (tmp_path / "b").mkdir()
    other = make_app(tmp_path / "b", privacy="episodes_per_user = 2").agent(files=False)
    other.publish(tmp_path / "other.json", force=True)
    renamed, theirs = write_app(tmp_path, "renamed.toml", name="else"), tmp_path / "b" / "app.toml"
    wrong = [(tmp_path / "other.json", app, "other.json")]
    wrong += [(policy, file, "the app's file") for file in (theirs, renamed)]
    for published, file, name in wrong:
        page = call("report", store, "--policy", published, "--app", file)
        assert page.exit_code == 1
        assert f"{name} promises something else" in html.unescape(page.output)


def test_a_store_without_people_is_not_registered(tmp_path):
    from tacit.store.store import Store

    Store(tmp_path / "empty.db").close()
    said = one_line(call("report", tmp_path / "empty.db", "--output", tmp_path / "a.yaml"))
    assert "no run of people" in said
    path = write_app(tmp_path, privacy="[about]\nboss = 'x'")
    said = one_line(call("report", tmp_path / "empty.db", "--app", path))
    assert "[about] has no key 'boss'" in said
