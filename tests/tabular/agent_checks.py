"""What the tests of linear agents and of agents for mixtures share.

``made`` makes an agent for 240 users with some options; ``world`` is the one it is for.
"""

import math

import numpy as np

from tacit import JointDP, NonPrivate
from tacit.core.problem import Schedule
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


def serve(agent, world, seed=0):
    """All users, block by block."""
    rng, blocks = np.random.default_rng(seed), []
    while agent.block_users:
        block = world.simulate(agent.policy, agent.block_users, rng, "episodes").block()
        agent.learn(block)
        blocks.append(block)
    return blocks
