"""How far coordinates reach, asked privately, and features that are scaled with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit import FittedFunctionalQ, JointDP, NonPrivate, ServedFunctionalQ, check_statistic
from tacit.continuous import BoxSpec
from tacit.continuous.statistics.reaches import Reaches
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block

D, H = 3, 6
SPEC = BoxSpec((-8.0, -1.0, 0.0), (8.0, 1.0, 100.0), actions=2, horizon=H)
# Within the last 2^-3, 1 and 2^-5 of the box.
WIDTHS = np.array([0.9, 0.9, 3.0])


def users(rng: np.random.Generator, count: int) -> Block:
    """Most are within their widths; a few are anywhere, and some have no valid step."""
    states = rng.uniform(0.7, 1.0, (count, H + 1, D)) * WIDTHS
    states[rng.random(count) < 0.1] *= 50.0 ** rng.uniform(-2.0, 1.0)
    states[rng.random(count) < 0.05] = np.nan
    arrays = {
        "states": states,
        "actions": rng.integers(2, size=(count, H)),
        "rewards": rng.random((count, H)),
        "lengths": np.full(count, H + 1),
    }
    return Block(count, arrays)


def test_sensitivity_holds_and_is_attained() -> None:
    statistic = Reaches(SPEC)
    check_statistic(statistic, users, users=100, rounds=20, attained=0.98)
    assert statistic.l2(Relation.REPLACE_ONE) == pytest.approx(math.sqrt(2.0 * D))


def test_places_are_those_of_the_largest_values() -> None:
    block = users(np.random.default_rng(3), 1)
    largest = np.abs(np.clip(block["states"][0, :-1], SPEC.lows, SPEC.highs)).max(axis=0)
    hot = Reaches(SPEC).vectors(block).reshape(D, -1)
    assert hot.argmax(axis=1).tolist() == np.floor(-np.log2(largest / [8.0, 1.0, 100.0])).tolist()
    assert hot.sum(axis=1).tolist() == [1.0] * D


@pytest.mark.parametrize("make", [FittedFunctionalQ, ServedFunctionalQ])
@pytest.mark.parametrize("privacy", [NonPrivate(), JointDP(40.0, 1e-6)])
def test_features_are_scaled_by_what_was_released(make: Any, privacy: Any, tmp_path: Any) -> None:
    options: Any = {} if isinstance(privacy, NonPrivate) else {"noise_seed": 0}

    def made() -> Any:
        return make(SPEC, 400, privacy, scales="asked", **options)

    agent, rng = made(), np.random.default_rng(0)
    assert agent.algorithm.features.scales == (8.0, 1.0, 100.0)
    while agent.block_users:
        agent.learn(users(rng, agent.block_users))
    assert agent.greedy_policy.features.scales == (1.0, 1.0, 3.125)
    agent.save(tmp_path / "state")
    again = made().load(tmp_path / "state")
    assert again.algorithm.features == agent.algorithm.features
    np.testing.assert_array_equal(again.q_mean, agent.q_mean)


def test_it_costs_a_part_of_the_budget_and_no_more() -> None:
    agent = FittedFunctionalQ(SPEC, 50, JointDP(8.0, 1e-6), scales="asked", noise_seed=0)
    curator = agent._curator
    agent.learn(users(np.random.default_rng(0), 50))
    assert curator.spent(0) == pytest.approx(curator.privacy.budget.mu**2)


def test_where_noise_hides_users_the_box_counts() -> None:
    agent = FittedFunctionalQ(SPEC, 20, JointDP(0.1, 1e-6), scales="asked", noise_seed=0)
    agent.learn(users(np.random.default_rng(0), 20))
    assert agent.greedy_policy.features.scales == (8.0, 1.0, 100.0)


def test_it_is_a_choice_of_default_features_only() -> None:
    with pytest.raises(InvalidArgument, match="scales"):
        FittedFunctionalQ(SPEC, 20, NonPrivate(), scales="guessed")
    line = BoxSpec((0.0,), (1.0,), actions=2, horizon=4)
    assert not FittedFunctionalQ(line, 20, NonPrivate(), scales="asked").algorithm.asks_scales
