"""How far coordinates reach, asked privately, and features that are scaled with it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, cast

import numpy as np
import pytest

from tacit import FittedFunctionalQ, JointDP, NonPrivate, ServedFunctionalQ, check_statistic
from tacit.continuous import BoxSpec
from tacit.continuous.statistics.reaches import Reaches
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block

D, H = 3, 6
SPEC = BoxSpec(
    (-8.0, -1.0, 0.0), (8.0, 1.0, 100.0), actions=2, horizon=H, reward_range=(-2.0, 64.0)
)
# Within the last 2^-3, 1 and 2^-5 of the box.
WIDTHS = np.array([0.9, 0.9, 3.0])


def users(rng: np.random.Generator, count: int) -> Block:
    """Most are within their widths; a few are anywhere, and some have no valid step.

    Rewards are below 1; of a few users they are up to 4.
    """
    states = rng.uniform(0.7, 1.0, (count, H + 1, D)) * WIDTHS
    states[rng.random(count) < 0.1] *= 50.0 ** rng.uniform(-2.0, 1.0)
    states[rng.random(count) < 0.05] = np.nan
    rewards = rng.random((count, H))
    rewards[rng.random(count) < 0.2] *= 4.0
    arrays = {
        "states": states,
        "actions": rng.integers(2, size=(count, H)),
        "rewards": rewards,
        "lengths": np.full(count, H + 1),
    }
    return Block(count, arrays)


def test_sensitivity_holds_and_is_attained() -> None:
    statistic = Reaches(SPEC)
    check_statistic(statistic, users, users=100, rounds=20, attained=0.98)
    assert statistic.l2(Relation.REPLACE_ONE) == pytest.approx(math.sqrt(2.0 * (D + 1)))


def test_places_are_those_of_the_largest_values() -> None:
    block = users(np.random.default_rng(3), 1)
    largest = np.abs(np.clip(block["states"][0, :-1], SPEC.lows, SPEC.highs)).max(axis=0)
    hot = Reaches(SPEC).vectors(block).reshape(D + 1, -1)
    parts = [*(largest / [8.0, 1.0, 100.0]), float(block["rewards"].max()) / 64.0]
    assert hot.argmax(axis=1).tolist() == np.floor(-np.log2(parts)).tolist()
    assert hot.sum(axis=1).tolist() == [1.0] * (D + 1)


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
    # As far as any are seen to get, within the range: few are beyond 1, and count, but for the
    # twenty whom the agent that serves asks first, whom noise hides.
    hidden = make is ServedFunctionalQ and privacy.private
    assert agent.algorithm.paid.reward_range == ((-1.0, 1.0) if hidden else (-2.0, 4.0))
    assert agent.algorithm.units.unit < 0.1 * made().algorithm.units.unit
    assert "5% of mu^2 for how far states and rewards reach" in agent.why
    agent.save(tmp_path / "state")
    again = made().load(tmp_path / "state")
    assert again.algorithm.features == agent.algorithm.features
    assert again.algorithm.units == agent.algorithm.units
    np.testing.assert_array_equal(again.q_mean, agent.q_mean)


@pytest.mark.parametrize("stop_at", [0, 1, 3])
def test_interrupted_after_a_release_it_goes_on(stop_at: int, tmp_path: Any) -> None:
    """What was released is told again: features that are scaled already must not change that."""
    options: Any = {"scales": "asked", "releases": 3, "noise_seed": 0}
    make = partial(FittedFunctionalQ, SPEC, 200, JointDP(40.0, 1e-6), **options)
    block, path = users(np.random.default_rng(0), 200), tmp_path / "save"
    whole, agent = make(), cast(Any, make(autosave=path))
    whole.learn(block)
    publish = agent._curator._publish

    def killed(release: Any) -> Any:
        out = publish(release)
        if release.index == stop_at:
            raise KeyboardInterrupt
        return out

    agent._curator._publish = killed
    with pytest.raises(KeyboardInterrupt):
        agent.learn(block)
    resumed = make().load(path)
    assert resumed.greedy_policy.features.scales == whole.greedy_policy.features.scales
    np.testing.assert_array_equal(resumed.q_mean, whole.q_mean)


def test_it_costs_a_part_of_the_budget_and_no_more() -> None:
    agent = FittedFunctionalQ(SPEC, 50, JointDP(8.0, 1e-6), scales="asked", noise_seed=0)
    curator = agent._curator
    agent.learn(users(np.random.default_rng(0), 50))
    assert curator.spent(0) == pytest.approx(curator.privacy.budget.mu**2)


def test_where_noise_hides_users_the_box_counts() -> None:
    agent = FittedFunctionalQ(SPEC, 20, JointDP(0.1, 1e-6), scales="asked", noise_seed=0)
    agent.learn(users(np.random.default_rng(0), 20))
    assert agent.greedy_policy.features.scales == (8.0, 1.0, 100.0)
    assert agent.algorithm.paid.reward_range == SPEC.reward_range


def test_noise_on_values_shrinks_with_the_range_of_rewards() -> None:
    """The same users, told of a range that is a hundred times as wide as need be."""
    stds = {}
    for scales in ("box", "asked"):
        agent = FittedFunctionalQ(SPEC, 400, JointDP(40.0, 1e-6), scales=scales, noise_seed=0)
        agent.learn(users(np.random.default_rng(0), 400))
        stds[scales] = agent.algorithm.belief.answers[-1].std * agent.algorithm.units.unit
    assert stds["asked"] < 0.1 * stds["box"]


def test_it_is_a_choice_of_default_features_only() -> None:
    with pytest.raises(InvalidArgument, match="scales"):
        FittedFunctionalQ(SPEC, 20, NonPrivate(), scales="guessed")
    line = BoxSpec((0.0,), (1.0,), actions=2, horizon=4)
    assert not FittedFunctionalQ(line, 20, NonPrivate(), scales="asked").algorithm.asks_scales
