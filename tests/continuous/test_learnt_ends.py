"""Where episodes end, learnt from users: histograms along coordinates, bounds, caution and hope."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from research.worlds import mountain_car
from tacit import JointDP, ModelPosterior, NonPrivate, check_statistic
from tacit.continuous import SmoothSpec
from tacit.continuous.model_posterior import ENDS, SCALES
from tacit.continuous.transition_model import (
    PolynomialFeatures,
    TerminationBox,
    TerminationModel,
    TerminationRegression,
)
from tacit.continuous.transition_moments import (
    BINS,
    GOING,
    TerminationHistogram,
    TerminationMoments,
)
from tacit.privacy.budget import Relation
from tests.continuous.blocks import block

SQUARE = SmoothSpec((-1.0, -1.0), (1.0, 1.0), 2, 100, (0.0, 1.0), may_end=True)
_STRIDE = 0.06


def asked(spec=SQUARE):
    return TerminationHistogram(spec, np.array(spec.lows), np.array(spec.highs))


def users(rng, count, spec=SQUARE):
    states = rng.uniform(-1.3, 1.3, (count, spec.horizon + 1, spec.dimension))
    return block(states, rng.integers(1, spec.horizon + 2, count))


def walk(rng, count, over, spec=SQUARE):
    """Users who walk about at random from the middle, until ``over`` says so."""
    steps = rng.normal(size=(count, spec.horizon + 1, spec.dimension)) * _STRIDE
    states = np.clip(np.cumsum(steps, axis=1), -1.0, 1.0)
    ended = over(states[:, 1:])
    lengths = np.where(ended.any(axis=1), ended.argmax(axis=1) + 1, spec.horizon + 1)
    return block(states, lengths)


def nowhere(states):
    return np.zeros(states.shape[:-1], dtype=np.bool_)


def told(statistic, data, rng, std):
    sums = statistic.layout.unpack(statistic.total(data))
    noise = {"ends": std, "going": std / GOING, "lengths": std}
    return {name: part + noise[name] * rng.normal(size=part.shape) for name, part in sums.items()}


def test_histograms_are_what_they_say():
    states = np.full((1, 101, 2), 0.01)
    states[0, 3] = 0.99, -0.99  # where the third step leads is where it ends
    found = asked().layout.unpack(asked().vectors(block(states, [3]))[0])
    ends, going = np.zeros((2, 2, BINS))
    ends[0, BINS - 1] = ends[1, 0] = 1.0
    going[:, BINS // 2] = 1.0
    np.testing.assert_array_equal(found["ends"], ends)
    np.testing.assert_allclose(found["going"], going)
    np.testing.assert_array_equal(found["lengths"], [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    wide = TerminationHistogram(SQUARE, np.full(2, -1e308), np.full(2, 1e308))
    assert np.isfinite(wide.vectors(block(1e308 * np.sign(states)))).all()


def test_two_users_are_as_far_apart_as_declared():
    here, there = np.full((1, 101, 2), -0.5), np.full((1, 101, 2), 0.5)
    here[0, 2], there[0, 9] = -0.9, 0.9
    one, other = (asked().vectors(block(s, [n])) for s, n in ((here, 2), (there, 9)))
    apart = float(np.linalg.norm(one - other))
    assert apart == pytest.approx(asked().l2(Relation.REPLACE_ONE), rel=1e-12)
    assert apart == pytest.approx(math.sqrt(2.0 * (1.25 * 2 + 1.0)))
    assert np.linalg.norm(one) == pytest.approx(asked().l2(Relation.ZERO_OUT), rel=1e-12)


def test_no_user_is_worse_than_declared():
    few = {"users": 60, "rounds": 12}
    check_statistic(asked(), users, attained=0.6, **few)
    turning = SmoothSpec((-math.pi, -1.0), (math.pi, 1.0), 2, 100, angles=(0,), may_end=True)
    check_statistic(asked(turning), partial(users, spec=turning), attained=0.6, **few)


@pytest.mark.parametrize("std", [0.0, 10.0])
def test_finds_the_box_that_episodes_end_beyond(std):
    """Ends above .75 along one coordinate and outside of -.5 and .5 along the other."""
    rng, ends = np.random.default_rng(0), TerminationBox.of(asked())
    data = walk(rng, 3000, lambda s: (s[..., 0] > 0.75) | (np.abs(s[..., 1]) > 0.5))
    ends = ends.after(told(asked(), data, rng, std), std)
    # Along both, bins of 1/16 begin at these places.
    np.testing.assert_allclose(ends.highs, [0.75, 0.5])
    np.testing.assert_allclose(ends.lows[1], -0.5)
    assert ends.explained > 0.9
    at = rng.uniform(-0.5, 0.9, (1000, 2))
    true = (at[:, 0] > 0.75) | (np.abs(at[:, 1]) > 0.5)
    assert (ends(at) == true).mean() > 0.97


def test_noise_alone_is_no_end():
    rng = np.random.default_rng(1)
    free = replace(SQUARE, reward_range=(-1.0, 1.0))
    for _ in range(50):
        ends = TerminationBox.of(asked(free))
        nobody = walk(rng, 20, nowhere)
        ends = ends.after(told(asked(), nobody, rng, 30.0), 30.0)
        np.testing.assert_array_equal(ends.lows, free.lows)
        np.testing.assert_array_equal(ends.highs, free.highs)
        assert ends.explained == 1.0


def test_ends_that_are_no_box_are_left_to_regression():
    rng, corners = np.random.default_rng(2), (np.array(SQUARE.lows), np.array(SQUARE.highs))
    features = PolynomialFeatures(*corners, (), np.zeros((2, 0)))
    ends = TerminationModel(TerminationBox.of(asked()), TerminationRegression.of(features))
    assert ends.boxed
    data = walk(rng, 2000, lambda s: s.sum(axis=-1) > 0.6)
    box = ends.box.after(told(asked(), data, rng, 0.0), 0.0)
    assert not replace(ends, box=box).boxed


def test_where_rewards_are_good_nobody_is_led_to_where_nobody_was():
    """Users stay within a quarter of a coordinate that has no ends."""
    rng = np.random.default_rng(3)
    data = walk(rng, 500, lambda s: s[..., 1] > 0.75)
    states = np.array(data.arrays["states"])
    states[..., 0] = 0.249 * np.sin(states[..., 0] * 30.0)
    data = block(states, data.arrays["lengths"])
    for rewards, high in (((0.0, 1.0), 0.25), ((-1.0, 1.0), 1.0)):
        ends = TerminationBox.of(asked(replace(SQUARE, reward_range=rewards)))
        ends = ends.after(told(asked(), data, rng, 0.0), 0.0)
        np.testing.assert_allclose(ends.highs, [high, 0.75])


def test_hope_ends_where_nobody_gets_farther():
    rng = np.random.default_rng(4)
    costs = replace(SQUARE, reward_range=(-1.0, 0.0))
    ends = TerminationBox.of(asked(costs))
    assert ends.hope is None
    for reach, hoped in ((0.25, True), (0.5, True), (0.5, True), (0.5, False)):
        nobody = walk(rng, 500, nowhere)
        states = np.array(nobody.arrays["states"]) * reach * 0.999
        ends = ends.after(told(asked(), block(states), rng, 0.0), 0.0)
        assert (ends.hope is not None) is hoped
        if ends.hope is not None:
            np.testing.assert_allclose(ends.hope[1], reach)
        # Whoever is greedy does not hope.
        np.testing.assert_array_equal(ends.highs, costs.highs)
    found = walk(rng, 500, lambda s: s[..., 0] > 0.75)
    ends = ends.after(told(asked(), found, rng, 0.0), 0.0)
    assert ends.hope is None
    assert ends.highs[0] == pytest.approx(0.75)


def test_regression_finds_ends_that_are_no_box():
    std, rng, corners = 0.5, np.random.default_rng(8), (-np.ones(2), np.ones(2))
    signs = TerminationRegression.of(PolynomialFeatures(*corners, (), np.zeros((2, 0))))
    question = TerminationMoments(SQUARE, signs.features)
    data = walk(rng, 2000, lambda s: s.sum(axis=-1) > 0.6)
    noise = std * rng.normal(size=question.layout.size)
    signs = signs.after(question.layout.unpack(question.total(data) + noise)["moments"], std)
    at = rng.uniform(-0.4, 0.6, (1000, 2))
    assert (signs(at) == (at.sum(axis=1) > 0.6)).mean() > 0.9


def learnt(world, users, privacy, seed=0, **options):
    spec = replace(world.spec, reward=None, ends=None)
    return ModelPosterior(spec, users, privacy, seed=seed, **options)


def served(agent, world, rng):
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.data_format))
    return agent


def test_a_goal_that_random_actions_never_reach_is_found():
    world = mountain_car()
    agent = served(learnt(world, 256, NonPrivate(), seed=1), world, np.random.default_rng(1))
    assert world.value(agent.greedy_policy) > -110.0


def crossing(rng, agent, count, over, spec):
    data = walk(rng, count, over, spec)
    return replace(data, arrays={**data.arrays, "versions": np.full(count, agent.policy.version)})


def test_a_grid_is_the_last_box_s_after_it_was_given_up():
    spec = replace(SQUARE, horizon=60)
    agent = ModelPosterior(spec, 400, NonPrivate(), seed=0, schedule="fixed:size=100")
    rng = np.random.default_rng(0)
    agent.learn(crossing(rng, agent, 100, lambda s: s[..., 0] > 0.3, spec))
    assert agent.state.ends.boxed
    for _ in range(2):
        before = agent.plan.memory[0]
        assert before.highs[0] < 0.5
        agent.learn(crossing(rng, agent, 100, lambda s: np.hypot(*s.T).T > 0.45, spec))
    assert not agent.state.ends.boxed
    assert agent.plan.memory[0] == before


def test_ends_of_angles_alone_are_left_to_regression():
    spec = SmoothSpec((-math.pi,), (math.pi,), 2, 20, angles=(0,), may_end=True)
    agent = ModelPosterior(spec, 60, JointDP(10.0, 1e-6), schedule="fixed:size=20", noise_seed=0)
    rng = np.random.default_rng(0)
    for _ in range(3):
        agent.learn(crossing(rng, agent, 20, lambda s: s[..., 0] > 0.3, spec))
    ends = agent.state.ends
    assert not ends.boxed
    assert ends.signs.variance > 0.0
    assert not ends.box.variance


def test_ends_cost_their_part_of_what_is_left_and_their_noise_is_known():
    spec = replace(SQUARE, horizon=20)
    agent = ModelPosterior(spec, 40, JointDP(10.0, 1e-6), schedule="fixed:size=20", noise_seed=0)
    algorithm, rng, variance = agent.algorithm, np.random.default_rng(0), 0.0
    mu = algorithm.privacy.episode_mu
    for left in (1.0 - SCALES, 1.0):
        agent.learn(crossing(rng, agent, 20, nowhere, spec))
        noise = asked(spec).l2(Relation.REPLACE_ONE) / (mu * math.sqrt(ENDS * left))
        variance += noise**2
        # A little more, for what rounding to the grid can add.
        assert variance <= agent.state.ends.box.variance < variance * (1.0 + 5e-4)
