"""``tacit ledger``: what it says of a store, what it refuses and repairs, and its exit codes."""

import contextlib
import json
import shutil
import sqlite3

import numpy as np
import pytest

import tacit
from tacit import Budget, JointDP, Store
from tacit.store import ledger
from tests.cli.calls import call as run_tacit

WORLD = tacit.tabular.riverswim(3, 4)


def call(*words, code=0):
    done = run_tacit("ledger", *words)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done.output


def found(*words, code=0):
    return json.loads(call(*words, "--json", code=code))


def agent_of(path, name="ward", epsilon=1.0, **options):
    options = {"schedule": "fixed:size=20"} | options
    return tacit.UCBVI(WORLD.spec, 200, JointDP(epsilon, 1e-6), store=path, name=name, **options)


def come(agent, users, first=0, seed=0):
    episodes = WORLD.simulate(agent.policy, users, np.random.default_rng(seed))
    return agent.learn(episodes, [f"p{i}" for i in range(first, first + users)])


@pytest.fixture
def path(tmp_path):
    """A store of two runs: one released about two blocks, five people wait; they share people."""
    file = tmp_path / "app.db"
    agent = agent_of(file)
    come(agent, 20)
    come(agent, 20, first=20)
    agent.publish(tmp_path / "policy.npz")
    come(agent, 5, first=40)
    other = agent_of(file, "clinic", 0.5)
    come(other, 20, first=10)
    for one in (agent, other):
        one.store.close()
    return file


DROPS = [f"DROP TRIGGER IF EXISTS entries_{verb}" for verb in ("delete", "update")]


def change(file, *texts, **values):
    """What somebody does to the database behind our back; entries are only ever added to."""
    db = sqlite3.connect(file)
    for text in (*DROPS, *texts):
        db.execute(text, values)
    db.commit()
    db.close()


def test_a_summary_of_runs_and_accounts(path):
    one, half = (Budget(epsilon, 1e-6).mu ** 2 for epsilon in (1.0, 0.5))
    told = found("show", path)
    assert (told["kind"], told["unit"], told["most"]) == ("people", "mu^2", None)
    assert told["people"]["count"] == 45
    assert told["people"]["max"] == pytest.approx(one + half, rel=1e-9)
    ward, clinic = told["runs"]
    assert (ward["name"], ward["blocks"], ward["releases"], ward["waiting"]) == ("ward", 2, 2, 5)
    assert (clinic["user_limit"], clinic["version"]) == (pytest.approx(half), 1)
    assert ward["promise"]["epsilon"] == 1.0
    words = call("show", path)
    assert f"head: {told['head']}" in words
    assert "ward: 2 releases, 2 blocks, 40 served, 5 waiting, 200 users declared" in words


def test_a_ledger_that_is_well_and_one_that_is_not(path, tmp_path):
    told = found("verify", path)
    assert (told["well"], told["problems"]) == (True, [])
    assert f"head: {told['head']}" in call("verify", path)
    for witness in (told["head"], tmp_path / "policy.npz"):
        assert found("verify", path, "--expect", witness)["well"]
    assert "an older copy, or another" in call("verify", path, "--expect", "f" * 64, code=1)
    change(path, "UPDATE accounts SET spent = spent - 1 WHERE rowid = 1")
    told = found("verify", path, code=1)
    assert "differs from what its episodes paid" in told["problems"][0]


def test_an_export_can_be_checked_by_anybody(path, tmp_path):
    call("export", path, "--output", tmp_path / "ledger.jsonl")
    text = (tmp_path / "ledger.jsonl").read_text()
    assert text == call("export", path)
    last = ""
    for number, line in enumerate(text.splitlines(), 1):
        entry = json.loads(line)
        body = json.dumps(entry["body"], sort_keys=True)
        words = (last, number, entry["run"], entry["event"], entry["at"], body)
        last = ledger.digest(*words)
        assert (entry["seq"], entry["hash"]) == (number, last)
    assert last == found("show", path)["head"]
    with Store(path) as store:
        for person in store.pseudonyms(["p0", "p10"]):
            assert person not in text


def test_a_limit_is_set_once_and_kept(tmp_path):
    file, most = tmp_path / "new.db", Budget(1.0, 1e-6).mu ** 2
    assert f"one person may spend {most:.6g} mu^2 over all runs" in call(
        "limit", file, "--epsilon", 1, "--delta", "1e-6"
    )
    assert "which stays as it is" in call("limit", file, "--epsilon", 2, "--delta", "1e-6", code=2)
    first = agent_of(file)
    assert come(first, 20).counted == 20
    # Another half of that budget nobody of them has left.
    second = agent_of(file, "clinic", 0.5)
    receipt = come(second, 20, first=10)
    assert (receipt.refused, receipt.waiting) == (10, 10)
    first.store.close()
    second.store.close()
    assert found("show", file)["most"] == pytest.approx(most)
    assert found("verify", file)["well"]


def test_limits_that_do_not_fit_are_refused(path):
    for epsilon, delta, words in ((0.1, 1e-6, "has spent more"), (1, 0, "in mu^2, not in epsilon")):
        assert words in call("limit", path, "--epsilon", epsilon, "--delta", delta, code=2)


def test_accounts_only_go_up(path):
    with Store(path) as store, store.read() as db:
        low, high, gone = store.pseudonyms(["p0", "p1", "p2"])
    wrong = (
        "UPDATE accounts SET spent = 0 WHERE person = :low",
        "UPDATE accounts SET spent = 2 * spent WHERE person = :high",
        "DELETE FROM accounts WHERE person = :gone",
    )
    change(path, *wrong, low=low, high=high, gone=gone)
    told = found("repair", path)
    assert (told["accounts"], told["ended"], told["left"]) == (3, [], [])
    assert found("verify", path)["well"]
    with contextlib.closing(sqlite3.connect(path)) as db:
        spent = dict(db.execute("SELECT person, spent FROM accounts").fetchall())
    assert spent[low] == spent[gone] == spent[high] // 2 > 0
    assert "is well: nothing was changed" in call("repair", path)
    agent = agent_of(path)  # and the run goes on
    assert come(agent, 15, first=50).counted == 15


def test_a_ledger_that_was_cut_off_goes_on(path):
    last = found("show", path)["entries"]
    change(path, "DELETE FROM entries WHERE seq >= :last", last=last)
    told = found("repair", path)
    assert "the ledger was cut off" in told["problems"][0]
    # The entry was of a release of the clinic, which is entered again; that run has ended.
    assert (told["ended"], told["left"]) == (["clinic"], [])
    assert found("verify", path)["well"]
    agent = agent_of(path, "clinic", 0.5)
    with pytest.raises(tacit.HorizonExceeded):
        come(agent, 5, first=100)
    assert come(agent_of(path), 15, first=50).counted == 15
    successor = agent.successor(100, name="clinic 2")
    assert come(successor, 5, first=100).waiting == 5


@pytest.mark.parametrize("limit", [False, True])
def test_an_older_copy_ends_all_its_runs(path, tmp_path, limit):
    """Its blocks would draw noise again: whoever waited has paid, and her episode is erased."""
    if limit:
        call("limit", path, "--epsilon", 3, "--delta", "1e-6")
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    agent = agent_of(path)
    come(agent, 15, first=50)
    agent.publish(tmp_path / "later.npz")
    agent.store.close()
    assert "an older copy" in call("verify", copy, "--expect", tmp_path / "later.npz", code=1)
    words = call("repair", copy, "--expect", tmp_path / "later.npz")
    assert "ended: ['clinic', 'ward']" in words
    told = found("show", copy)
    assert told["closed"] == limit
    assert all(run["ended"] for run in told["runs"])
    assert found("verify", copy)["well"]
    db = sqlite3.connect(copy)
    assert db.execute("SELECT count(*) FROM packets").fetchone() == (0,)
    assert db.execute("SELECT sum(reserved) FROM accounts").fetchone() == (0,)
    db.close()
    waited = agent_of(copy)
    assert waited.step() is False
    with pytest.raises(tacit.HorizonExceeded):
        come(waited, 5, first=90)
    new = waited.successor(100, name="ward 2")
    assert new.policy.version == waited.policy.version
    receipt = come(new, 5, first=200)
    assert (receipt.refused, receipt.waiting) == ((5, 0) if limit else (0, 5))


def test_what_cannot_be_repaired_is_said_for_ever(path):
    change(path, "UPDATE entries SET at = at + 1 WHERE seq = 1")
    for _ in range(2):
        assert "left: ['entry 1 does not continue" in call("repair", path, code=1)


def test_mistakes_are_one_line_and_make_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "budget.ledger").write_text('{"format": "tacit-ledger", "version": 2}\n')
    with contextlib.closing(sqlite3.connect(tmp_path / "service.db")) as other:
        other.execute("CREATE TABLE serving (version INTEGER)")
    there = sorted(tmp_path.iterdir())
    for words, said in (
        (("show", "none.db"), "No such file"),
        (("show", "budget.ledger"), "is no store"),
        (("verify", "service.db"), "a database of something else, or of release 0.1"),
        (("verify", "service.db", "--expect", "xyz"), "neither a hash of 64 digits nor a policy"),
        (("export", "service.db", "--output", "no/such/file"), "which cannot be written"),
    ):
        output = call(*words, code=2)
        assert said in output
        assert output.count("\n") == 1
    assert [p for p in sorted(tmp_path.iterdir()) if "-" not in p.name] == there


def test_a_password_is_not_printed():
    from tacit.cli.terminal import store_name

    shown = store_name("postgresql://ann:secret@db.example.org/app")
    assert ("secret" in shown, "db.example.org/app" in shown) == (False, True)
