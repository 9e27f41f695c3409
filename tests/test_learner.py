"""What a family gets from Learner by writing the hooks that it must, and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Block, JointDP, NonPrivate
from tacit.finite import FiniteSpec
from tacit.finite_learner import FiniteLearner
from tacit.policy import Policy
from tacit.privacy.errors import InvalidArgument
from tacit.schedule import Schedule
from tacit.visits import VisitCounts

SPEC = FiniteSpec(states=3, actions=2, horizon=4, stationary=False)
PRIVATE = JointDP(1.0, 1e-6)


class Adds(FiniteLearner[VisitCounts]):
    """Adds up rewards and follows the largest sums."""

    name = "adds"

    def __init__(self, *args: Any, **options: Any) -> None:
        self.sums = np.zeros((SPEC.horizon, SPEC.states, SPEC.actions))
        super().__init__(*args, **options)

    def _statistic(self) -> VisitCounts:
        return VisitCounts(SPEC.states, SPEC.actions, SPEC.horizon)

    def _absorb(self, release: Any, statistic: VisitCounts, users: int) -> None:
        self.sums[statistic.where] += release["rewards"]

    def _plan(self) -> tuple[Policy, Policy]:
        return self._best(self.sums), self._best(self.sums)

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        return Schedule.of("fixed:size=10" if schedule == "auto" else schedule, self.users)

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {"sums": self.sums}

    def _set_state(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        self.sums = arrays["sums"]


class Keeps(Adds):
    """Asks nobody again, but could."""

    def _forget_blocks(self) -> None:
        pass


def block_of(users: int, seed: int = 0) -> Block:
    rng = np.random.default_rng(seed)
    H = SPEC.horizon
    return Block(
        users,
        {
            "states": rng.integers(0, SPEC.states, (users, H + 1)),
            "actions": rng.integers(0, SPEC.actions, (users, H)),
            "rewards": rng.random((users, H)),
        },
    )


def test_blocks_become_policies() -> None:
    agent = Adds(SPEC, 30, NonPrivate())
    agent.learn(block_of(25))
    assert (agent.served, agent.releases, agent.block_users) == (20, 2, 5)
    assert agent.policy.version == 2
    np.testing.assert_array_equal(agent.policy.actions, agent.sums.argmax(axis=-1))


@pytest.mark.parametrize("options", [{}, {"counter": "binary tree"}])
def test_a_save_in_the_middle_of_a_block_goes_on_identically(options: Any, tmp_path: Any) -> None:
    agent = Adds(SPEC, 30, PRIVATE, noise_seed=1, **options)
    agent.learn(block_of(15))
    agent.save(tmp_path / "save")
    resumed = Adds(SPEC, 30, PRIVATE, noise_seed=1, **options).load(tmp_path / "save")
    for one in (agent, resumed):
        one.learn(block_of(15, seed=1))
    np.testing.assert_array_equal(agent.sums, resumed.sums)
    np.testing.assert_array_equal(agent.policy.table(), resumed.policy.table())


@pytest.mark.parametrize(("kind", "kept"), [(Adds, ()), (Keeps, (0, 1))])
def test_a_family_decides_which_blocks_it_keeps(kind: type[Adds], kept: tuple[int, ...]) -> None:
    agent = kind(SPEC, 30, PRIVATE, noise_seed=1)
    agent.learn(block_of(20))
    assert agent._curator.blocks == kept


def test_users_of_a_failed_release_are_lost_and_not_asked_again(monkeypatch: Any) -> None:
    agent = Adds(SPEC, 30, PRIVATE, noise_seed=1)

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(type(agent._curator), "release", fails)
        with pytest.raises(OSError, match="disk full"):
            agent.learn(block_of(10))
    assert (agent.served, agent.releases, agent._curator.blocks) == (10, 0, ())
    agent.learn(block_of(20, seed=1))
    assert (agent.served, agent.releases) == (30, 2)


def test_what_a_family_does_not_offer_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="calibration of Adds must be tight"):
        Adds(SPEC, 30, PRIVATE, calibration="as_printed")
