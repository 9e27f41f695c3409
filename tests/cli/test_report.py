"""``tacit report``: what it promises in words, its numbers, its policies, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import pytest

import tacit
from tacit import Block, JointDP, published
from tacit.cli.output import at_least, at_most
from tacit.cli.report import html, markdown
from tacit.privacy.ledger import Ledger, journal
from tacit.privacy.standard import ClippedSum
from tests.cli.calls import call as run_tacit

NOON = "2026-01-02T12:00:00+00:00"
WORLD = tacit.tabular.riverswim(3, 4)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(journal, "_now", lambda: NOON)


def call(*words, code=0):
    done = run_tacit("report", *words)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done.output


@pytest.fixture
def files(tmp_path):
    """A real run of three episodes per user, whose versions 1 and 2 were published."""
    ledger, found = tmp_path / "ward.ledger", [tmp_path / f"policy{v}.npz" for v in (1, 2)]
    privacy = JointDP(1.0, 1e-6, episodes_per_user=3)
    agent = tacit.UCBVI(WORLD.spec, 300, privacy, ledger=ledger, schedule="fixed:size=100")
    rng = np.random.default_rng(0)
    for path in found:
        agent.learn(WORLD.simulate(agent.policy, 100, rng))
        agent.publish(path)
    return ledger, *found


def numbers(text):
    """The table of one user: spent, limit and left."""
    rows = re.findall(r"\| (may spend|has \w+ at \w+) \| (\S+) \| (\S+) \|", text)
    return {name: (float(a), float(b)) for name, a, b in rows}


def test_the_page_says_what_is_guaranteed_and_how_to_check_it(files):
    ledger, first, second = files
    text = call(ledger, "--policy", first, "--policy", second)
    head = Ledger.open(ledger).head
    assert f"tacit ledger verify ward.ledger --expect {head}" in text
    assert "(1, 1e-06)-joint differential privacy for one user with at most 3 episodes" in text
    assert "at most 3 episodes, which may be in one release: each may cost" in text
    assert "Real: the noise has no seed that is known." in text
    assert NOON in text
    lines = [e.sequence + 1 for e in Ledger.open(ledger).entries if e.event == "charge"]
    for path, version, made in (
        (first, 1, str(lines[0])),
        (second, 2, f"{lines[0]}-{lines[1]}"),
    ):
        digest, said = hashlib.sha256(path.read_bytes()).hexdigest(), published.about(path)
        after = f"{said['ledger_line']} | {said['date']}"
        assert f"| {path.name} | {version} | {made} | {after} | `{digest}` |" in text


def test_what_is_spent_never_reads_as_more_than_what_may_be(tmp_path):
    """For budgets whose limits round either way; the shares are spent to the last bit."""
    for epsilon in (0.3, 0.7, 1.0, 1.00049, 2.7182818):
        path = tmp_path / f"{epsilon}.ledger"
        curator = JointDP(epsilon, 1e-6).curator(ledger=path)
        curator.add(Block(3, {"values": np.ones((3, 1))}))
        part = curator.privacy.budget.mu / np.sqrt(3.0)
        for spent in range(3):
            curator.release(ClippedSum(1), mu=part)
            shown = numbers(call(path))
            for column in (0, 1):
                limit, used, left = (
                    shown[name][column]
                    for name in ("may spend", "has spent at most", "has left at least")
                )
                assert used <= limit
                assert left <= limit
                assert (left > 0) == (spent < 2)
        assert f"{at_most(epsilon)}" in call(path)
    assert at_least(0.123456789) == "0.1234"


def test_html_is_one_file_that_says_the_same(files, tmp_path):
    ledger, first, _ = files
    page = tmp_path / "report.html"
    said = call(ledger, "--policy", first, "--output", page)
    assert said == f"{page}: within budget: one user has spent at most epsilon 1 of 1\n"
    html = page.read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?://|<script|src=", html)
    assert "@media print" in html
    assert Ledger.open(ledger).head in html
    words = re.sub(r"\W+", " ", re.sub(r"<[^>]+>|&\w+;|&#x27;", " ", html))
    for sentence in ("Had this user s data been any other", "Keep this page or the head above"):
        assert sentence in words


def test_json_has_the_same_numbers(files, tmp_path):
    ledger, first, _ = files
    path = tmp_path / "report.json"
    call(ledger, "--policy", first, "--output", path)
    found = json.loads(path.read_text())
    assert found["head"] == Ledger.open(ledger).head
    assert found["user"]["spent"] <= found["user"]["limit"] * (1 + 1e-9)
    assert found["user"]["left"] == pytest.approx(0.0, abs=1e-9)
    assert found["policies"][0]["accounted"]
    assert found["guarantees"][0]["short"].startswith("(1, 1e-06)-JDP per user, replace-one")
    assert found["tacit"] == tacit.__version__


def test_simulations_and_other_ledgers_policies_are_named(files, tmp_path):
    _, _, second = files
    path = tmp_path / "simulated.ledger"
    agent = tacit.UCBVI(
        WORLD.spec, 100, JointDP(1.0, 1e-6), ledger=path, noise_seed=0, schedule="fixed:size=100"
    )
    agent.learn(WORLD.simulate(agent.policy, 100, np.random.default_rng(0)))
    text = call(path, "--policy", second, code=1)
    assert "**Simulated: the noise of a run has a known seed." in text
    line = published.about(second)["ledger_line"]
    assert f"| 2 | NOT in this ledger | {line}, which is NOT in this ledger |" in text
    agent.publish(tmp_path / "simulated.npz", force=True)
    text = call(path, "--policy", tmp_path / "simulated.npz")
    assert "a simulation, which protects nobody" in text
    people = tmp_path / "people.ledger"
    Ledger.create_for_people(people, JointDP(1.0, 1e-6), note="the ward")
    assert "the ward" in call(people)


@pytest.mark.parametrize("named", [True, False], ids=["by its line", "by its blocks"])
def test_a_ledger_that_lacks_lines_of_a_policy_is_no_account(files, tmp_path, named):
    """Cut after the first release, it is a valid older ledger; the second policy was made later."""
    ledger, first, second = files
    if not named:  # the policy says nothing of the ledger
        rng = np.random.default_rng(0)
        agent = tacit.UCBVI(WORLD.spec, 300, JointDP(1.0, 1e-6), schedule="fixed:size=100")
        for _ in range(2):
            agent.learn(WORLD.simulate(agent.policy, 100, rng))
        agent.publish(second)
    whole = ledger.read_bytes().splitlines(keepends=True)
    line = published.about(first)["ledger_line"]
    ledger.write_bytes(b"".join(whole[:line]))
    assert "within budget: one user" in call(ledger, "--policy", first)
    text = call(ledger, "--policy", first, "--policy", second, code=1)
    assert "**This ledger lacks lines after which `policy2.npz` was published." in text
    assert "within budget: one user" not in text
    for form in ("html", "json"):
        page = tmp_path / f"report.{form}"
        said = call(ledger, "--policy", second, "--output", page, code=1)
        assert said.startswith(f"{page}: NOT accounted for")
        assert said.count("\n") == 1
    assert '<p class="warning">This ledger lacks lines' in (tmp_path / "report.html").read_text()
    found = json.loads(page.read_text())
    assert found["unaccounted"] == ["policy2.npz"]
    assert found["verdict"].startswith("NOT accounted for")


def test_the_report_says_that_taking_part_is_not_hidden(files, tmp_path):
    page = tmp_path / "report.html"
    call(files[0], "--output", page)
    for text in (call(files[0]), page.read_text()):
        assert "That she took part, when and how often, is not hidden." in text


def test_mistakes_are_one_line(files, tmp_path):
    ledger, first, _ = files
    for words, said in (
        ((ledger, "--output", "report.pdf"), "--output must end in .html, .md, .json"),
        ((ledger, "--policy", ledger), "is no published policy"),
        ((tmp_path / "nothing",), "No such file"),
        ((first,), "of a Tacit ledger"),
        ((ledger, "--expect", "f" * 64), "tacit:"),
        ((ledger, "--delta", "x"), "delta"),
    ):
        output = call(*words, code=2)
        assert said in output
        assert output.count("\n") == 1


def test_a_document_escapes_what_it_is_given():
    blocks = [("h1", "a < b"), ("h2", "x & y"), "<b>", ("pre", "a > b"), ("warning", "no")]
    blocks.append(("table", [("a|b", "c"), ("<i>", ""), ("d\ne", "f | g")]))
    page = html(blocks)
    assert "<h1>a &lt; b</h1>" in page
    assert "<h2>x &amp; y</h2>" in page
    assert "<p>&lt;b&gt;</p>" in page
    assert "<pre>a &gt; b</pre>" in page
    assert "<tr><th>a|b</th><th>c</th></tr>" in page
    assert "<tr><td>&lt;i&gt;</td><td></td></tr><tr><td>d e</td><td>f | g</td></tr>" in page
    assert "| a\\|b | c |" in markdown(blocks)
    assert "**no**" in markdown(blocks)


@pytest.mark.parametrize("text", ["# no", "| {no} |", "**no**", "```sh", "x: ____________________"])
def test_what_is_given_is_a_paragraph_whatever_it_looks_like(text):
    assert f"<p>{text}</p>" in html([("h1", "a"), text])
