"""``tacit report``: what it promises in words, its numbers, its policies, and what it refuses."""

import hashlib
import html
import json
import re

import numpy as np
import pytest
import yaml

import tacit
from tacit import JointDP, published
from tacit.cli.report import page
from tacit.cli.terminal import at_most
from tests.cli.calls import call as run_tacit

WORLD = tacit.tabular.riverswim(3, 4)


def call(*words, code=0):
    """What it prints; of a page the text, a line for each row of a table."""
    done = run_tacit("report", *words)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    rows = re.sub(r"</td><td>|</th><th>", " | ", done.output.replace("<tr>", "<tr>| "))
    return html.unescape(re.sub(r"<[^>]+>", "", rows.replace("</tr>", " |</tr>\n")))


def agent_of(path, users=300, privacy=None, **options):
    options = {"schedule": "fixed:size=100"} | options
    return tacit.UCBVI(WORLD.spec, users, privacy or JointDP(1.0, 1e-6), store=path, **options)


@pytest.fixture
def files(tmp_path):
    """A real run of three episodes per user, whose versions 1 and 2 were published."""
    store, found = tmp_path / "ward.db", [tmp_path / f"policy{v}.npz" for v in (1, 2)]
    agent = agent_of(store, privacy=JointDP(1.0, 1e-6, episodes_per_user=3), name="ward")
    rng = np.random.default_rng(0)
    for path in found:
        agent.learn(WORLD.simulate(agent.policy, 100, rng))
        agent.publish(path)
    agent.store.close()
    return store, *found


def head(store):
    return json.loads(run_tacit("ledger", "show", store, "--json").output)["head"]


def test_the_page_says_what_is_guaranteed_and_how_to_check_it(files):
    store, first, second = files
    text = call(store, "--policy", first, "--policy", second)
    assert f"tacit ledger verify ward.db --expect {head(store)}" in text
    assert "ward: (1, 1e-06)-joint differential privacy for one user with at most 3" in text
    assert "A user takes part with at most 3 episodes: each may cost" in text
    assert "Real: the noise has no seed that is known." in text
    for path, version in ((first, 1), (second, 2)):
        digest, said = hashlib.sha256(path.read_bytes()).hexdigest(), published.about(path)
        after = f"{said['ledger_line']} | {said['date']}"
        assert f"| {path.name} | {version} | {after} | {digest} |" in text


def test_what_is_spent_never_reads_as_more_than_what_may_be(tmp_path):
    """For budgets whose limits round either way."""
    for epsilon in (0.3, 1.00049, 2.7182818):
        path = tmp_path / f"{epsilon}.db"
        agent = agent_of(path, privacy=JointDP(epsilon, 1e-6), name="ward")
        for served in range(2):
            text = call(path)
            rows = re.findall(r"\| ward \| ([\d.]+) \| (\S+) \| (\S+) \| ", text)
            assert len(rows) == 2
            for limit, used, left in (map(float, row) for row in rows):
                assert used <= limit
                assert (used > 0, left > 0) == (bool(served), not served)
            agent.learn(WORLD.simulate(agent.policy, 100, np.random.default_rng(0)))
        assert f"{at_most(epsilon)}" in call(path)
        agent.store.close()
    assert at_most(0.123456789, least=True) == "0.123456"


@pytest.mark.parametrize(
    ("privacy", "more", "said", "who"),
    [
        (tacit.LocalDP(1.0, 0.0), {}, "nothing to account for", "local: each device adds"),
        (JointDP(1.0, 0.0), {}, "| run | 1 | 0 | 1 | epsilon at delta = 0 |", "a trusted curator"),
        (JointDP(1.0, 1e-6), {"holdout": 0.1}, "within budget", "a trusted curator"),
        (tacit.DistributedDP(1.0, 1e-6), {}, "nothing to account for", "a share of the noise"),
    ],
)
def test_words_are_the_same_in_all_files(tmp_path, privacy, more, said, who):
    store, kind = tmp_path / "a.db", (tacit.UCBVI, tacit.ConcurrentPSRL)["share" in who]
    agent = kind(WORLD.spec, 300, privacy, store=store, **more)
    agent.publish(tmp_path / "a.json", force=True)
    agent.simulator(2).save(tmp_path / "a.npz", force=True)
    agent.store.close()
    text = call(store, "--policy", tmp_path / "a.json", "--policy", tmp_path / "a.npz")
    assert said in text
    assert str(agent.guarantee) in text
    call(store, "--output", tmp_path / "a.yaml")
    record = yaml.safe_load((tmp_path / "a.yaml").read_text())["deployment"]
    assert who in record["deployment_model"]["model_name_details"]
    assert str(agent.guarantee) in record["privacy_loss"]["privacy_unit_details"]


def test_a_page_is_one_file_and_its_facts_are_json(files, tmp_path):
    store, first, _ = files
    output = tmp_path / "report.html"
    said = call(store, "--policy", first, "--output", output)
    words = "within budget: a user of run ward has spent at most epsilon"
    assert said.startswith(f"{output}: {words} ")
    text = output.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?://|<script|src=", text)
    assert "@media print" in text
    for sentence in ("Had this user&#39;s data been any other", "Keep this page, or the head"):
        assert sentence in text
    found = json.loads(run_tacit("report", store, "--policy", first, "--json").output)
    (run,) = found["runs"]
    assert found["head"] == head(store)
    assert run["user_left"] == pytest.approx(0.0, abs=1e-9)
    assert run["promise"]["episodes_per_user"] == 3
    assert (found["tacit"], found["well"]) == (tacit.__version__, True)
    # Whatever a name is, it is text.
    assert "<h1>Privacy report on a &lt; b</h1>" in page(found | {"name": "a < b"})


def test_simulations_and_other_stores_policies_are_named(files, tmp_path):
    _, _, second = files
    path, policy = tmp_path / "simulated.db", tmp_path / "simulated.npz"
    agent = agent_of(path, 100, noise_seed=0)
    agent.learn(WORLD.simulate(agent.policy, 100, np.random.default_rng(0)))
    agent.publish(policy, force=True)
    text = call(path, "--policy", second, "--policy", policy, code=1)
    assert "Simulated: the noise of a run has a known seed." in text
    line = published.about(second)["ledger_line"]
    assert f"| 2 | {line}, which is NOT in this ledger |" in text
    assert "a simulation, which protects nobody" in text


def test_an_older_copy_is_no_account(files, tmp_path):
    """Cut after the first policy, it is a valid older store; the second policy was made later."""
    _, first, second = files
    store = tmp_path / "older.db"
    agent = agent_of(store, privacy=JointDP(1.0, 1e-6))
    agent.publish(first)
    agent.store.close()
    assert "nobody" in call(store, "--policy", first)
    text = call(store, "--policy", first, "--policy", second, code=1)
    assert "This ledger lacks the entry after which policy2.npz was published." in text
    assert "within budget: a user" not in text
    page = tmp_path / "report.html"
    said = call(store, "--policy", second, "--output", page, code=1)
    assert said.startswith(f"{page}: NOT accounted for")


def test_mistakes_are_one_line(files):
    store, first, _ = files
    assert "must end in .html" in call(store, "--output", "report.pdf", code=2)
    assert "is no published policy" in call(store, "--policy", store, code=2)
    assert "is no store" in call(first, code=2)
