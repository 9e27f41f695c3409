import math

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from research.worlds import cartpole
from tacit import FittedFunctionalQ, InvalidArgument, JointDP, run
from tacit.continuous import Polynomial, QPolicy
from tacit.gym import from_gymnasium
from tacit.registry import build_world
from tests.refusals import refusals

RNG = np.random.default_rng
POLE = Polynomial((2.4, 2.0, 0.2095, 2.0), 1.5, 2)


class Counter(gymnasium.Env):
    """Counts its steps in a state of two by one, pays them, and ends after some of them."""

    def __init__(self, end=None, first=0, space=None):
        self.observation_space = space or spaces.Box(0.0, 3.0, (2, 1), np.float32)
        self.action_space = spaces.Discrete(2, start=first)
        self.end, self.count, self.taken = end, 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._observed(), {}

    def step(self, action):
        assert self.action_space.contains(np.int64(action))
        self.count += 1
        return self._observed(), float(self.count), self.count == self.end, False, {}

    def _observed(self):
        return np.array([[self.count], [0.5]], dtype=np.float32)


def pole(horizon=50, **options):
    return from_gymnasium("CartPole-v1", horizon, (0.0, 1.0), features=POLE, **options)


def controller():
    weights = np.zeros((2, POLE.size))
    weights[1, 1:5] = 0.1, 0.2, 1.0, 0.5
    return QPolicy(POLE, weights)


def test_cartpole_is_the_built_in_world():
    world = pole(200, evaluation_users=25, optimal_value=200.0)
    mine = cartpole()
    assert world.spec.lows == pytest.approx(mine.spec.lows, abs=1e-3)
    assert world.spec.actions == mine.spec.actions
    assert world.value(controller()) == world.optimal_value == 200.0
    theirs = pole().simulate(QPolicy.uniform(4, 2), 200, RNG(0)).lengths
    ours = mine.simulate(QPolicy.uniform(4, 2), 20_000, RNG(0)).lengths
    # Six standard errors: 1e-8.
    assert abs(theirs.mean() - ours.mean()) < 6 * ours.std() * math.sqrt(1 / 200 + 1 / 20_000)
    assert world.baseline_value == world.reference_value
    assert abs(world.baseline_value - 22.2) < 6 * 12 / math.sqrt(25)


def test_episodes_are_those_of_the_environment():
    world = pole()
    vars(world)["_vector"] = None  # one by one, as every id without a vectorised form
    policy = controller()
    episodes = world.simulate(policy, 3, RNG(1))
    assert (episodes.lengths == 51).all()
    rng = RNG(1)
    entropy = rng.integers(2**63, size=2).tolist()
    seeds = RNG(np.random.SeedSequence([*entropy, 0])).integers(2**31, size=3).tolist()
    for seed, states, actions in zip(seeds, episodes.states, episodes.actions, strict=True):
        env = gymnasium.make("CartPole-v1")
        state, _ = env.reset(seed=seed)
        for step in range(50):
            np.testing.assert_array_equal(states[step], state.astype(np.float64))
            assert policy.act(step, state, RNG(0)) == actions[step]
            state = env.step(int(actions[step]))[0]
        np.testing.assert_array_equal(states[50], state.astype(np.float64))


def test_users_depend_on_nobody_else():
    world = pole()
    policy = QPolicy.uniform(4, 2)
    first = world.simulate(policy, 70, RNG(2))
    np.testing.assert_array_equal(first.states, world.simulate(policy, 70, RNG(2)).states)
    stream = world.simulate(policy, 70, RNG(2), "streamed")
    np.testing.assert_array_equal(next(stream.parts())["states"], first.states)
    assert world.value(policy) == pole().value(policy)


def test_mountain_car():
    world = from_gymnasium("MountainCar-v0", 200, (-1.0, 0.0), evaluation_users=5)
    assert (world.spec.dimension, world.spec.actions) == (2, 3)
    assert world.spec.bounded
    assert math.isnan(world.optimal_value)
    assert world.baseline_value == -200.0
    # Pushing the way it moves.
    energy = QPolicy(Polynomial((1.0, 0.07), 1.0, 1), [[0.0, 0.0, -1.0], [-9.0, 0, 0], [0, 0, 1.0]])
    assert -160.0 < world.value(energy) < -90.0
    lazy = QPolicy(Polynomial((1.0, 0.07), 1.0, 1), [[0.0] * 3, [1.0, 0, 0], [0.0] * 3])
    assert world.simulate(lazy, 3, RNG(0)).lengths.tolist() == [201] * 3, "a limit is no end"
    episodes = world.simulate(energy, 5, RNG(0))
    assert (episodes.lengths < 200).all()
    assert np.nansum(episodes.rewards, axis=1).tolist() == (-episodes.lengths).tolist()


def test_a_run_where_nobody_knows_the_optimum():
    world = from_gymnasium("MountainCar-v0", 5, (-1.0, 0.0), evaluation_users=2)
    options = {"serve": "all", "schedule": "fixed:size=20", "noise_seed": 0}
    agent = FittedFunctionalQ(world.spec, 40, JointDP(1.0, 1e-6), **options)
    result = run(agent, world, progress=False)
    assert result.values.tolist() == [-5.0] * 3
    assert math.isnan(result.score)


def test_cosines_and_sines_may_be_angles():
    plain, turned = (from_gymnasium("Acrobot-v1", 30, angles=flag) for flag in (False, True))
    assert turned.spec.angles == (0, 1)
    highs = math.pi, math.pi, 4.0 * math.pi, 9.0 * math.pi
    assert turned.spec.highs == pytest.approx(highs)
    assert turned.spec.lows == pytest.approx([-high for high in highs])
    assert "angles for cosines and sines (documented)" in turned.assumed
    one = plain.simulate(QPolicy.uniform(6, 3), 2, RNG(0)).states
    other = turned.simulate(QPolicy.uniform(4, 3), 2, RNG(0)).states
    expected = np.arctan2(one[..., 1], one[..., 0]), np.arctan2(one[..., 3], one[..., 2])
    np.testing.assert_allclose(other[..., :2], np.stack(expected, axis=-1), atol=1e-6)
    np.testing.assert_allclose(other[..., 2:], one[..., 4:], atol=1e-6)
    with pytest.raises(InvalidArgument, match="known of Acrobot, Pendulum, and not of CartPole"):
        from_gymnasium("CartPole-v1", 30, angles=True)


def test_points_of_a_box_push_along_it():
    world = from_gymnasium("Pendulum-v1", 9)
    assert world.spec.pushes == ((-1.0,), (-0.5,), (0.0,), (0.5,), (1.0,))
    assert not world.exchangeable_actions
    assert from_gymnasium("Acrobot-v1", 9).spec.pushes is None
    assert from_gymnasium("Acrobot-v1", 9).exchangeable_actions


def test_states_and_rewards_are_clipped_and_labels_shifted():
    world = from_gymnasium(Counter(end=4, first=5), 6, (0.0, 2.5))
    episodes = world.simulate(QPolicy.uniform(2, 2, version=1), 70, RNG(0))
    expected = [[0.0, 0.5], [1.0, 0.5], [2.0, 0.5], [3.0, 0.5], [3.0, 0.5]]
    assert episodes.states[-1, :5].tolist() == expected
    assert np.isnan(episodes.states[:, 5:]).all()
    assert episodes.rewards[-1, :4].tolist() == [1.0, 2.0, 2.5, 2.5]
    assert (episodes.lengths == 4).all()
    assert set(episodes.actions[:, :4].ravel().tolist()) == {0, 1}
    assert (episodes.actions[:, 4:] == -1).all()
    assert episodes.versions.tolist() == [1] * 70
    # Values are of what was paid.
    assert world.baseline_value == 1.0 + 2.0 + 3.0 + 4.0
    assert "Counter" in world.name


def test_names_rebuild_worlds():
    world = from_gymnasium(
        "CartPole-v1",
        20,
        (0.0, 1.0),
        optimal_value=20.5,
        discount=0.9,
        evaluation_users=7,
        sutton_barto_reward=False,
    )
    again = build_world(world.name)
    assert again.name == world.name
    assert again.spec == world.spec
    assert again.optimal_value == 20.5
    assert again.baseline_value == world.baseline_value
    assert "features=..." in pole().name


test_wrong_arguments_are_named = refusals(
    lambda make: make(),
    (lambda: from_gymnasium("MountainCar-v0", 201, (-1.0, 0.0)), "time limit"),
    (lambda: from_gymnasium(Counter(), 5, (0.0, 1.0), evaluation_users=0), "evaluation_users"),
)
