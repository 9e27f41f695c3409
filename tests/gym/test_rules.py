"""What an environment does not say is taken by public rules."""

import math
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tacit
from tacit import InvalidArgument, NonPrivate
from tacit.cli.doctor import prospects
from tacit.continuous import QPolicy
from tacit.gym import NAMES, from_gymnasium
from tacit.registry import build_world


class Told(gymnasium.Env):
    """Has the spaces that it is told, remembers its actions, and pays 2 for each of four steps."""

    def __init__(self, seen, does, metadata=None):
        self.observation_space, self.action_space = seen, does
        self.metadata = metadata or {}
        self.taken = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(0)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.taken.append(action)
        self.steps += 1
        return self.observation_space.sample(), 2.0, self.steps == 4, False, {}


LINE = spaces.Box(-1.0, 1.0, (1,), np.float32)


@pytest.mark.parametrize(
    ("does", "count", "words"),
    [
        (spaces.Discrete(3), 3, None),
        (spaces.MultiDiscrete([2, 3]), 6, "6 actions (all combinations)"),
        (LINE, 5, "5 actions (5 levels)"),
        (spaces.Box(-2.0, 2.0, (2,), np.float32), 25, "25 actions (5 levels each)"),
    ],
)
def test_actions_have_numbers(does, count, words):
    env = Told(LINE, does)
    world = tacit.world(env)
    assert world.spec.actions == count
    assert ([part for part in world.assumed if "actions" in part] or [None])[0] == words
    world.simulate(QPolicy.uniform(1, count), 300, np.random.default_rng(0))
    if isinstance(does, spaces.Box):
        taken = np.array(env.taken)  # of one of the environments side by side
        low, high = does.low, does.high
        steps = (taken - low) / (high - low) * 4.0
        assert np.allclose(steps, steps.round())
        assert (steps.min(), steps.max()) == (0.0, 4.0)


def test_levels_are_an_option():
    assert build_world("gym:Pendulum-v1,action_levels=3").spec.actions == 3
    with pytest.raises(InvalidArgument, match="1,024 actions are more than 1,000"):
        tacit.world(Told(LINE, spaces.MultiDiscrete([2] * 10)))
    with pytest.raises(InvalidArgument, match="actions must be Discrete, MultiDiscrete"):
        tacit.world(Told(LINE, spaces.Text(3)))


def test_observations_are_numbered_or_flattened():
    both = spaces.Dict({"place": LINE, "kind": spaces.Discrete(3)})
    world = tacit.world(Told(both, spaces.Discrete(2)))
    assert world.spec.dimension == 4
    assert "observations flattened to 4 numbers" in world.assumed
    assert tacit.world(Told(spaces.MultiDiscrete([2, 3]), spaces.Discrete(2))).spec.states == 7
    with pytest.raises(InvalidArgument, match="of a Sequence, which has no fixed numbers"):
        tacit.world(Told(spaces.Sequence(LINE), spaces.Discrete(2)))


def test_ranges_of_rewards_are_declared_documented_or_the_rule():
    silent = tacit.world(Told(LINE, spaces.Discrete(2)))
    assert silent.spec.reward_range == (-1.0, 1.0)
    assert silent.assumed == ("horizon 100 (no time limit)", "rewards in -1:1 (not declared)")
    # Agents see what is clipped, and values are of what was paid.
    users = silent.simulate(QPolicy.uniform(1, 2), 3, np.random.default_rng(0))
    assert (np.nanmax(users.rewards), silent.baseline_value) == (1.0, 8.0)
    declared = tacit.world(Told(LINE, spaces.Discrete(2), {"reward_range": (0, 2)}))
    assert declared.spec.reward_range == (0.0, 2.0)
    ranges = {
        "CartPole-v1": (0.0, 1.0),
        "CartPole-v1,sutton_barto_reward=true": (-1.0, 0.0),
        "Pendulum-v1": (pytest.approx(-16.2736044), 0.0),
        "Pendulum-v1,reward_range=-20:0": (-20.0, 0.0),
    }
    for text, expected in ranges.items():
        assert build_world(f"gym:{text}").spec.reward_range == expected


def test_boxes_and_features():
    cart = build_world("gym:CartPole-v1").spec
    assert cart.highs == (pytest.approx(4.8), 3.0, pytest.approx(0.41887903), 3.0)
    # Features are for agents to choose, by a rule of theirs.
    assert (cart.horizon, cart.features, cart.may_end) == (500, None, True)
    wide = spaces.Box(-1.0, 1.0, (40,), np.float32)
    spec = tacit.world(Told(wide, spaces.Discrete(2))).spec
    fitted = tacit.FittedFunctionalQ(spec, 40, tacit.JointDP(1.0, 1e-6), noise_seed=0)
    assert fitted.algorithm.features.size == 41


def test_an_optimum_below_the_baseline_is_refused():
    env = Told(spaces.Discrete(2), spaces.Discrete(2))
    known = {"horizon": 5, "reward_range": (0.0, 2.0), "evaluation_users": 5}
    wrong, right, unknown = (
        from_gymnasium(env, **known, optimal_value=best) for best in (7.0, 8.0, None)
    )
    with pytest.raises(InvalidArgument, match="optimal_value of 7, but acting at random has 8"):
        tacit.run("ucbvi", wrong, users=4, privacy=NonPrivate())
    for world, regret in ((right, 0.0), (unknown, math.nan)):
        result = tacit.run("ucbvi", world, users=4, privacy=NonPrivate(), progress=False)
        assert result.served_value == 8.0
        assert result.regret[-1] == pytest.approx(regret, nan_ok=True)


@pytest.mark.parametrize("family", NAMES)
def test_our_environments_are_their_worlds(family):
    for name, world in NAMES[family].items():
        made = gymnasium.make(f"tacit.gym:tacit/{name}-v0")
        assert tacit.world(made).name.startswith(world)


@pytest.mark.parametrize("first", ["gymnasium, tacit", "tacit.gym, gymnasium"])
def test_an_import_registers_them_and_loads_no_family(first):
    code = (
        f"import {first}, sys; gymnasium.spec('tacit/RiverSwim-v0'); "
        "assert not {'tacit.tabular', 'numba', 'tacit.core'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_pixels_are_named_and_the_doctor_says_what_would_happen():
    with pytest.raises(InvalidArgument, match="'map' are pixels"):
        tacit.world(Told(spaces.Dict(map=spaces.Box(0, 9, (7, 7, 3), np.uint8)), LINE))
    assert "pixels" in prospects("gym:CarRacing-v3")["refused"]
    assert prospects("gym:MountainCar-v0")["users"] == 5000
