"""The agent that serves most users by what a few have shown: turns, questions, what it learns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from research.worlds import plane
from tacit import FittedFunctionalQ, JointDP, check_statistic
from tacit.continuous import (
    line,
)
from tacit.continuous.fitted_functional_q import _turns
from tacit.continuous.statistics import MeanRewards
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block
from tacit.simulation.run import run
from tacit.testing.check_agent import check_agent

SERVED = partial(FittedFunctionalQ, serve="most")
PAPER = JointDP(0.9, 1e-4)
SHORT = line(horizon=6)


@pytest.mark.parametrize(("users", "first"), [(1, 20), (10, 20), (2000, 20), (10**6, 84)])
def test_few_explore(users: int, first: int) -> None:
    turns = _turns(users, first)
    assert sum(turns) == users
    assert min(turns) >= 1
    served = 0
    for turn, size in enumerate(turns):
        if turn and turn % 2 == 0:
            assert size <= 0.03 * served + 1
        served += size


@pytest.mark.parametrize(
    ("world", "privacy", "batch"),
    [
        (line(), JointDP(10.0, 1e-6), 6),
        pytest.param(line(), PAPER, 45, marks=pytest.mark.slow),
        pytest.param(plane(), PAPER, 256, marks=pytest.mark.slow),
    ],
)
def test_serves_well_with_at_most_four_times_the_users_of_the_batch_agent(
    world: Any, privacy: Any, batch: int
) -> None:
    needed = []
    for seed in range(3):
        agent = SERVED(world.spec, 40 * batch, privacy, seed=seed, noise_seed=seed)
        result = run(agent, world, seed=seed, progress=False)
        needed.append(result.users_to_90)
    assert sorted(n or 10**9 for n in needed)[1] <= 4 * batch
    # How well users are served is public.
    earned, std = agent.state.earned
    value = result.values[-2] / world.spec.horizon
    assert earned == pytest.approx(value, abs=6.0 * std + 0.02)


def test_asks_those_who_are_served_once() -> None:
    agent = SERVED(SHORT.spec, 400, JointDP(10.0, 1e-6), noise_seed=0)
    rng = np.random.default_rng(0)
    assert agent.policy.epsilon == 1.0
    agent.learn(SHORT.simulate(agent.policy, agent.block_users, rng, "episodes"))
    assert agent.policy.epsilon == 0.0
    before = agent.state.weights.copy()
    agent.learn(SHORT.simulate(agent.policy, agent.block_users, rng, "episodes"))
    np.testing.assert_array_equal(agent.state.weights, before)
    with pytest.raises(InvalidArgument, match="who explores"):
        SERVED(SHORT.spec, 400, PAPER, schedule="every")


def test_rewards_are_bounded() -> None:
    def sample(rng: np.random.Generator, users: int) -> Block:
        states = rng.random((users, 7, 1))
        rewards = rng.choice([0.0, 0.5], (users, 1)) * np.ones((users, 6))
        arrays = {"states": states, "rewards": rewards, "lengths": np.full(users, 7)}
        return Block(users, arrays | {"actions": rng.integers(0, 2, (users, 6))})

    check_statistic(MeanRewards(SHORT.spec), sample, attained=0.99, users=60, rounds=12)
    block = sample(np.random.default_rng(0), 4)
    rewards = np.asarray(block["rewards"], dtype=float)
    expected = rewards.mean(axis=1) / 0.5 - 0.5
    np.testing.assert_allclose(MeanRewards(SHORT.spec).vectors(block)[:, 0], expected)


@pytest.mark.slow
def test_keeps_all_promises() -> None:
    make = partial(SERVED, privacy=JointDP(10.0, 1e-6))
    check_agent(make, SHORT, users=3000)
