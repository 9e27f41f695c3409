"""The agent with a model: worlds, what it asks, how it estimates and plans, what it learns."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from research.worlds import cartpole, classic_loops, mountain_car, pendulum
from tacit import FittedFunctionalQ, JointDP, LocalDP, ModelPosterior, NonPrivate, check_statistic
from tacit.continuous import Grid, QPolicy, SmoothSpec
from tacit.continuous.model_posterior import GridPlanner
from tacit.continuous.transition_model import FEWEST, PolynomialFeatures, TransitionPosterior
from tacit.continuous.transition_moments import (
    ScaleHistogram,
    StartMoments,
    TerminationMoments,
    TransitionMoments,
)
from tacit.continuous.worlds import exploration
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, unpack
from tacit.simulation.run import run
from tacit.testing.check_agent import check_agent
from tests.continuous.blocks import block, random_users

TEN = JointDP(10.0, 1e-6)
SHORT = pendulum(horizon=6)


# Specs.


def test_specs_are_equal_if_they_do_the_same():
    assert pendulum().spec == pendulum().spec
    assert replace(pendulum().spec, reward=lambda s, a, t: -(s[:, 0] ** 2)) != pendulum().spec
    with pytest.raises(InvalidArgument, match="angle must be in"):
        SmoothSpec((0.0,), (1.0,), 2, 5, angles=(0,))


# Exploring.


def test_actions_are_held_as_often_as_it_says():
    policy = QPolicy(Grid((0.0,), (1.0,), (2,)), np.zeros((3, 2)), explorers=0.25, bursts=0.1)
    coins = np.random.default_rng(0).random((1000, 2000))
    tries = exploration(policy, coins)
    assert tries is not None
    assert exploration(QPolicy(policy.features, policy.weights), coins) is None
    # Bursts begin late in short episodes; the error of 4,000 users is below .01 six sigma.
    assert (tries >= 0).mean() == pytest.approx(policy.epsilon, abs=0.04)
    explorers = (tries >= 0).all(axis=0)
    assert explorers.mean() == pytest.approx(0.25, abs=0.04)
    for action in range(3):
        assert (tries[:, explorers] == action).mean() == pytest.approx(1 / 3, abs=0.02)
    changes = (tries[1:] != tries[:-1])[:, explorers].mean(axis=0)
    assert changes.max() > 0.3 > 0.05 > changes.min()


# What is asked.


def moments(spec=SHORT.spec, rewards=False, seed=0):
    rng = np.random.default_rng(seed)
    features = PolynomialFeatures.of(spec, np.array(spec.lows), np.array(spec.highs))
    p, n = features.size, spec.dimension + int(rewards)
    metric, model = rng.normal(size=(p, p)), 0.1 * rng.normal(size=(p, n))
    return TransitionMoments(spec, features, metric, model, np.full(n, 0.5), rewards)


def repeated(spec, state, there):
    """A user who makes one step over and over again, by jumping back where she was."""
    H, actions = spec.horizon, np.zeros((1, spec.horizon), dtype=np.int64)
    actions[:, 1::2] = -1  # the way back does not count
    return block([([state, there] * (H // 2 + 1))[: H + 1]], actions=actions)


@pytest.mark.parametrize("rewards", [False, True])
def test_moments_are_what_the_formula_says(rewards):
    statistic = moments(rewards=rewards)
    data = random_users(np.random.default_rng(1), 7, SHORT.spec)
    found = statistic.vectors(data)
    np.testing.assert_allclose(statistic.total(data), found.sum(axis=0), atol=1e-12)
    spec, m = SHORT.spec, statistic.layout.parts[0].shape[0]
    arrays = data.arrays
    for user in range(7):
        expected, counted = np.zeros((m, m)), 0
        for t in range(min(spec.horizon, arrays["lengths"][user])):
            here, there = arrays["states"][user, t], arrays["states"][user, t + 1]
            action = arrays["actions"][user, t]
            f = statistic.features(here[np.newaxis], np.array([action]))[0]
            move = there - here
            move[0] = (move[0] + math.pi) % (2 * math.pi) - math.pi
            if rewards:
                move = np.append(move, arrays["rewards"][user, t] - sum(spec.reward_range) / 2)
            rest = (move - f @ statistic.model) / statistic.scales
            y = np.concatenate([statistic.metric @ f, rest])
            expected += np.outer(y, y) / (y @ y)
            counted += 1
        assert counted
        one = expected / np.linalg.norm(expected)
        np.testing.assert_allclose(unpack(found[user], m), one, atol=1e-12)


def starts_of(spec):
    return StartMoments(spec, np.array(spec.lows), np.array(spec.highs))


def test_first_states_have_the_distribution_that_users_have():
    spec = SmoothSpec((-1.0, 0.0), (3.0, 2.0), 2, 6)
    rng = np.random.default_rng(0)
    first = np.array([1.5, 0.8]) + rng.standard_normal((20_000, 2)) @ [[0.05, 0.02], [0.0, 0.03]]
    states = np.repeat(first[:, np.newaxis], 7, axis=1)
    data = block(states, np.full(20_000, 6), np.zeros((20_000, 6), int), np.zeros((20_000, 6)))
    statistic = starts_of(spec)
    mean, root = statistic.distribution(unpack(statistic.total(data), 3), 0.0)
    assert mean == pytest.approx([1.5, 0.8], abs=0.01)
    assert root @ root.T == pytest.approx(np.cov(first.T), abs=2e-4)
    corners = [repeated(spec, corner, corner) for corner in ([3.0, 1.0], [-1.0, 1.0])]
    one, other = (statistic.vectors(corner) for corner in corners)
    assert float(np.linalg.norm(one - other)) == pytest.approx(math.sqrt(2.0))
    check_statistic(statistic, partial(random_users, spec=spec), attained=0.3, users=60, rounds=12)


@pytest.mark.parametrize(("D", "horizon"), [(1, 6), (1, 1000), (8, 1000)])
def test_two_users_are_as_far_apart_as_declared(D, horizon):
    """Orthogonal steps: one is all feature, the other, without any, all residual."""
    spec = SmoothSpec((-1.0,) * D, (1.0,) * D, 2, horizon)
    features = PolynomialFeatures.of(spec, np.array(spec.lows), np.array(spec.highs))
    metric = np.zeros((features.size, features.size))
    metric[0, 1] = 1.0  # the first coordinate, scaled, is all that is seen
    model = np.zeros((features.size, D))
    statistic = TransitionMoments(spec, features, metric, model, np.ones(D))
    still = statistic.vectors(repeated(spec, [0.5] * D, [0.5] * D))
    moved = statistic.vectors(repeated(spec, [0.0] * D, [0.5] * D))
    apart = float(np.linalg.norm(still - moved))
    assert apart == pytest.approx(statistic.l2(Relation.REPLACE_ONE), rel=1e-12) == math.sqrt(2.0)


def test_no_user_is_worse_than_declared():
    few = {"users": 60, "rounds": 12}
    check_statistic(
        moments(rewards=True), partial(random_users, spec=SHORT.spec), attained=0.5, **few
    )
    open_box = replace(cartpole().spec, horizon=6)
    ends = TerminationMoments(SHORT.spec, moments().features)
    check_statistic(ends, partial(random_users, spec=SHORT.spec), attained=0.3, **few)
    check_statistic(
        ScaleHistogram(open_box), partial(random_users, spec=open_box), attained=0.7, **few
    )


def test_values_that_are_no_numbers_count_as_nobody():
    good = random_users(np.random.default_rng(2), 5, SHORT.spec)
    arrays = {name: array.copy() for name, array in good.arrays.items()}
    arrays["states"][3] = np.nan
    arrays["actions"][4] = 99
    for statistic in (moments(), ScaleHistogram(SHORT.spec)):
        clean, hostile = statistic.vectors(good), statistic.vectors(Block(5, arrays))
        assert not hostile[3:].any()
        np.testing.assert_array_equal(hostile[:3], clean[:3])
    arrays["states"][2] = 1e300
    assert np.isfinite(moments().vectors(Block(5, arrays))).all()


# How it estimates and plans.


def test_chance_is_told_from_what_is_not_known_yet():
    """Moves that are mostly chance: the rest is found, and is not taken for what is unknown."""
    spec = SmoothSpec((-2.0,), (2.0,), 2, 20)
    features = PolynomialFeatures.of(spec, np.array([-2.0]), np.array([2.0]))
    unknown = {}
    for chance in (False, True):
        rng = np.random.default_rng(0)
        believed = TransitionPosterior.prior(features, np.ones(1), chance=chance)
        for _ in range(6):
            states = np.empty((200, 21, 1))
            states[:, 0], actions = rng.uniform(-1, 1, (200, 1)), rng.integers(0, 2, (200, 20))
            for t in range(20):
                states[:, t + 1, 0] = 0.8 * states[:, t, 0] + rng.normal(0.0, 0.3, 200)
            data = block(np.clip(states, -1.99, 1.99), actions=actions)
            metric, scales, _ = believed.metric()
            asked = TransitionMoments(spec, features, metric, believed.model, scales)
            believed = believed.after(asked.layout.unpack(asked.total(data))["moments"], 0.0, 200)
        unknown[chance] = believed.unknown
    assert unknown[True] < 1e-3 < unknown[False]
    assert believed.rest[0] > 0.0
    at = np.array([[-0.5], [0.0], [1.0]])
    moves = (features(at, np.zeros(3, dtype=np.int64)) @ believed.model)[:, 0]
    np.testing.assert_allclose(moves, [0.1, 0.0, -0.2], atol=0.05)


def test_without_noise_the_model_is_the_world():
    """Moves that are exactly linear in the features are found from a few users."""
    spec = SmoothSpec((-2.0, -2.0), (2.0, 2.0), 2, 20)
    features = PolynomialFeatures.of(spec, np.array(spec.lows), np.array(spec.highs))
    rng = np.random.default_rng(0)
    true = rng.normal(size=(features.size, 2)) * 0.02 * 0.5 ** features.degrees[:, np.newaxis]
    states = np.empty((30, 21, 2))
    states[:, 0], actions = rng.uniform(-1, 1, (30, 2)), rng.integers(0, 2, (30, 20))
    for t in range(20):
        states[:, t + 1] = states[:, t] + features(states[:, t], actions[:, t]) @ true
    data = block(states, actions=actions)
    believed = TransitionPosterior.prior(features, np.full(2, 0.1))
    for _ in range(6):
        metric, scales, _ = believed.metric()
        asked = TransitionMoments(spec, features, metric, believed.model, scales)
        believed = believed.after(asked.layout.unpack(asked.total(data))["moments"], 0.0, 30)
    at, taken = rng.uniform(-1, 1, (200, 2)), rng.integers(0, 2, 200)
    error = features(at, taken) @ (believed.model - true)
    assert np.abs(error).max() < 0.02 * np.abs(features(at, taken) @ true).max()


def test_a_plan_solves_bellmans_equation():
    world = mountain_car()
    spec = replace(world.spec, discount=0.95)

    def step(states, actions):
        there = states.copy()
        classic_loops.climb(there, actions.astype(np.int64))
        return there, spec.rewards(states, actions, there), spec.ended(there)

    planner = GridPlanner(spec, np.array(spec.lows), np.array(spec.highs))
    Q, _ = planner.plan(step, np.random.default_rng(0))
    held = planner._choose_held(step, np.random.default_rng(0))
    some = np.random.default_rng(1).integers(planner.grid.size, size=300)
    for action in range(3):
        here, kept, paid = planner.grid.points[some], np.ones(300), np.zeros(300)
        for _ in range(held):
            here, rewards, over = step(here, np.full(300, action))
            paid, kept = paid + kept * rewards, np.where(over, 0.0, 0.95 * kept)
        expected = paid + kept * (planner.grid(here) @ Q.max(axis=0))
        np.testing.assert_allclose(Q[action, some], expected, atol=0.01)
    assert world.value(QPolicy(planner.grid, Q)) > -110.0


# What it learns, says, refuses and saves.


def test_swings_up_a_pendulum_privately():
    world = pendulum()
    agent = ModelPosterior(world.spec, 1100, TEN, noise_seed=1)
    result = run(agent, world, seed=1, progress=False)
    assert result.greedy_value > -200.0
    assert result.guarantee is not None
    assert "known rewards, known ends" in agent.why


def test_learns_rewards_and_ends_where_they_are_not_known():
    world = mountain_car()
    spec = replace(world.spec, reward=None, ends=None)
    agent = ModelPosterior(spec, 4000, TEN, noise_seed=2)
    rng = np.random.default_rng(2)
    explorers = []
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
        explorers.append(agent.policy.explorers)
    assert world.value(agent.greedy_policy) > -130.0
    assert "learnt rewards, learnt ends" in agent.why
    # Fewer explore, the more is known.
    assert explorers[0] == 0.5 > 0.3 > explorers[-1] >= FEWEST


def test_refuses_what_it_cannot_do():
    with pytest.raises(InvalidArgument, match="a device's own noise"):
        ModelPosterior(SHORT.spec, 100, LocalDP(4.0, 1e-6))
    five = SmoothSpec((-1.0,) * 5, (1.0,) * 5, 2, 6)
    with pytest.raises(InvalidArgument, match="at most 4 coordinates: take fitted_functional_q"):
        ModelPosterior(five, 100, TEN)


def test_an_open_box_is_closed_by_what_users_said():
    world = cartpole(horizon=40)
    spec = replace(world.spec, features=None)
    agent = ModelPosterior(spec, 32, NonPrivate())
    rng = np.random.default_rng(0)
    agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
    grid = agent.plan.memory[0]
    # Speeds reach one to four, and poles fall before they reach the end of the box.
    assert all(1.0 < high <= 6.0 for high in (grid.highs[1], grid.highs[3]))
    assert 0.2 < grid.highs[2] < 0.25
    with pytest.raises(InvalidArgument, match="finite"):
        FittedFunctionalQ(spec, 100, TEN)


@pytest.mark.slow
def test_keeps_all_promises():
    make = partial(ModelPosterior, privacy=TEN, schedule="fixed:size=30")
    check_agent(make, SHORT, users=90)
