"""Actions that are vectors, and more than four coordinates, in the agent with a model."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from research.worlds import classic_loops, pendulum, poles
from tacit import JointDP, ModelPosterior, NonPrivate, published
from tacit.continuous import (
    ActionBox,
    BoxSpec,
    GaussianPolicy,
    Nearest,
    QPolicy,
    SmoothSpec,
)
from tacit.continuous import fitted_planner as fitting
from tacit.continuous.fitted_planner import FittedPlanner, draw_starts
from tacit.continuous.model_estimate import MODEL, MoveModel
from tacit.continuous.monomials import Monomials
from tacit.continuous.path_planner import PathPlanner, _within
from tacit.continuous.statistics.move_moments import PLACES, MoveMoments, MoveScales, placed
from tacit.lq.riccati import optimal_gains
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block
from tacit.testing.check_agent import check_agent

TEN = JointDP(10.0, 1e-6)
BOX = ActionBox((-1.0,), (1.0,))


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


# Worlds.


def test_any_torque_moves_a_pendulum_as_numbered_ones_do() -> None:
    few, any_torque = pendulum(), pendulum(continuous=True)
    rng = np.random.default_rng(0)
    states, torques = rng.uniform(-3.0, 3.0, (50, 2)), rng.integers(5, size=50)
    box = any_torque.spec.action_box
    assert box is not None
    numbers = box.numbers((torques[:, np.newaxis] - 2.0) / 2.0)
    one, two = states.copy(), states.copy()
    classic_loops.swing(one, torques)
    classic_loops.swing_by(two, box.actions(numbers)[:, 0])
    np.testing.assert_allclose(one, two, atol=1e-12)
    paid = few.spec.rewards(states, torques, one)
    np.testing.assert_allclose(any_torque.spec.rewards(states, numbers, two), paid, atol=1e-12)
    assert any_torque.name.endswith("continuous=true")


def test_two_poles_are_as_the_equations_say() -> None:
    """Energy is kept without a force, but for Euler's steps; and a pole alone is a pendulum."""
    state = np.array([[0.1, 0.2, 0.05, -0.04, 0.1, -0.1]])

    def energy(x: Any) -> float:
        total = 0.5 * 1.0 * x[1] ** 2
        for i, (m, half) in enumerate(((0.1, 0.5), (0.05, 0.1))):
            angle, spin = x[2 + i], x[4 + i]
            # A rod of length 2 half: its centre moves, and it turns around that.
            along = x[1] + half * spin * math.cos(angle)
            up = half * spin * math.sin(angle)
            total += 0.5 * m * (along**2 + up**2) + 0.5 * m * half**2 / 3.0 * spin**2
            total += m * 9.8 * half * math.cos(angle)
        return total

    before = energy(state[0])
    for _ in range(5):
        classic_loops.balance(state, np.zeros(1))
    assert energy(state[0]) == pytest.approx(before, abs=2e-3)
    world = poles()
    uniform = world.value(QPolicy.uniform(6, 3))
    assert 5.0 < uniform < 40.0 < world.optimal_value


# What is asked.


def test_first_states_are_binned() -> None:
    spec = SmoothSpec((-1.0, -math.inf), (1.0, math.inf), 2, 3)
    states = np.zeros((2, 4, 2))
    states[0] += np.array([0.0, 0.0]) + 0.01 * np.arange(4)[:, np.newaxis]
    states[1] += np.array([0.9, 3.0]) + 0.01 * np.arange(4)[:, np.newaxis]
    block = Block(
        2,
        {
            "states": states,
            "actions": np.zeros((2, 3), dtype=np.int64),
            "rewards": np.zeros((2, 3)),
            "lengths": np.full(2, 4),
            "versions": np.zeros(2, dtype=np.int64),
        },
    )
    asked = MoveScales(spec, starts=True)
    found = asked.layout.unpack(asked.vectors(block)[1])["starts"]
    assert found.argmax(axis=1).tolist() == [int(0.95 * PLACES), int(0.875 * PLACES)]
    # Another statistic, another sensitivity: two groups of moves, one of sizes, two of starts.
    assert asked.l2(Relation.REPLACE_ONE) == pytest.approx(math.sqrt(2.0 * 5))
    both = asked.vectors(block)
    assert np.linalg.norm(both[0] - both[1]) <= asked.l2(Relation.REPLACE_ONE)
    counts = asked.layout.unpack(both.sum(axis=0))["starts"]
    drawn = draw_starts(spec, counts, np.random.default_rng(0), 200)
    assert (np.abs(drawn[:, 0]) < 0.05).any()
    assert (np.abs(drawn[:, 0] - 0.92) < 0.05).any()
    np.testing.assert_allclose(placed(spec, np.full((1, 2), 0.5)), 0.0, atol=1e-12)


def test_users_are_as_far_apart_as_scales_say() -> None:
    """Users who differ in how far they move, how large they get and where they start."""
    spec = SmoothSpec((-math.inf, -1.0), (math.inf, 1.0), 2, 1)
    states = np.array([[[0.1, -0.9], [0.1001, -0.8999]], [[9.0, 0.5], [3.0, 0.9]]])
    block = Block(
        2,
        {
            "states": states,
            "actions": np.zeros((2, 1), dtype=np.int64),
            "rewards": np.zeros((2, 1)),
            "lengths": np.full(2, 2),
            "versions": np.zeros(2, dtype=np.int64),
        },
    )
    asked = MoveScales(spec, starts=True)
    one, two = asked.vectors(block)
    assert np.linalg.norm(one - two) == pytest.approx(asked.l2(Relation.REPLACE_ONE), rel=1e-12)


def test_actions_that_are_vectors_push_by_themselves() -> None:
    spec = BoxSpec((-1.0,), (1.0,), BOX.size, 5, action_box=BOX)
    features = Monomials.of(spec, np.array([-1.0]), np.array([1.0]))
    numbers = BOX.numbers([[-1.6], [-0.5], [0.5], [1.7]])
    np.testing.assert_allclose(features.pushes[numbers, 0], [-1.0, -0.5, 0.5, 1.0], atol=2e-3)


def test_chance_is_told_from_what_is_not_known_yet() -> None:
    """Moves that are mostly chance: the rest is found, and is not taken for what is unknown."""
    spec = SmoothSpec((-2.0,), (2.0,), 2, 20)
    features = Monomials.of(spec, np.array([-2.0]), np.array([2.0]))
    unknown = {}
    for chance in (False, True):
        rng = np.random.default_rng(0)
        believed = MoveModel(features, np.ones(1), MODEL, chance=chance)
        for _ in range(6):
            states = np.empty((200, 21, 1))
            states[:, 0], actions = rng.uniform(-1, 1, (200, 1)), rng.integers(0, 2, (200, 20))
            for t in range(20):
                states[:, t + 1, 0] = 0.8 * states[:, t, 0] + rng.normal(0.0, 0.3, 200)
            arrays = {"states": np.clip(states, -1.99, 1.99), "actions": actions}
            arrays |= {"rewards": np.zeros((200, 20)), "lengths": np.full(200, 21)}
            block = Block(200, arrays | {"versions": np.zeros(200, dtype=np.int64)})
            metric, scales, _ = believed.metric()
            asked = MoveMoments(spec, features, metric, believed.model, scales)
            believed.update(asked.layout.unpack(asked.total(block))["moments"], 0.0, 200)
        unknown[chance] = believed.unknown
    assert unknown[True] < 1e-3 < unknown[False]
    assert believed.rest[0] > 0.0
    at = np.array([[-0.5], [0.0], [1.0]])
    moves = (features(at, np.zeros(3, dtype=np.int64)) @ believed.model)[:, 0]
    np.testing.assert_allclose(moves, [0.1, 0.0, -0.2], atol=0.05)


# How it plans.


def test_lq_problems_are_solved_exactly() -> None:
    """Linear moves and quadratic costs: the gains are those of Riccati's equation."""
    A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.0], [0.1]])
    spec = SmoothSpec((-9.0, -9.0), (9.0, 9.0), BOX.size, 40, (-100.0, 0.0), 0.9999, action_box=BOX)

    def step(states: Any, actions: Any) -> Any:
        u = np.clip(BOX.aims(actions), -1.0, 1.0)
        paid = -(states**2).sum(axis=1) - 0.1 * (u**2)[:, 0]
        return states @ A.T + u @ B.T, paid, np.zeros(len(states), dtype=np.bool_)

    planner = PathPlanner(spec, BOX, np.array(spec.lows), np.array(spec.highs), 0.9999)
    starts = np.full((2, 2), 0.05)
    found = planner.plan(step, starts, starts, lambda _, x: np.zeros((len(x), 1)))
    exact = optimal_gains(A, B, np.eye(2), 0.1 * np.eye(1), 90)[1]
    first = np.abs(found[0] - 0.05).sum(axis=1).argmin()
    np.testing.assert_allclose(found[2][first], exact[0], rtol=0.02)


def test_controls_stay_in_their_box() -> None:
    square = np.array([[[2.0, 1.0], [1.0, 3.0]]])
    slope, low, high = np.array([[4.0, 1.0]]), np.full((1, 2), -1.0), np.full((1, 2), 1.0)
    d, free = _within(square, slope, low, high)
    # The first is at its end, and the second is best given that.
    np.testing.assert_allclose(d, [[-1.0, 0.0]])
    assert free.tolist() == [[False, True]]


def test_fitted_values_find_their_way_in_five_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to the middle along the coordinate that an action moves."""
    for name, size in (("_STATES", 800), ("_CENTRES", 150), ("_EPISODES", 32), ("_ROUNDS", 2)):
        monkeypatch.setattr(fitting, name, size)
    spec = SmoothSpec((-1.0,) * 5, (1.0,) * 5, 4, 20, (-2.0, 0.0), 0.9)
    pushes = np.zeros((4, 5))
    pushes[[0, 1, 2, 3], [0, 0, 1, 1]] = -0.1, 0.1, -0.1, 0.1

    def step(states: Any, actions: Any) -> Any:
        nexts = np.clip(states + pushes[actions], -1.0, 1.0)
        return nexts, -(nexts[:, :2] ** 2).sum(axis=1), np.zeros(len(states), dtype=np.bool_)

    planner = FittedPlanner(spec, np.ones((5, PLACES)), 0.9)
    policy = QPolicy(*planner.plan(step, np.random.default_rng(0)))
    at = np.array(
        [[0.8, 0.0, 0.0, 0.0, 0.0], [-0.8, 0.1, 0.3, 0.0, 0.0], [0.0, 0.8, 0.0, 0.0, 0.0]]
    )
    assert policy.greedy(at).tolist() == [0, 1, 2]


# Policies.


def some_policy(turns: tuple[int, ...] = (0, 1)) -> GaussianPolicy:
    near = Nearest((-1.0, -math.pi), (1.0, math.pi), ((0.0, 3.0), (0.5, -1.0)), turns)
    gains = np.array([[[0.5, 1.0]], [[-1.0, 0.2]]])
    return GaussianPolicy.around(
        near, np.array([[0.1], [-0.3]]), gains, ActionBox((-2.0,), (2.0,)), 3
    )


def test_controls_follow_the_nearest_point() -> None:
    policy = some_policy()
    # An angle beyond pi is the same as one below -pi.
    aims = policy.values([[0.2, -3.1], [0.6, -0.9]])[:, 0]
    turned = 2.0 * math.pi - 6.1
    np.testing.assert_allclose(aims, [0.1 + 0.1 + turned, -0.3 - 0.1 + 0.02], atol=1e-9)
    dense = policy.features([[0.2, -3.1], [0.6, -0.9]]) @ policy.weights.T
    np.testing.assert_allclose(dense[:, 0], aims, atol=1e-12)


def test_files_hold_what_is_followed(tmp_path: Any) -> None:
    policy = some_policy()
    policy.publish(tmp_path / "policy.npz")
    read: Any = published.load(tmp_path / "policy.npz")
    rng = np.random.default_rng(0)
    for state in rng.uniform((-1.2, -3.1), (1.2, 3.1), (40, 2)):
        np.testing.assert_allclose(read.act(0, state), policy.action(state), atol=5e-3)
    exploring = replace(policy, explorers=0.3, bursts=0.1)
    assert not exploring.is_deterministic
    exploring.publish(tmp_path / "served.npz")
    drawn: Any = published.load(tmp_path / "served.npz")
    found = np.array([drawn.act(0, [0.0, 3.0], rng)[0] for _ in range(400)])
    assert (np.abs(found - 0.2) > 1e-6).mean() == pytest.approx(exploring.epsilon, abs=0.1)
    back = QPolicy.from_arrays(exploring.arrays(), 3)
    coins = rng.random((20, 30))
    np.testing.assert_array_equal(back.exploration(coins), exploring.exploration(coins))
    np.testing.assert_array_equal(back.values([[0.1, 0.2]]), policy.values([[0.1, 0.2]]))


def test_refuses_points_that_are_none() -> None:
    for points, turns in (((), ()), (((0.0, 1.0),), ()), (((math.nan,),), ()), (((0.0,),), (2,))):
        with pytest.raises(InvalidArgument, match=r"points|turns"):
            Nearest((0.0,), (1.0,), points, turns)  # type: ignore[arg-type]


# The agent.


def short(world: Any) -> Any:
    """Episodes of a few steps, which take little to plan for."""
    return replace(world.spec, horizon=6)


def test_swings_up_a_pendulum_with_any_torque() -> None:
    world = pendulum(continuous=True)
    agent = ModelPosterior(world.spec, 32, NonPrivate(), seed=1)
    rng = np.random.default_rng(1)
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
    assert world.value(agent.greedy_policy) > -250.0
    assert "known rewards and ends, LQ control around trajectories" in agent.why


@pytest.mark.parametrize(
    ("make", "continuous", "kind"),
    [(pendulum, True, GaussianPolicy), (poles, True, GaussianPolicy), (poles, False, QPolicy)],
)
def test_goes_on_from_a_save(
    tmp_path: Any, make: Any, continuous: bool, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, through two more plans: a plan uses nothing of the one before that is not saved.

    A planner that fits values has no features after a load until its next plan.
    """
    monkeypatch.setattr(fitting, "_ROUNDS", 1)
    monkeypatch.setattr(fitting, "_CENTRES", 60)
    world = make(horizon=6, continuous=continuous)

    def agent_of() -> Any:
        return ModelPosterior(world.spec, 90, TEN, schedule="fixed:size=30", noise_seed=0)

    rng, agent = np.random.default_rng(0), agent_of()
    agent.learn(world.simulate(agent.policy, 30, rng, "episodes"))
    agent.save(tmp_path / "state")
    resumed = agent_of().load(tmp_path / "state")
    assert type(resumed.policy) is kind
    while agent.block_users:
        _same_policies(agent, resumed)
        block = world.simulate(agent.policy, 30, rng, "episodes")
        for each in (agent, resumed):
            each.learn(block)
    _same_policies(agent, resumed)


def _same_policies(one: Any, other: Any) -> None:
    for mine, theirs in ((one.policy, other.policy), (one.greedy_policy, other.greedy_policy)):
        arrays = mine.arrays(), theirs.arrays()
        assert arrays[0].keys() == arrays[1].keys()
        for name, array in arrays[0].items():
            np.testing.assert_array_equal(array, arrays[1][name])


def test_more_than_four_coordinates_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_CENTRES", 60)
    world = poles(horizon=10)
    agent = ModelPosterior(world.spec, 40, TEN, schedule="fixed:size=40", noise_seed=0)
    agent.learn(world.simulate(agent.policy, 40, np.random.default_rng(0), "episodes"))
    assert "plans by fitted values" in agent.why
    assert agent.greedy_policy.features.size == 60


@pytest.mark.slow
@pytest.mark.parametrize("continuous", [False, True])
def test_keeps_all_promises(continuous: bool) -> None:
    world = pendulum(horizon=6, continuous=True) if continuous else poles(horizon=6)
    make = partial(ModelPosterior, privacy=TEN, schedule="fixed:size=30")
    check_agent(make, world, users=60)
