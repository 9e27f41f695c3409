"""``tacit ledger``: what it says of a ledger, what it refuses, and its exit codes."""

from __future__ import annotations

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tacit import UCBVI, Block, Budget, JointCurator, JointDP, published
from tacit.cli.output import at_most
from tacit.privacy.gaussian_dp import epsilon_from_mu
from tacit.privacy.ledger import Ledger, chain, journal
from tacit.privacy.ledger.ledger import witness_of
from tacit.privacy.standard import ClippedSum
from tacit.tabular import riverswim
from tests.cli.calls import call as run_tacit

NOON = "2026-01-02T12:00:00+00:00"
SUM = ClippedSum(1)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(journal, "_now", lambda: NOON)


@pytest.fixture
def call():
    """Calls ``tacit ledger ...``, or ``tacit report ...``, and checks its exit code."""

    def invoke(*words, code=0):
        done = run_tacit(*(words if words[:1] == ("report",) else ("ledger", *words)))
        assert done.exit_code == code, done.output
        assert "Traceback" not in done.output
        return done.output

    return invoke


def ones(users):
    return Block(users, {"values": np.ones((users, 1))})


@pytest.fixture
def one(tmp_path):
    """A ledger of one run: two blocks, one asked twice; saved and resumed."""
    path, state = tmp_path / "one.ledger", tmp_path / "state"
    curator = JointDP(1.0, 1e-6).curator(ledger=path, autosave=state)
    mu = curator.privacy.budget.mu
    curator.add(ones(3))
    curator.release(SUM, mu=0.6 * mu)
    curator.release(SUM, mu=0.8 * mu)
    curator = JointCurator.load(state, ledger=path, autosave=state)
    curator.release(SUM, block=curator.add(ones(2)), mu=0.5 * mu)
    return path


@pytest.fixture
def people(tmp_path):
    """Two runs on five people; two take part in both."""
    path = tmp_path / "people.ledger"
    Ledger.create_for_people(path, JointDP(1.0, 1e-6), note="the ward")
    for epsilon, users in ((0.5, [1, 2, 3]), (0.6, [2, 3, 4, 5])):
        curator = JointDP(epsilon, 1e-6).curator(ledger=path)
        curator.add(ones(len(users)), users)
        curator.release(SUM)
    return path


def cost(epsilon):
    return Budget(epsilon, 1e-6).mu ** 2


# tacit ledger show


def test_show_of_one_run(call, one):
    limit = cost(1.0)
    found = json.loads(call("show", one, "--json"))
    assert (found["kind"], found["unit"], found["limit"]) == ("one run", "mu^2", limit)
    assert found["spent"]["of"] == "blocks"
    assert found["spent"]["count"] == 2
    assert found["spent"]["max"] == pytest.approx(limit)
    assert found["spent"]["median"] == pytest.approx(0.25 * limit)
    (run,) = found["runs"]
    assert (run["releases"], run["blocks"], run["resumes"], run["people"]) == (3, 2, 1, None)
    assert run["saves"] == 5  # at the start, per release, and at the resume
    assert (run["unsettled"], run["simulation"]) == (0, False)
    text = call("show", one)
    assert "a ledger of one run" in text
    assert "2 blocks, most 0.056029, median 0.0140073 (100 % of the limit)" in text
    assert "run 1: 3 releases about 2 blocks, 5 saves, 1 resume\n" in text


def test_show_of_people(call, people):
    found = json.loads(call("show", people, "--json"))
    assert (found["kind"], found["note"], found["spent"]["count"]) == ("people", "the ward", 5)
    assert found["spent"]["max"] == pytest.approx(cost(0.5) + cost(0.6))
    assert found["spent"]["median"] == pytest.approx(cost(0.6))
    assert [run["people"] for run in found["runs"]] == [3, 4]
    assert [run["user_cost"] for run in found["runs"]] == pytest.approx([cost(0.5), cost(0.6)])
    text = call("show", people)
    assert "note: the ward" in text
    assert "5 people" in text
    assert "run 2: 1 release about 1 block, 4 people, 0 saves, 0 resumes" in text


def test_show_of_an_empty_ledger(call, tmp_path):
    path = tmp_path / "l"
    Ledger.create(path, 2.0, unit="epsilon")
    assert json.loads(call("show", path, "--json"))["runs"] == []
    assert "0 blocks, most 0, median 0 (0 % of the limit)" in call("show", path)


def test_what_a_crash_left_is_shown(call, one):
    Ledger.open(one).charge({"new": 0.01}, "cut off", pending=True)
    assert "1 not settled" in call("show", one)
    assert "paid for, not published" in call("report", one)


def test_a_simulation_is_named(call, tmp_path):
    path = tmp_path / "l"
    JointDP(1.0, 1e-6).curator(ledger=path, noise_seed=0)
    assert "simulation only" in call("show", path)
    assert "protects nobody" in call("report", path)


# tacit ledger verify


def test_a_whole_ledger_is_well(call, one, people):
    assert call("verify", one).startswith("well: 10 entries, the chain is whole, 2 blocks within")
    assert "5 people within" in call("verify", people)
    found = json.loads(call("verify", people, "--json"))
    assert (found["well"], found["problem"], found["entries"]) == (True, None, 6)


@pytest.mark.parametrize("line", [1, 4, 10, 11])
def test_the_first_bad_line_is_named(call, one, line):
    lines = one.read_bytes().splitlines(keepends=True)
    assert len(lines) == 11
    lines[line - 1] = lines[line - 1].replace(b'"hash": "', b'"hash": "0', 1)
    one.write_bytes(b"".join(lines))
    assert f"line {line} was altered" in call("verify", one, code=1)
    found = json.loads(call("verify", one, "--json", code=1))
    assert not found["well"]
    assert f"line {line} " in found["problem"]
    # The others cannot account for it either.
    for command in ("show", "report"):
        assert f"line {line} was altered" in call(command, one, code=2)


def test_a_removed_line_is_named(call, one):
    lines = one.read_bytes().splitlines(keepends=True)
    one.write_bytes(b"".join(lines[:3] + lines[4:]))
    assert "line 4 was altered, or a line before it was removed" in call("verify", one, code=1)


def test_an_overspent_ledger_with_a_right_chain_is_bad(call, one):
    lines = one.read_bytes().splitlines(keepends=True)
    previous = json.loads(lines[-1])["hash"]
    record = {"sequence": 11, "event": "charge", "label": "x", "costs": {"k": 1.0}}
    one.write_bytes(b"".join(lines) + chain.seal(record, previous))
    assert "line 12 brings 'k' to 1.0 mu^2, above its limit" in call("verify", one, code=1)


def test_a_torn_line_is_no_fault(call, one):
    whole = one.read_bytes()
    one.write_bytes(whole + b'{"sequence": 12')
    assert "last 15 bytes are a line that a crash cut off" in call("verify", one)
    assert json.loads(call("verify", one, "--json"))["torn_bytes"] == 15
    assert one.read_bytes() == whole + b'{"sequence": 12'  # nothing is changed by looking


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x00\xff\n", b"{}\n", b'{"a": 1}\n' * 3])
@pytest.mark.parametrize("command", ["verify", "show", "report"])
def test_foreign_files_are_refused(call, tmp_path, command, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    output = call(command, path, code=2)
    assert output.startswith("tacit: ")
    assert output.count("\n") == 1


def test_a_ledger_of_a_later_release_is_not_judged(call, tmp_path):
    path = tmp_path / "l"
    Ledger.create(path, 1.0, unit="mu^2")
    record = json.loads(path.read_bytes())
    del record["hash"]
    path.write_bytes(chain.seal(record | {"version": 3}, ""))
    assert "version 3; this release reads (1, 2)" in call("verify", path, code=2)


@pytest.mark.parametrize("command", ["verify", "show", "report"])
def test_missing_files_and_folders_are_one_line(call, tmp_path, command):
    assert "No such file" in call(command, tmp_path / "nothing", code=2)
    output = call(command, tmp_path, code=2)
    assert "irectory" in output or "not a file" in output


# tacit report, of any ledger


def test_report_of_one_run_converts_to_the_declared_budget(call, one):
    found = json.loads(call("report", one, "--json"))
    assert found["delta"] == 1e-6
    assert found["user"]["limit_epsilon"] == pytest.approx(1.0)
    assert found["user"]["spent_epsilon"] == pytest.approx(1.0)
    charges = found["runs"][0]["charges"]
    shares = [charge["cost"] / found["limit"] for charge in charges]
    assert shares == pytest.approx([0.36, 0.64, 0.25])
    assert {charge["time"] for charge in charges} == {NOON}
    other = json.loads(call("report", one, "--json", "--delta", "1e-9"))
    assert other["user"]["spent_epsilon"] > 1.2
    text = call("report", one)
    assert "(1, 1e-06)-joint differential privacy" in text
    assert "| has spent at most | 0.056029 | 1 |" in text
    assert f"| release clipped sum | 3 | {NOON} | {NOON} | 0.0358586 mu^2 |" in text


def test_report_of_people_adds_runs_up(call, people):
    found = json.loads(call("report", people, "--json"))
    assert [run["user_epsilon"] for run in found["runs"]] == pytest.approx([0.5, 0.6])
    together = Budget(0.5, 1e-6).mu, Budget(0.6, 1e-6).mu
    spent = epsilon_from_mu(math.hypot(*together), 1e-6)
    assert found["user"]["spent_epsilon"] == pytest.approx(spent)
    assert 0.6 < spent < 1.0
    assert [[j["people"] for j in run["joins"]] for run in found["runs"]] == [[3], [4]]
    text = call("report", people)
    assert "# Privacy report on people.ledger" in text
    assert f"| 2 | real | {NOON} to {NOON} | 4 | 1 | 1 |" in text
    assert f"5 people have an account; the median is {at_most(cost(0.6), 6)} of" in text


def test_report_of_pure_and_of_exact_budgets(call, tmp_path):
    pure, exact = tmp_path / "pure", tmp_path / "exact"
    for path, model in (
        (pure, JointDP(0.5, 0.0)),
        (exact, JointDP(0.5, 1e-6)),
    ):
        curator = model.curator(ledger=path)
        curator.add(ones(2))
        curator.release(SUM)
    found = json.loads(call("report", pure, "--json", "--delta", "1e-6"))
    assert (found["unit"], found["delta"], found["user"]["spent_epsilon"]) == ("epsilon", 0.0, 0.5)
    found = json.loads(call("report", exact, "--json"))
    assert found["unit"] == "mu^2"
    assert found["user"]["spent_epsilon"] == pytest.approx(0.5)


def test_users_who_return_are_accounted_at_user_level(call, tmp_path):
    for disjoint in (False, True):
        path = tmp_path / f"{disjoint}"
        model = JointDP(1.0, 1e-6, episodes_per_user=3, disjoint=disjoint)
        curator = model.curator(ledger=path)
        curator.add(ones(2), [1, 2])
        curator.release(SUM)
        found = json.loads(call("report", path, "--json"))
        assert found["user"]["spent_epsilon"] == pytest.approx(1.0)
        assert found["limit"] == pytest.approx(cost(1.0) / (3 if disjoint else 9))


def test_a_delta_is_asked_for_where_none_was_declared(call, tmp_path):
    path = tmp_path / "l"
    Ledger.create(path, 0.25, unit="mu^2").charge({"a": 0.25}, "x")
    assert "--delta is missing" in call("report", path, code=2)
    found = json.loads(call("report", path, "--json", "--delta", "1e-6"))
    assert found["user"]["spent_epsilon"] == pytest.approx(epsilon_from_mu(0.5, 1e-6))
    assert "does not say what it promised" in call("report", path, "--delta", "1e-6")
    for wrong in ("2", "0", "-1", "soon"):
        assert "delta" in call("report", path, "--delta", wrong, code=2)


# tacit ledger create


def test_create_makes_a_ledger_of_people_once(call, tmp_path):
    path = tmp_path / "l"
    budget = ("--epsilon", "1", "--delta", "1e-6")
    text = call("create", path, *budget, "--relation", "zero-out", "--note", "spring")
    assert "one person may spend 0.056029 mu^2 over all runs" in text
    ledger = Ledger.open(path)
    assert (ledger.people, ledger.note, ledger.terms.relation) == (True, "spring", "zero-out")
    assert "no ledger is ever overwritten" in call("create", path, *budget, code=2)
    for wrong in (("--epsilon", "-1", "--delta", "0"), ("--epsilon", "1")):
        call("create", tmp_path / "wrong", *wrong, code=2)
    call("create", tmp_path / "wrong", *budget, "--relation", "both", code=2)
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("command", ["create", "show", "verify", "repair"])
def test_help_has_an_example(call, command):
    assert f"tacit ledger {command}" in call(command, "--help")


def test_without_a_command_the_commands_are_listed(call):
    output = call()
    assert all(command in output for command in ("create", "show", "verify", "repair"))


def test_no_file_is_a_complaint(call):
    assert "FILE" in call("show", code=2)


def test_a_report_rounds_epsilons_up(call, tmp_path):
    """An auditor reads "may spend" as a bound."""
    path = tmp_path / "people.ledger"
    call("create", path, "--epsilon", 1.00049, "--delta", 1e-6)
    assert "| may spend | 0.05608 | 1.001 |" in call("report", path)
    rng = np.random.default_rng(1)
    for epsilon in [*np.exp(rng.uniform(-20.0, 12.0, 500)), 9.9996, 0.00099994, 99995.0, 123449.0]:
        shown = float(at_most(float(epsilon)))
        assert epsilon * (1.0 - 1e-9) <= shown <= epsilon * 1.0011


def test_verify_says_which_runs_protect_nobody(call, tmp_path):
    """A ledger can be well although somebody knows the noise."""
    path, model = tmp_path / "people.ledger", JointDP(0.3, 1e-6)
    Ledger.create_for_people(path, JointDP(1.0, 1e-6))
    model.curator(ledger=path).add(ones(2), [1, 2])
    assert "simulation" not in call("verify", path)
    model.curator(ledger=path, noise_seed=1).add(ones(2), [1, 2])
    said = call("verify", path)
    assert said.startswith("well: 4 entries")
    assert "Run 2 is a simulation" in said
    assert "Run 1" not in said
    assert json.loads(call("verify", path, "--json"))["simulations"] == [2]


# Witnesses, locks and repair


def test_a_ledger_older_than_its_witness_is_refused(call, people):
    head = Ledger.open(people).head
    assert head in call("show", people)
    assert json.loads(call("show", people, "--json"))["head"] == head
    assert f"head: {head}" in call("verify", people, "--expect", head[:16])
    lines = people.read_bytes().splitlines(keepends=True)
    people.write_bytes(b"".join(lines[:-1]))
    call("verify", people)
    assert "older than its witness" in call("verify", people, "--expect", head, code=1)
    assert "older than its witness" in call("show", people, "--expect", head, code=2)
    assert "hexadecimal" in call("show", people, "--expect", "x", code=2)


def test_a_published_policy_is_a_witness(call, tmp_path):
    path, policy, world = tmp_path / "one.ledger", tmp_path / "policy.npz", riverswim(3, 3)
    agent = UCBVI(world.spec, 20, JointDP(1.0, 1e-6), schedule="fixed:size=10", ledger=path)
    agent.publish(tmp_path / "first.npz")
    for seed in range(2):
        older = path.read_bytes()
        agent.learn(world.simulate(agent.policy, 10, np.random.default_rng(seed), "episodes"))
    agent.publish(policy)
    facts, first = published.about(policy), published.about(tmp_path / "first.npz")
    lines, head = witness_of(Ledger.open(path))
    assert facts | {"version": 2, "ledger_line": lines, "ledger_head": head} == facts
    assert json.loads(path.read_bytes().splitlines()[lines - 1])["hash"] == head
    assert (first["ledger_line"], lines) == (2, len(path.read_bytes().splitlines()))
    assert f"head: {head}" in call("verify", path, "--expect", policy)
    path.write_bytes(older)
    call("verify", path)
    call("verify", path, "--expect", tmp_path / "first.npz")
    assert "older than its witness" in call("verify", path, "--expect", policy, code=1)
    assert "older than its witness" in call("show", path, "--expect", policy, code=2)
    assert "ended: all runs" in call("repair", path, "--expect", policy)
    agent.policy.publish(policy)
    assert "no witness" in call("verify", path, "--expect", policy, code=2)
    policy.write_bytes(b"PK")
    assert "no published policy" in call("verify", path, "--expect", policy, code=2)


def test_repair_says_what_it_did(call, people):
    assert "nothing was changed" in call("repair", people)
    lines = people.read_bytes().splitlines(keepends=True)
    people.write_bytes(b"".join([*lines[:3], b"\0" * 300 + b"\n", *lines[4:]]))
    assert "line 4" in call("verify", people, code=1)
    text = call("repair", people)
    assert "line 4" in text
    assert "kept: 2 entries" in text
    assert "to everybody, known or not" in text
    assert "ended: all runs from before" in text
    assert "well: 3 entries" in call("verify", people)
    assert "repaired 1 time" in call("show", people)
    assert "The ledger was repaired, 1 time" in call("report", people)
    again = json.loads(call("repair", people, "--json"))
    assert (again["problem"], again["kept"]) == ("", 0)


def test_disorder_is_repaired_without_loss(call, one):
    lines = one.read_bytes().splitlines(keepends=True)
    one.write_bytes(b"".join([*lines[:2], lines[1], *lines[2:]]))
    call("verify", one, code=1)
    assert "Nothing was lost" in call("repair", one)
    assert json.loads(call("show", one, "--json"))["repairs"] == 1


def test_what_cannot_be_repaired_is_a_complaint(call, one):
    lines = one.read_bytes().splitlines(keepends=True)
    damaged = lines[0].replace(b"limit", b"LIMIT") + b"".join(lines[1:])
    one.write_bytes(damaged)
    assert "first line is damaged" in call("repair", one, code=2)
    assert one.read_bytes() == damaged


def test_a_locked_ledger_is_a_complaint(call, people, monkeypatch):
    monkeypatch.setenv("TACIT_LEDGER_TIMEOUT", "0.01")
    # By another thread: one that locks a file twice gave up its first lock.
    with Ledger.open(people)._journal.locked(), ThreadPoolExecutor(1) as others:
        text = others.submit(call, "show", people, code=2).result()
    assert f"process {os.getpid()} on" in text
