"""Policies that were trained elsewhere: tried by returns, in store and ledger, refused by kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import InvalidArgument, JointDP, Policy
from tacit.continuous import Polynomial, QPolicy, line
from tacit.core.agent import open_run
from tacit.core.arms import CHALLENGER, EXPLORING
from tacit.core.world import simulate
from tacit.store import ledger
from tacit.tabular import riverswim

WORLD = riverswim()
LEFT, RIGHT = (Policy.deterministic(np.full((20, 6), a), 2) for a in (0, 1))


def agent_of(baseline: Any = LEFT, **more: Any) -> tacit.Agent:
    given = {"holdout": 0.1, "noise_seed": 1, "schedule": "fixed:size=4000", **more}
    return tacit.UCBVI(WORLD.spec, 12_000, JointDP(1.0, 1e-6), baseline=baseline, **given)


def served(agent: tacit.Agent, users: int, rng: np.random.Generator) -> Any:
    agent.learn(simulate(WORLD, agent.policy, users, rng, "episodes"))
    return agent.plan.memory


@pytest.mark.parametrize("good", [True, False])
def test_a_better_one_takes_over_and_a_worse_one_does_not(good: bool, tmp_path: Path) -> None:
    baseline, other = (LEFT, RIGHT) if good else (RIGHT, LEFT)
    agent, rng = agent_of(baseline, store=str(tmp_path / "app.db")), np.random.default_rng(0)
    before = agent.policy.version
    agent.adopt(other)
    memory = agent.plan.memory
    assert memory.chances[CHALLENGER] == memory.chances[EXPLORING] > 0.05
    assert agent.policy.version == before + 1
    share = agent.policy.weights[memory.arm_of.index(CHALLENGER)]
    assert share == pytest.approx(memory.chances[CHALLENGER])
    agent.store.close()
    again = open_run(str(tmp_path / "app.db"))
    memory = served(again, 4000, rng)
    assert (memory.serving is not None) == good
    if good:
        assert (memory.serving.actions == RIGHT.actions).all()
        assert (memory.since, memory.chances[0]) == (before + 1, pytest.approx(0.1))
    with again.store.read() as db:
        said = [entry.body for entry in ledger.read(db) if entry.event == "adopt"]
    assert said == [{"to": before, "version": before + 1}]
    assert ledger.verify(again.store) == []
    assert again.guarantee.epsilon == pytest.approx(1.0)


def test_users_who_came_before_are_not_its_own() -> None:
    """In the middle of a block: they followed another challenger, which counts as exploring."""
    agent, rng = agent_of(), np.random.default_rng(0)
    served(agent, 4000, rng)
    early = agent.plan.memory.chances
    served(agent, 2000, rng)
    agent.adopt(RIGHT)
    served(agent, agent.block_users, rng)
    look = agent.state.looks[-1]
    assert look.chances[CHALLENGER] == pytest.approx(0.5 * early[CHALLENGER], rel=0.01)
    assert look.chances.sum() == pytest.approx(1.0)


def test_a_release_is_learnt_from_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a plan failed between the two commits, adopting leaves nothing out."""
    agent, rng = agent_of(), np.random.default_rng(0)
    with monkeypatch.context() as patch:
        patch.setattr(type(agent.algorithm), "plan", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            served(agent, 4000, rng)
    assert agent.releases == 0
    agent.adopt(RIGHT)
    assert (agent.releases, len(agent.state.looks)) == (1, 1)
    assert agent.plan.memory.inner.greedy.actions.tolist() == RIGHT.actions.tolist()


def test_a_trial_costs_its_share() -> None:
    """Returns are released with the share of arms: a look that is free would have no noise."""
    agent, rng = agent_of(), np.random.default_rng(0)
    agent.adopt(RIGHT)
    served(agent, 4000, rng)
    mu = agent.privacy.episode_mu * agent.algorithm.arms.share**0.5
    assert agent.state.looks[-1].noise == pytest.approx(2.0 / mu, rel=1e-3)


def test_any_policy_of_vectors_is_tried() -> None:
    """A linear one beside a grid's; on the line up is right below the middle."""
    world = line()
    agent = tacit.ModelPosterior(world.spec, 600, JointDP(10.0, 1e-6), holdout=0.1, noise_seed=1)
    up = QPolicy(Polynomial((1.0,), 2.0, 1), [[-0.5, 1.0], [0.5, -1.0]])
    agent.adopt(up)
    assert agent.plan.memory.inner.greedy.features == up.features
    assert world.value(up) > 20.0
    with pytest.raises(InvalidArgument, match="policy must be one like <QPolicy"):
        agent.adopt(QPolicy.uniform(2, 2))


def test_others_are_refused_by_name() -> None:
    agent, rng = agent_of(), np.random.default_rng(0)
    for wrong in (QPolicy.uniform(1, 2), Policy.uniform(19, 6, 2), Policy.uniform(20, 6, 3), None):
        with pytest.raises(InvalidArgument, match=r"policy must be one like <Policy .* got"):
            agent.adopt(wrong)
    while agent.block_users:
        served(agent, agent.block_users, rng)
    with pytest.raises(InvalidArgument, match="no share of users tries other policies"):
        agent.adopt(RIGHT)
    alone = tacit.UCBVI(WORLD.spec, 100, JointDP(1.0, 1e-6), noise_seed=0)
    with pytest.raises(InvalidArgument, match="give baseline= or holdout="):
        alone.adopt(RIGHT)
