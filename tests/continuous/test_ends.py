"""An end is worth what is earned after it, nothing, to every agent; a time limit is no end."""

from dataclasses import replace

import numpy as np
import pytest

from tacit import FittedFunctionalQ, NonPrivate
from tacit.continuous import BoxSpec
from tacit.continuous.features import Polynomial
from tacit.continuous.worlds import VectorWorld, roll_out
from tacit.data.episodes import VectorEpisodes

H = 50
EDGE = 0.15
NONE = NonPrivate()


class Cliff(VectorWorld):
    """Up or down by U[0, .25]: the lower, the better, but below .15 it is over."""

    optimal_value = 30.0

    def __init__(self, spec=None):
        usual = BoxSpec((0.0,), (1.0,), actions=2, horizon=H, may_end=True)
        super().__init__(spec or usual, "cliff")

    def _users(self, policy, users, rng):
        starts, (coins, sizes) = rng.uniform(0.3, 1.0, (users, 1)), rng.random((2, H, users))

        def advance(step, who, here, taken):
            moved = np.where(taken == 1, 0.25, -0.25) * sizes[step, who]
            here = np.clip(here + moved[:, np.newaxis], 0.0, 1.0)
            return here, here[:, 0] < EDGE

        states, actions, lengths = roll_out(policy, starts, coins, advance)
        rewards = np.where(np.arange(H) < lengths[:, np.newaxis], 1.0 - states[:, 1:, 0], np.nan)
        return VectorEpisodes(states, actions, rewards, lengths, np.full(users, policy.version))

    def _value(self, policy):
        rewards = self._users(policy, 500, np.random.default_rng(0)).rewards
        return float(np.nansum(rewards, axis=1).mean())


def learnt(make, world, told):
    """The value of what an agent learns, who is told of ends or sees episodes that just stop."""
    agent = make(world.spec if told else replace(world.spec, may_end=False))
    rng = np.random.default_rng(0)
    while agent.block_users:
        seen = world.simulate(agent.policy, agent.block_users, rng)
        assert isinstance(seen, VectorEpisodes)
        lengths = seen.lengths if told else np.full(len(seen.lengths), H + 1)
        agent.learn(VectorEpisodes(seen.states, seen.actions, seen.rewards, lengths))
    return world.value(agent.greedy_policy)


MAP = Polynomial((1.0,), 1.0, 6)


@pytest.mark.parametrize(
    "make",
    [
        lambda spec: FittedFunctionalQ(spec, 100, NONE),
        lambda spec: FittedFunctionalQ(replace(spec, features=MAP), 100, NONE),
        lambda spec: FittedFunctionalQ(spec, 100, NONE, serve="all"),
    ],
)
def test_keeps_away_from_an_end_that_pays_well(make):
    """Who ignores ends goes where the next reward is largest, and falls."""
    world = Cliff()
    assert learnt(make, world, told=True) > 20.0 > 15.0 > learnt(make, world, told=False)
