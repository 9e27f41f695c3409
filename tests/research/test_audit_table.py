"""Everything that claims to be private passes its audit.

All audits have fixed seeds. One of an agent that does what it says fails by chance with a
probability below 1e-7; see ``test_mutation_suite``.
"""

import os

import pytest

from research import audit_table, study
from research.audit_table import MODELS, OPTIONS, Row, agents, audited, family, split
from research.worlds import build
from tacit.cli.audit import audited as constructor
from tacit.registry import BUILT_IN, choose_agent


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def test_every_agent_is_asked():
    names = {split(agent)[0].partition(":")[0] for agent in agents()}
    assert names == set(BUILT_IN)
    assert {family(agent) for agent in agents()} == set(audit_table.WORLDS)


def test_stored_rows_are_of_agents():
    assert set(study.load("audit_table")) <= set(agents())


@pytest.mark.slow
@pytest.mark.parametrize("agent", agents())
def test_every_private_agent_passes(agent):
    rows = [audited(agent, model) for model in MODELS]
    made = [row for row in rows if row.refused is None]
    assert made, "no model is taken"
    for row in made:
        assert row.passed, (row.model, row.failures)
        assert 0.5 < row.ratio < 1.06
    for row in rows:
        # A refusal is about the model, and not by accident.
        if row.refused is not None:
            words = (
                "privacy",
                "noise",
                "pure",
                "LocalDP",
                "JointDP",
                "local",
                "response",
                "1-norm",
            )
            assert any(word in row.refused for word in words), row.refused


@pytest.mark.parametrize("agent", ["ucbpo", "lsvi_ucb", "fitted_functional_q:serve=all"])
def test_some_pass(agent):
    row = audited(agent, "joint", runs=20, behaviour=False)
    assert row.passed, row.failures
    assert row.ratio == pytest.approx(1.0, abs=0.06)


def test_options_are_known():
    for agent in OPTIONS:
        own, place = split(agent)
        world = build(place)
        make, users = constructor(choose_agent(own), world, MODELS["joint"])
        assert make(world.spec, users=users, seed=0, noise_seed=0).guarantee is not None


def test_the_command(monkeypatch, capsys, tmp_path):
    made = [
        Row("ucbvi", "joint", None, True, 0.994),
        Row("ucbvi", "local", "not here"),
        Row("ucbvi", "joint, pure", None, False, 2.0, ("too little noise",)),
    ]
    monkeypatch.setattr(audit_table, "audited", lambda *_: made.pop(0))
    monkeypatch.setattr(audit_table, "MODELS", {row.model: None for row in made})
    monkeypatch.setattr(study, "HERE", tmp_path)
    assert audit_table.main(["--agents", "ucbvi", "--store"]) == 1
    out = capsys.readouterr().out
    line = "| `ucbvi` | 0.99 | - | FAIL |"
    assert line in out
    assert study.load("audit_table") == {"ucbvi": {"runs": audit_table._RUNS, "text": line}}
    assert "1 of 2 audits passed." in out
    assert "ucbvi under joint, pure: too little noise" in out
