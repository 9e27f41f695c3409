"""Which spaces are learnt from, and a clear no before anything runs."""

from __future__ import annotations

import json
import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tacit
from tacit import InvalidArgument
from tacit.continuous.policy import QPolicy
from tacit.gym import from_gymnasium
from tacit.gym.rules import check_space, countable
from tests.cli.calls import call

BOX = spaces.Box(-1.0, 1.0, (3,))


class Seen(gymnasium.Env):
    """An environment with a space for its observations."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.5, False, False, {}


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(0, 255, (96, 96, 3), np.uint8), "observations are pixels (27,648 numbers)"),
        (spaces.Dict(map=spaces.Box(0, 9, (7, 7, 3), np.uint8)), "observations 'map' are pixels"),
        (spaces.Dict(a=spaces.Dict(word=spaces.Text(5))), "observations 'a.word' are of a Text"),
        (spaces.Tuple((spaces.Sequence(BOX), BOX)), "observations '0' are of a Sequence"),
        (spaces.Box(0.0, 1.0, (65,)), "flattened to 65 numbers"),
        (spaces.MultiDiscrete([50] * 5), "flattened to 250 numbers"),
    ],
)
def test_what_cannot_be_learnt_from_is_named(space, words):
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        tacit.world(Seen(space))


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Dict(x=BOX, mood=spaces.Discrete(4)), 7),
        (spaces.Tuple((BOX, spaces.MultiDiscrete([2, 3]))), 8),
        (spaces.Box(0.0, 1.0, (24,)), 24),
    ],
)
def test_parts_are_flattened_as_gymnasium_does_it(space, size):
    world = from_gymnasium(Seen(space), horizon=3)
    assert (check_space(space), world.spec.dimension, world.spec.actions) == (size, size, 6)
    privacy = tacit.NonPrivate()
    result = tacit.run("auto", world, users=30, privacy=privacy, progress=False)
    assert result.baseline_value == pytest.approx(1.5)


def test_few_enough_observations_are_numbered():
    assert countable(spaces.MultiDiscrete([10, 10, 4]))
    assert not countable(spaces.MultiDiscrete([50] * 5))
    assert not countable(spaces.Tuple((spaces.Discrete(3), BOX)))
    assert from_gymnasium(Seen(spaces.MultiDiscrete([4, 5])), horizon=3).spec.states == 21


def test_the_vectorised_form_plays_the_same_game():
    """Its users are others; how long they stay up at random has the same law."""
    world, plain = tacit.world("gym:CartPole-v1"), tacit.world("gym:CartPole-v1")
    vars(plain)["_vector"] = None
    assert world._vector is not None
    policy, lengths = QPolicy.uniform(4, 2), []
    for one in (world, plain):
        data = one.simulate(policy, 2000, np.random.default_rng(0))
        again = one.simulate(policy, 2000, np.random.default_rng(0))
        assert np.array_equal(data.states, again.states, equal_nan=True)
        assert np.nanmax(np.abs(data.states[:, 0])) <= 0.05
        lengths.append(data.lengths)
    spread = np.sqrt(sum(each.var() / len(each) for each in lengths))
    assert abs(lengths[0].mean() - lengths[1].mean()) < 6.5 * spread


def test_a_wrapper_of_yours_is_not_passed_by():
    wrapped = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda r: 2.0 * r)
    assert tacit.world(wrapped)._vector is None


def test_the_doctor_says_what_would_happen():
    found = json.loads(call("doctor", "gym:MountainCar-v0", "--json").stdout)
    assert (found["dimension"], found["actions"], found["horizon"]) == (2, 3, 200)
    assert found["agent_at_epsilon_1"] == "model_posterior"
    assert found["users"] == 5000
    assert found["time"].startswith("about ")
    finite = json.loads(call("doctor", "gym:FrozenLake-v1", "--json").stdout)
    assert (finite["states"], finite["values"], finite["users"]) == (16, "exact", 10**6)
    refused = call("doctor", "gym:Nothing-v0")
    assert refused.exit_code == 1
    assert "no environment 'Nothing-v0'" in " ".join(refused.stdout.split())
