"""``tacit learn`` and ``tacit policy``: from logs to a policy, night after night."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tacit
from tacit import published
from tacit.lq.spec import GainPolicy
from tacit.tabular.spec import FiniteSpec
from tests.cli.calls import call, content, one_line

STATES, ACTIONS, H = ["new", "idle", "busy"], ["wait", "ask"], 3
APP = """
[world]
states = ["new", "idle", "busy"]
actions = ["wait", "ask"]
horizon = 3

[agent]
name = "ucbvi"
users = 100000
schedule = "fixed:size=50"

[privacy]
epsilon = 1.0
delta = 1e-7

[log]
path = "logs"
next_state = ""
version = "version"

[files]
policy = "out.npz"
"""


NAMES = ("user", "step", "state", "action", "reward", "version", "drawn")


def night(folder, name, policy, users, seed):
    """The sessions of a night, as text states in a Parquet or a CSV file."""
    rng, rows = np.random.default_rng(seed), []
    for user in range(users):
        state = "new"
        for step in range(H):
            action = policy.act(step, state)
            entry = (f"{seed}-{user}", step, state, action, int(rng.integers(2)), policy.version)
            rows.append((*entry, 0))
            state = str(rng.choice(STATES))
    (folder / "logs").mkdir(exist_ok=True)
    path = folder / "logs" / name
    if name.endswith(".csv"):
        lines = [",".join(NAMES), *(",".join(map(str, row)) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    else:
        columns = {column: [row[i] for row in rows] for i, column in enumerate(NAMES)}
        pq.write_table(pa.table(columns), path)


SPEC = FiniteSpec.named(STATES, ACTIONS, horizon=H, stationary=True)


def first_policy():
    return tacit.UCBVI(SPEC, 100_000, tacit.JointDP(1.0, 1e-7), schedule="fixed:size=50").policy


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "app.toml"
    path.write_text(APP)
    night(tmp_path, "day 1.parquet", first_policy(), 120, seed=1)
    return path


def test_nights_go_on_where_they_were(app):
    folder = app.parent
    planned = content(call("learn", app, "--dry-run", "--json"))
    assert planned["new"] == ["logs/day 1.parquet"]
    assert (planned["resumes"], planned["first_block"]) == (False, 50)
    assert sorted(p.name for p in folder.iterdir()) == ["app.toml", "logs"], "nothing was touched"
    told = content(call("learn", app, "--json"))
    (file,) = told["files"]
    assert (file["users"], file["counted"], file["retired"]) == (120, 120, 0)
    assert (told["version"], told["users"], told["left"]) == (1, 120, 99_880)
    # The second night, in CSV, with two who were there before; the first file is not read again.
    policy = tacit.published.load(folder / "out.npz")
    night(folder, "day 2.csv", policy, 40, seed=2)
    night(folder, "day 3.csv", policy, 30, seed=3)
    told = content(call("learn", app, "--json"))
    assert [file["file"] for file in told["files"]] == ["logs/day 2.csv", "logs/day 3.csv"]
    assert [file["waiting"] for file in told["files"]] == [40, 0]
    assert [file["counted"] for file in told["files"]] == [0, 30]
    assert (told["version"], told["users"]) == (2, 190)
    # Stragglers of an older version count too.
    night(folder, "day 4.parquet", policy, 5, seed=4)
    outcome = call("learn", app)
    assert outcome.exit_code == 0, outcome.stderr
    assert "day 4.parquet: 5 users, 5 waiting" in outcome.stdout
    assert "(1, 1e-07)-joint differential privacy" in " ".join(outcome.stdout.split())
    assert content(call("learn", app, "--json"))["files"] == []
    said = published.about(folder / "out.npz")
    assert (said["version"], said["state_labels"]) == (2, STATES)
    assert content(call("ledger", "verify", folder / "app.db", "--json"))["well"]


def test_a_mixed_policy_needs_the_component_that_was_followed(tmp_path):
    """Refused before anything is touched; with the column, everybody counts."""
    path, mixed = tmp_path / "app.toml", APP.replace('"ucbvi"', '"concurrent_psrl"')
    path.write_text(mixed)
    given = (SPEC, 100_000, tacit.JointDP(1.0, 1e-7))
    policy = tacit.ConcurrentPSRL(*given, schedule="fixed:size=50").policy
    night(tmp_path, "day.csv", policy.components[0], 60, seed=0)  # the column says 0
    for more in (["--dry-run"], []):
        assert "[log] component is missing" in one_line(call("learn", path, *more))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["app.toml", "logs"], "nothing was touched"
    path.write_text(mixed.replace("[log]", '[log]\ncomponent = "drawn"'))
    told = content(call("learn", path, "--json"))
    assert (told["files"][0]["counted"], told["version"]) == (60, 1)
    assert content(call("ledger", "show", tmp_path / "app.db", "--json"))["people"]["max"] > 0.0


def test_a_successor_goes_on_after_the_last_user(app):
    """All declared users have come: the next app reads what is new, knows people and versions."""
    folder = app.parent
    app.write_text(APP.replace("users = 100000", "users = 150"))
    assert content(call("learn", app, "--json"))["version"] == 1
    night(folder, "day 2.csv", tacit.published.load(folder / "out.npz"), 50, seed=2)
    assert "tacit learn NEXT.toml --after" in one_line(call("learn", app))
    new = folder / "next.toml"
    new.write_text(APP.replace("[files]", '[files]\nstore = "other.db"\nname = "next"'))
    complaint = one_line(call("learn", new, "--after", app))
    assert "a successor has its predecessor's folder and store" in complaint
    assert not (folder / "other.db").exists()
    new.write_text(APP.replace("[files]", '[files]\nname = "next"'))
    assert content(call("learn", new, "--after", app, "--dry-run", "--json"))["learnt"] == 1
    told = content(call("learn", new, "--after", app, "--json"))
    (file,) = told["files"]
    assert (file["file"], file["counted"]) == ("logs/day 2.csv", 50), "day 1 was the old agent's"
    assert (told["users"], told["left"]) == (50, 99_950)
    # It takes nobody any more; the new one is gone on with, and reads nothing again.
    assert content(call("learn", new, "--json"))["files"] == []
    night(folder, "day 3.parquet", tacit.published.load(folder / "out.npz"), 50, seed=3)
    assert "has a successor" in one_line(call("learn", app))
    before = told["version"]
    told = content(call("learn", new, "--json"))
    assert (told["files"][0]["counted"], told["version"]) == (50, before + 1)
    shown = content(call("ledger", "show", folder / "app.db", "--json"))
    assert [(run["name"], run["ended"]) for run in shown["runs"]] == [
        ("run", True),
        ("next", False),
    ]


def test_a_run_goes_on_by_itself_where_its_file_says_so(app):
    folder = app.parent
    app.write_text(APP.replace("users = 100000", "users = 150\nsuccessor = true"))
    assert content(call("learn", app, "--json"))["version"] == 1
    for day in (2, 3, 4):
        policy = tacit.published.load(folder / "out.npz")
        night(folder, f"day {day}.csv", policy, 80, seed=day)
        (file,) = content(call("learn", app, "--json"))["files"]
        assert file["counted"] == 80, "of its version, in whichever run"
    shown = content(call("ledger", "show", folder / "app.db", "--json"))
    ended = [run["ended"] for run in shown["runs"]]
    assert ended == [True] * (len(ended) - 1) + [False]
    assert [run["name"] for run in shown["runs"]] == ["run", "run+", "run++", "run+++"]
    assert content(call("learn", app, "--json"))["files"] == []
    assert content(call("ledger", "verify", folder / "app.db", "--json"))["well"]


def test_an_older_policy_serves_again_and_is_pinned(app):
    folder = app.parent
    call("learn", app)
    first = tacit.published.load(folder / "out.npz")
    night(folder, "day 2.csv", first, 50, seed=2)
    assert content(call("learn", app, "--json"))["version"] == 2
    told = content(call("learn", app, "--roll-back", 1, "--pin", "--json"))
    policy = tacit.published.load(folder / "out.npz")
    assert told["version"] == policy.version == 3, "under a new number"
    np.testing.assert_array_equal(policy.actions, first.actions)
    night(folder, "day 3.csv", policy, 50, seed=3)
    told = content(call("learn", app, "--json"))
    assert (told["files"][0]["counted"], told["version"]) == (50, 3), "counted, and still pinned"
    assert content(call("learn", app, "--unpin", "--json"))["version"] == 3
    night(folder, "day 4.csv", tacit.published.load(folder / "out.npz"), 50, seed=4)
    assert content(call("learn", app, "--json"))["version"] == 5
    assert "version 77" in one_line(call("learn", app, "--roll-back", 77))


@pytest.mark.parametrize("users", [120, 80], ids=["after their release", "while they wait"])
def test_a_night_that_died_is_given_again(app, monkeypatch, users):
    """Before the file was noted: nobody counts twice, and nobody is lost."""
    from tacit.store import ledger

    app.write_text(APP.replace("size=50", "size=100"))
    night(app.parent, "day 1.parquet", first_policy(), users, seed=1)
    usual = ledger.append

    def die(db, run, event, **body):
        if event == "log":
            raise KeyboardInterrupt
        return usual(db, run, event, **body)

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "append", die)
        assert call("learn", app).exit_code == 130
    told = content(call("learn", app, "--json"))
    (file,) = told["files"]
    assert (file["counted"], file["waiting"]) == (0, 0)
    assert file["known"] + file["retired"] == users
    assert told["users"] + told["waiting"] == users
    shown = content(call("ledger", "show", app.parent / "app.db", "--json"))
    assert shown["people"]["count"] == users


def test_a_night_that_taught_nothing_is_a_failure(tmp_path):
    """The same people again, under other events, one episode each: cron must notice."""
    app = tmp_path / "app.toml"
    app.write_text(APP)
    night(tmp_path, "day 1.csv", first_policy(), 50, seed=77)
    assert content(call("learn", app, "--json"))["users"] == 50
    night(tmp_path, "day 2.csv", first_policy(), 50, seed=77)
    outcome = call("learn", app, "--json")
    told = json.loads(outcome.stdout)
    assert (told["files"][0]["refused"], outcome.exit_code) == (50, 1)
    assert "taught nothing: of 50 episodes none was taken" in told["warning"]
    assert outcome.stderr == f"tacit: {told['warning']}\n"
    assert content(call("learn", app, "--json"))["files"] == [], "nothing new is no failure"
    # One that is taken is enough.
    rows = (tmp_path / "logs" / "day 2.csv").read_text().replace("77-0,", "somebody new,")
    (tmp_path / "logs" / "day 3.csv").write_text(rows)
    (file,) = content(call("learn", app, "--json"))["files"]
    assert (file["waiting"], file["refused"]) == (1, 49)


def test_a_file_that_grew_is_read_on(app):
    folder = app.parent
    night(folder, "day 2.csv", first_policy(), 20, seed=5)
    assert content(call("learn", app, "--json"))["users"] >= 120
    day = folder / "logs" / "day 2.csv"
    before = day.read_text()
    night(folder, "day 2.csv", first_policy(), 15, seed=6)
    day.write_text(before + day.read_text().partition("\n")[2])
    assert content(call("learn", app, "--dry-run", "--json"))["new"] == ["logs/day 2.csv"]
    (file,) = content(call("learn", app, "--json"))["files"]
    assert (file["users"], file["known"], file["counted"] + file["waiting"]) == (35, 20, 15)
    assert content(call("learn", app, "--json"))["files"] == []
    assert content(call("ledger", "verify", folder / "app.db", "--json"))["well"]


MISTAKES = {
    "no file": (None, "'no.toml': No such file"),
    "no page": (('"out.npz"', '"out.npz"\nreport = "report.md"'), "must end in .html"),
    "no privacy": (("[privacy]\nepsilon = 1.0\ndelta = 1e-7", ""), "table [privacy] is missing"),
    "unknown agent": (('"ucbvi"', '"ucbiv"'), "did you mean 'ucbvi'"),
    "a budget twice": (('"ucbvi"', '"ucbvi:epsilon=1"'), "the budget belongs to [privacy]"),
    "no log": (('path = "logs"', 'path = "nologs"'), "[log] path: there is no"),
    "no folder": (('"out.npz"', '"no/such/out.npz"'), "[files] policy is"),
    "a missing column": (('version = "version"', 'version = "v"'), "has no column 'v'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake, app):
    change, words = MISTAKES[mistake]
    if change is None:
        assert words in one_line(call("learn", "no.toml"))
        return
    text = app.read_text()
    assert change[0] in text
    app.write_text(text.replace(change[0], change[1], 1))
    assert words in one_line(call("learn", app))


def test_policies_are_compared_by_what_they_do(tmp_path):
    actions = np.random.default_rng(0).integers(0, 2, (H, 3))
    other = actions.copy()
    other[1, 2] = 1 - other[1, 2]
    for name, table in (("one.npz", actions), ("same.json", actions), ("other.npz", other)):
        tacit.Policy.deterministic(table, 2).labelled(STATES, ACTIONS).publish(tmp_path / name)
    for name, gain in (("gains.npz", 1.0), ("zero.npz", 0.0)):
        GainPolicy(np.full((1, 1, 1), gain)).publish(tmp_path / name)

    def diff(*names):
        return call("policy", "diff", *(n if n[0] == "-" else tmp_path / n for n in names))

    assert "act alike" in diff("one.npz", "same.json").stdout
    (cell,) = json.loads(diff("one.npz", "other.npz", "--json").stdout)["cells"]
    assert (cell["step"], cell["state"]) == (1, "busy")
    assert {cell["first"], cell["second"]} == set(ACTIONS)
    shown = diff("one.npz", "other.npz")
    assert (shown.exit_code, "differ in 1 of 9 steps" in shown.stdout) == (1, True)
    assert diff("gains.npz", "gains.npz").exit_code == 0
    assert "differ: gains" in diff("gains.npz", "zero.npz").stdout
    assert diff("one.npz", "gains.npz").exit_code == 1


def test_a_policy_is_shown_and_verified(app, tmp_path):
    assert call("learn", app).exit_code == 0
    path, store = tmp_path / "out.npz", tmp_path / "app.db"
    shown = call("policy", "show", path)
    assert shown.exit_code == 0
    for words in ("ucbvi", "'new', 'idle', 'busy'", f"tacit {tacit.__version__}", "(1, 1e-07)-j"):
        assert words in " ".join(shown.stdout.split())
    assert content(call("policy", "show", path, "--json"))["ledger_line"] >= 1
    assert "well" in call("policy", "verify", path).stdout
    assert "well" in call("ledger", "verify", store, "--expect", path).stdout
    data = bytearray(path.read_bytes())
    data[data.index(b"actions.npy") + 300] ^= 1
    path.write_bytes(data)
    assert "no published policy" in one_line(call("policy", "verify", path))
    assert "no published policy" in one_line(call("policy", "show", path))
