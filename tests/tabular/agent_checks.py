"""What the tests of linear agents and of agents for mixtures share.

``made`` makes an agent for 240 users with some options; ``world`` is the one it is for.
"""

import math

import numpy as np
import pytest

from tacit import JointDP, NonPrivate, local
from tacit.core.problem import Schedule
from tacit.privacy.errors import HorizonExceeded, InvalidArgument
from tacit.privacy.statistic import Block
from tacit.store.values import dump

MISTAKES = [
    ({"users": 0}, "users"),
    ({"users": 2.5}, "users"),
    ({"users": True}, "users"),
    ({"privacy": 1.0}, "privacy"),
    ({"growth": 1.0}, "growth"),
    ({"growth": math.inf}, "growth"),
    ({"growth": math.nan}, "growth"),
    ({"scale": 0.0}, "scale"),
    ({"scale": math.nan}, "scale"),
    ({"schedule": "sometimes"}, "schedule"),
    ({"schedule": Schedule("mine", (5,))}, "schedule is for 5 users"),
    ({"noise_seed": -1}, "noise_seed"),
]
"""Options that agents of both families refuse, and why."""


def assert_report(report, privacy):
    """A check of an agent skips what cannot be and passes the rest."""
    assert bool(report.skipped) == isinstance(privacy, NonPrivate)
    assert {"sensitivity", "data flow", "hostile users", "resume"} <= set(report.passed)
    assert report.releases == 4


def known(agent):
    """All that a run knows, and its policies, in bytes."""
    given = (agent.state, agent.plan, agent.progress)
    return dump(given, agent.algorithm.code)


def growth_decides(made, *statistics):
    """How many releases there are."""
    for statistic in statistics:
        releases = [
            made(users=10**5, statistic=statistic, growth=growth).schedule.releases
            for growth in (1.1, 1.5, 3.0)
        ]
        assert releases == sorted(releases, reverse=True)
        assert releases[0] > 2 * releases[2]


def smaller_budgets_begin_larger(made, *statistics):
    """Their first blocks have more users."""
    for statistic in statistics:
        first = [
            made(users=10**6, statistic=statistic, privacy=JointDP(e, 1e-6)).schedule.blocks[0]
            for e in (10.0, 1.0, 0.1)
        ]
        assert first[0] < first[1] < first[2]
    assert made(privacy=NonPrivate()).schedule.blocks[0] == 1


def wrong_data_changes_nothing(agent, world, form):
    """``form`` sums users whom a clip must see one by one."""
    block = world.simulate(agent.policy, 60, np.random.default_rng(0), "episodes").block()
    before = known(agent)
    for wrong in (
        world.simulate(agent.policy, 60, np.random.default_rng(0), form),
        Block(60, {"states": block["states"]}),
        Block(60, {**block.arrays, "rewards": block["rewards"][:, :-1]}),
    ):
        with pytest.raises(InvalidArgument):
            agent.learn(wrong)
    many = {k: np.resize(v, (241, *v.shape[1:])) for k, v in block.arrays.items()}
    with pytest.raises(HorizonExceeded, match="240 users"):
        agent.learn(Block(241, many))
    assert known(agent) == before
    assert (agent.taken, agent.served) == (0, 0)


def serve(agent, world, seed=0):
    """All users, block by block."""
    rng, blocks = np.random.default_rng(seed), []
    while agent.block_users:
        block = world.simulate(agent.policy, agent.block_users, rng, "episodes").block()
        agent.learn(block)
        blocks.append(block)
    return blocks


def devices_report_what_is_asked(agent, world, privacy):
    """Three times 20 of them; their users' episodes are refused."""
    rng = np.random.default_rng(0)
    for release in range(1, 4):
        episodes = world.simulate(agent.policy, 20, rng, "episodes").block()
        rows = [
            local.report(agent.statistic, episodes.take(slice(u, u + 1)), privacy)
            for u in range(20)
        ]
        with pytest.raises(InvalidArgument, match="devices made"):
            agent.learn(episodes)
        agent.learn_reports(np.array(rows))
        assert (agent.releases, agent.policy.version) == (release, release)
