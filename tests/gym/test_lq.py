import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from research.worlds import random_system
from tacit import InvalidArgument
from tacit.gym import register_envs
from tacit.gym.envs import LQEnv
from tacit.lq import dosing

IDS = [
    "tacit/Dosing-v0",
    "tacit/DoubleIntegrator-v0",
]


@pytest.mark.parametrize("name", IDS)
def test_environments_pass_gymnasiums_checks(name):
    env = gymnasium.make(name).unwrapped
    with warnings.catch_warnings():
        # It warns of boxes without limits, which these are.
        warnings.simplefilter("ignore")
        check_env(env, skip_render_check=True)


def test_parameters_reach_the_world_and_registering_twice_does_no_harm():
    register_envs()
    env = gymnasium.make("tacit/DoubleIntegrator-v0", horizon=7)
    assert env.unwrapped.world.name == "double_integrator:horizon=7,step=0.3,noise=0.1"


def test_steps_follow_the_system_and_cost_what_it_says():
    world = random_system(seed=500)
    env = LQEnv(world)
    rng = np.random.default_rng(1)
    x, _ = env.reset(seed=3)
    assert np.linalg.norm(x) == pytest.approx(1.0)
    for step in range(world.horizon):
        u = rng.normal(size=2)
        y, reward, terminated, truncated, _ = env.step(u)
        assert reward == pytest.approx(-(x @ world.Q @ x + u @ world.R @ u))
        assert np.linalg.norm(y - world.A @ x - world.B @ u) <= 0.15 + 1e-12
        assert not terminated
        assert truncated == (step == world.horizon - 1)
        x = y
    with pytest.raises(InvalidArgument, match="the episode is over after 15 steps"):
        env.step(u)


def test_mean_return_is_the_value_of_the_policy():
    world = dosing()
    env, policy = LQEnv(world), world.optimal_policy
    rng, returns = np.random.default_rng(0), []
    env.reset(seed=4)
    for _ in range(2000):
        x, _ = env.reset()
        total = 0.0
        for step in range(world.horizon):
            x, reward, *_ = env.step(policy.act(step, x, rng))
            total += reward
        returns.append(total)
    # Five standard errors: a false alarm has probability 6e-7, and the seed is fixed.
    error = 5.0 * np.std(returns) / np.sqrt(len(returns))
    assert abs(np.mean(returns) - world.optimal_value) < error


def test_seeds_repeat_users():
    env = LQEnv(dosing())
    a, b, c = env.reset(seed=1)[0], env.reset(seed=1)[0], env.reset()[0]
    np.testing.assert_array_equal(a, b)
    assert (a != c).all()


@pytest.mark.parametrize("action", [[0.0, 0.0], [np.nan], 0.0])
def test_what_is_no_control_is_refused(action):
    env = LQEnv(dosing())
    env.reset(seed=0)
    with pytest.raises(InvalidArgument, match="action must be finite numbers of shape"):
        env.step(action)


def test_other_worlds_are_refused():
    with pytest.raises(InvalidArgument, match="world must be of type LQWorld"):
        LQEnv("dosing")
