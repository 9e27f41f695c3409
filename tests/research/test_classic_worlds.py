"""Worlds of classic control: steps are Gymnasium's, and values are right."""

import math

import gymnasium
import numpy as np
import pytest

from research.worlds import cartpole, classic_loops, mountain_car, pendulum
from tacit.continuous import QPolicy

RNG = np.random.default_rng


def controller(world):
    """Pushes towards the side to which the pole leans and turns, and the cart is and moves."""
    weights = np.zeros((2, world.spec.features.size))
    weights[1, 1:5] = 0.1, 0.2, 1.0, 0.5
    return QPolicy(world.spec.features, weights)


@pytest.mark.parametrize(
    ("name", "make", "loop", "angles"),
    [("MountainCar-v0", mountain_car, "climb", ()), ("Pendulum-v1", pendulum, "swing", (0,))],
)
def test_steps_are_those_of_gymnasium(name, make, loop, angles):
    env = gymnasium.make(name).unwrapped
    env.reset(seed=0)
    rng, spec = np.random.default_rng(0), make().spec
    state = np.array(env.state, dtype=np.float64)[np.newaxis]
    for step in range(300):
        if step % 10 == 0:
            action = int(rng.integers(spec.actions))
        state[0, list(angles)] = (state[0, list(angles)] + math.pi) % (2 * math.pi) - math.pi
        before = state.copy()
        given = np.array([action - 2.0]) if name == "Pendulum-v1" else action
        _, reward, ended, _, _ = env.step(given)
        getattr(classic_loops, loop)(state, np.array([action]))
        true = np.array(env.state, dtype=np.float64)
        turned = np.abs(state[0] - true) % (2 * math.pi)
        np.testing.assert_allclose(np.minimum(turned, 2 * math.pi - turned), 0.0, atol=1e-6)
        assert spec.rewards(before, np.array([action]), state)[0] == pytest.approx(reward, abs=1e-6)
        assert spec.ended(state)[0] == ended
        if ended:
            env.reset(seed=step)
        state = np.array(env.state, dtype=np.float64)[np.newaxis]


# CartPole.


def test_carts_move_as_in_gymnasium():
    env = gymnasium.make("CartPole-v1").unwrapped
    rng = RNG(0)
    ends = 0
    for episode in range(20):
        env.reset(seed=episode)
        mine = np.array(env.state, dtype=np.float64)[np.newaxis]
        for _ in range(200):
            action = int(rng.integers(2))
            _, reward, terminated, _, _ = env.step(action)
            classic_loops.push(mine, np.array([action]))
            np.testing.assert_allclose(mine[0], env.state, rtol=1e-12, atol=1e-15)
            assert reward == 1.0
            assert bool(cartpole().spec.ended(mine)[0]) == terminated
            if terminated:
                ends += 1
                break
    assert ends == 20


def test_an_episode_ends_with_the_fall():
    world = cartpole()
    episodes = world.simulate(QPolicy.uniform(4, 2), 500, RNG(1))
    H = world.spec.horizon
    over = (np.abs(episodes.states[..., 0]) > 2.4) | (
        np.abs(episodes.states[..., 2]) > 12 * 2 * math.pi / 360
    )
    for states, actions, rewards, length, fallen in zip(
        episodes.states, episodes.actions, episodes.rewards, episodes.lengths, over, strict=True
    ):
        assert not fallen[:length].any()
        assert length > H or fallen[length]
        assert np.isfinite(states[: length + 1]).all()
        assert np.isnan(states[length + 1 :]).all()
        assert (actions[:length] >= 0).all()
        assert (actions[length:] == -1).all()
        assert (rewards[:length] == 1.0).all()
        assert np.isnan(rewards[length:]).all()
    assert 0.8 < (episodes.lengths <= H).mean() < 1.0
    assert np.abs(episodes.states[:, 0]).max() <= 0.05


def test_there_is_a_policy_that_never_falls():
    world = cartpole()
    assert world.value(controller(world)) == world.optimal_value == 200.0
    episodes = world.simulate(controller(world), 200, RNG(2))
    assert (episodes.lengths == 51).all()
    assert (episodes.rewards == 1.0).all()


def test_uniform_survives_about_22_steps():
    world = cartpole()
    # The standard deviation is below 12, so six standard errors of 2,000 are below 1.7.
    assert abs(world.baseline_value - 22.2) < 1.7
    assert world.value(QPolicy.uniform(4, 2)) == world.baseline_value
