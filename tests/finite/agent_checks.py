"""What the tests of linear agents and of agents for mixtures share.

``made`` makes an agent for 240 users with some options; ``world`` is the one it is for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit import JointDP, LocalDP, NonPrivate, local
from tacit.core.schedule import Schedule
from tacit.privacy.errors import DoubleSpend, HorizonExceeded, InvalidArgument
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block
from tacit.testing.watched_gate import difference, snapshot

Floats = NDArray[np.float64]
Made = Callable[..., Any]

MISTAKES: list[tuple[dict[str, Any], str]] = [
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
    ({"privacy": NonPrivate(), "ledger": "somewhere"}, "belong to JointDP"),
]
"""Options that agents of both families refuse, and why."""
OTHERS: list[dict[str, Any]] = [
    {"users": 300},
    {"scale": 0.5},
    {"stationary": False},
    {"statistic": "counts"},
    {"growth": 1.7},
]
"""Options of which a save does not fit."""


def assert_report(report: Any, privacy: Any) -> None:
    """A check of an agent skips what cannot be and passes the rest."""
    missing = {"budget", "noise", "real resume"}
    private = not isinstance(privacy, NonPrivate)
    assert set(report.skipped) == (set() if private else missing)
    assert len(report.passed) == 8 - len(report.skipped)
    assert report.releases == 4


def growth_decides(made: Made, *statistics: str) -> None:
    """How many releases there are."""
    for statistic in statistics:
        releases = [
            made(users=10**5, statistic=statistic, growth=growth).schedule.releases
            for growth in (1.1, 1.5, 3.0)
        ]
        assert releases == sorted(releases, reverse=True)
        assert releases[0] > 2 * releases[2]


def smaller_budgets_begin_larger(made: Made, *statistics: str) -> None:
    """Their first blocks have more users."""
    for statistic in statistics:
        first = [
            made(users=10**6, statistic=statistic, privacy=JointDP(e, 1e-6)).schedule.blocks[0]
            for e in (10.0, 1.0, 0.1)
        ]
        assert first[0] < first[1] < first[2]
    assert made(privacy=NonPrivate()).schedule.blocks[0] == 1


def wrong_data_changes_nothing(agent: Any, world: Any, form: str) -> None:
    """``form`` sums users whom a clip must see one by one."""
    block = world.simulate(agent.policy, 60, np.random.default_rng(0), "episodes").block()
    before = snapshot(agent)
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
    assert not difference(before, snapshot(agent))
    assert agent._curator.blocks == ()


def serve(agent: Any, world: Any, seed: int = 0) -> list[Block]:
    """All users, block by block."""
    rng, blocks = np.random.default_rng(seed), []
    while agent.block_users:
        block = world.simulate(agent.policy, agent.block_users, rng, "episodes").block()
        agent.learn(block)
        blocks.append(block)
    return blocks


def who_comes_again_counts_as_nobody(made: Made, world: Any, statistic: str) -> None:
    """The first user of all comes in every block; elsewhere somebody invalid does."""
    options = {"statistic": statistic, "schedule": "fixed:size=20", "users": 60}
    once, twice = made(**options), made(**options)
    for number, block in enumerate(serve(made(**options), world)):
        ids = list(range(20 * number, 20 * number + 20))
        once_ids, states = list(ids), np.array(block["states"])
        if number:
            ids[7] = 0
            states[7] = -1
        twice.learn(block, user_ids=ids)
        once.learn(Block(20, {**block.arrays, "states": states}), user_ids=once_ids)
        assert not difference(snapshot(once), snapshot(twice))


def devices_report_what_is_asked(agent: Any, world: Any, privacy: LocalDP) -> None:
    """Three times 20 of them; their users' episodes are refused."""
    rng = np.random.default_rng(0)
    for release in range(1, 4):
        episodes = world.simulate(agent.policy, 20, rng, "episodes").block()
        rows = [
            local.report(agent.statistic, episodes.take(slice(u, u + 1)), privacy)
            for u in range(20)
        ]
        with pytest.raises(InvalidArgument, match="devices report"):
            agent.learn(episodes)
        agent.learn_reports(np.array(rows))
        assert (agent.releases, agent.policy.version) == (release, release)


def save_of_another_is_refused(
    made: Made, world: Any, base: dict[str, Any], other: dict[str, Any], folder: Path
) -> None:
    """And stays loadable, once."""
    path, ledger = folder / "state", folder / "ledger"
    agent = made(**base, ledger=ledger)
    agent.learn(world.simulate(agent.policy, 60, np.random.default_rng(0), "episodes"))
    agent.save(path)
    with pytest.raises(InvalidArgument, match="another agent"):
        made(**base | other).load(path, ledger=ledger)
    assert made(**base).load(path, ledger=ledger).releases == 1
    with pytest.raises(DoubleSpend):
        made(**base).load(path, ledger=ledger)


# Noise with a slip.


class Source:
    """Simulated noise with a slip."""

    simulation = True

    def __init__(self, seed: int) -> None:
        self._noise = Noise(seed)

    def steps(self, pure: bool, scale: float, count: int) -> NDArray[np.int64]:
        draws = self.laplace if pure else self.normal
        return np.rint(scale * draws((count,))).astype(np.int64)

    def normal(self, shape: tuple[int, ...]) -> Floats:
        raise NotImplementedError

    def laplace(self, shape: tuple[int, ...]) -> Floats:
        return self._noise.laplace(shape)


class Halved(Source):
    def normal(self, shape: tuple[int, ...]) -> Floats:
        return 0.5 * self._noise.normal(shape)


class DrawnOnce(Source):
    """For every shape one draw, used ever after: every release has the noise of the first."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._drawn: dict[tuple[int, ...], Floats] = {}

    def normal(self, shape: tuple[int, ...]) -> Floats:
        if shape not in self._drawn:
            self._drawn[shape] = self._noise.normal(shape)
        return self._drawn[shape]
