import numpy as np
import pytest

from research.worlds import random_system
from tacit import InvalidArgument
from tacit.gym.envs import LQEnv
from tacit.lq import dosing


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
    for _ in range(1000):
        x, _ = env.reset()
        total = 0.0
        for step in range(world.horizon):
            x, reward, *_ = env.step(policy.act(step, x, rng))
            total += reward
        returns.append(total)
    # Five standard errors: a false alarm has probability 6e-7, and the seed is fixed.
    error = 5.0 * np.std(returns) / np.sqrt(len(returns))
    assert abs(np.mean(returns) - world.optimal_value) < error


@pytest.mark.parametrize("action", [[0.0, 0.0], [np.nan], 0.0])
def test_what_is_no_control_is_refused(action):
    env = LQEnv(dosing())
    env.reset(seed=0)
    with pytest.raises(InvalidArgument, match="action must be finite numbers of shape"):
        env.step(action)
