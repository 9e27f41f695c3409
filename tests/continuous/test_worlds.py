import math

import gymnasium
import numpy as np
import pytest

from research.worlds import classic_loops, plane, trap
from research.worlds.cartpole import cartpole
from tacit import InvalidArgument
from tacit.continuous import (
    QPolicy,
    line,
)

RNG = np.random.default_rng


def controller(world):
    """Pushes towards the side to which the pole leans and turns, and the cart is and moves."""
    weights = np.zeros((2, world.spec.features.size))
    weights[1, 1:5] = 0.1, 0.2, 1.0, 0.5
    return QPolicy(world.spec.features, weights)


@pytest.mark.parametrize(
    ("make", "optimal", "uniform", "tolerance"),
    [(line, 20.71, 10.86, 0.005), (plane, 22.38, 10.99, 0.01), (trap, 23.5, 5.3, 0.05)],
)
def test_reference_values(make, optimal, uniform, tolerance):
    world = make()
    assert world.optimal_value == pytest.approx(optimal, abs=tolerance)
    assert world.baseline_value == pytest.approx(uniform, abs=tolerance)
    assert world.reference_value == world.baseline_value


# CartPole.


def test_carts_move_as_in_gymnasium():
    env = gymnasium.make("CartPole-v1").unwrapped
    rng = RNG(0)
    ends = 0
    for episode in range(20):
        env.reset(seed=episode)
        mine = np.array(env.state, dtype=np.float64)[np.newaxis]
        over = np.zeros(1, dtype=np.bool_)
        for _ in range(200):
            action = int(rng.integers(2))
            _, reward, terminated, _, _ = env.step(action)
            classic_loops.push(mine, np.array([action]), over)
            np.testing.assert_allclose(mine[0], env.state, rtol=1e-12, atol=1e-15)
            assert reward == 1.0
            assert bool(over[0]) == terminated
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


def test_wrong_arguments_are_named():
    with pytest.raises(InvalidArgument, match="steps"):
        cartpole(steps=0)
    with pytest.raises(InvalidArgument, match="horizon"):
        line(horizon=0)
    with pytest.raises(InvalidArgument, match="discount"):
        plane(discount=1.5)
