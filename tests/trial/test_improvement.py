"""One step of improvement in finite worlds."""

from functools import partial

import numpy as np
import pytest

import tacit
from tacit import CentredImprovement, JointDP, NonPrivate, tabular
from tacit.privacy.errors import InvalidArgument
from tacit.testing.check_agent import check_agent

JOINT = JointDP(1.0, 1e-6)


@pytest.mark.slow
def test_it_passes_the_check():
    make = partial(CentredImprovement, privacy=JOINT, rounds=3, discount=0.5)
    check_agent(make, tabular.riverswim(4, 8), users=60)


def test_people_are_served_in_rounds_by_a_floor():
    world = tabular.random_mdp(6, 3, 60, seed=1)
    agent = CentredImprovement(world.spec, 301, NonPrivate(), rounds=2)
    assert agent.schedule.blocks == (151, 150)
    rng = np.random.default_rng(0)
    agent.learn(world.simulate(agent.policy, 151, rng, "episodes"))
    table, greedy = agent.policy.table(), agent.greedy_policy.table()
    assert table.min() >= 0.4 / 3 - 1e-12
    assert (table == table[:1]).all()
    assert greedy.min() < 0.4 / 3
    assert (greedy[0].argmax(axis=1) == table[0].argmax(axis=1)).all()


@pytest.mark.parametrize("actions", [2, 3])
def test_without_privacy_it_improves_much(actions):
    world = tabular.random_mdp(6, actions, 100, seed=2)
    agent = CentredImprovement(world.spec, 600, NonPrivate())
    assert tacit.run(agent, world, seed=0, progress=False).greedy_score > 0.7


@pytest.mark.parametrize(
    "wrong",
    [
        {"privacy": tacit.LocalDP(1.0, 1e-6)},
        {"privacy": JointDP(1.0, 0.0)},
        {"privacy": JOINT, "discount": 1.0},
        {"privacy": JOINT, "rounds": 0},
        {"privacy": JOINT, "spec": tacit.lq.dosing().spec},
    ],
)
def test_other_terms_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        CentredImprovement(**{"spec": tabular.riverswim().spec, "users": 12} | wrong)
