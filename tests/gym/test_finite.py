import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit

import tacit.tabular
from tacit import InvalidArgument
from tacit.gym import from_gymnasium
from tacit.gym.finite import FiniteEnv, ImportedWorld, SampledWorld
from tacit.gym.rules import numbered
from tacit.registry import build_world
from tacit.tabular import riverswim
from tacit.tabular.model import optimal
from tacit.tabular.policy import Policy
from tests.refusals import refusals

IDS = ["RiverSwim", "Grid", "DeepSea", "RandomMDP", "HealthCoach"]


def uniform(world):
    return Policy.uniform(world.spec.horizon, world.spec.states, world.spec.actions)


def environment_returns(env, policy, users, seed):
    """Undiscounted returns of a policy in the environment itself, which may end early."""
    rng = np.random.default_rng(seed)
    returns = []
    for user in range(users):
        state, _ = env.reset(seed=seed if user == 0 else None)
        total, over, step = 0.0, False, 0
        while not over and step < policy.horizon:
            state, reward, terminated, truncated, _ = env.step(policy.act(step, int(state), rng))
            total += reward
            over = terminated or truncated
            step += 1
        returns.append(total)
    return np.array(returns)


@pytest.mark.parametrize(
    ("name", "horizon", "options", "raw_optimum"),
    [
        # Known optima: 6 steps to the goal; 13 steps along the cliff; Taxi's mean best return.
        ("FrozenLake-v1", 6, {"is_slippery": False}, 1.0),
        ("FrozenLake-v1", 5, {"is_slippery": False}, 0.0),
        ("CliffWalking-v1", 30, {}, -13.0),
        ("Taxi-v4", None, {}, 7.93),
    ],
)
def test_known_optima(name, horizon, options, raw_optimum):
    world = from_gymnasium(name, horizon, **options)
    assert isinstance(world, ImportedWorld)
    assert world.optimal_value == pytest.approx(raw_optimum, abs=1e-6)
    assert world.reference_value == world.baseline_value
    values = world.spec.reward_values
    assert min(values) >= 0
    assert max(values) <= 1


@pytest.mark.parametrize(
    ("name", "options", "horizon"),
    [
        ("FrozenLake-v1", {}, 15),
        ("CliffWalking-v1", {"is_slippery": True}, 12),
        ("Taxi-v4", {"is_rainy": True}, 12),
    ],
)
def test_values_are_those_of_the_environment(name, options, horizon):
    world = from_gymnasium(name, horizon, **options)
    policy = Policy.stochastic(
        np.random.default_rng(0).dirichlet(
            np.ones(world.spec.actions), (horizon, world.spec.states)
        )
    )
    returns = environment_returns(gymnasium.make(name, **options), policy, 3000, seed=1)
    exact = world.value(policy)
    # Five standard errors: a false alarm in about a million.
    assert abs(returns.mean() - exact) < 5 * returns.std() / np.sqrt(len(returns))


def test_a_reward_comes_with_its_transition():
    """In FrozenLake whoever is paid has just reached the goal, once, and stays there."""
    world = from_gymnasium("FrozenLake-v1", horizon=60)
    rng = np.random.default_rng(0)
    episodes = world.simulate(world.optimal_policy, 500, rng)
    arrives = (episodes.states[:, 1:] == 15) & (episodes.states[:, :-1] != 15)
    assert (episodes.rewards == arrives).all()
    assert 0.3 < arrives.any(axis=1).mean() < 1
    assert (episodes.states[:, -1] == 15).sum() == arrives.sum()
    block = world.simulate(world.optimal_policy, 10**8, rng, "pooled")
    arrivals = block["transitions"][0, :15, :, 15].sum()
    assert block["rewards"].sum() == arrivals


class Corridor(gymnasium.Env):
    """Three cells; a step into cell 2 may end the episode there, or not."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(1)
    initial_state_distrib = np.array([1.0, 0.0, 0.0])

    def __init__(self):
        self.P = {
            0: {0: [(0.5, 2, 4.0, True), (0.5, 2, -1.0, False)]},
            1: {0: [(1.0, 0, 0.0, False)]},
            2: {0: [(1.0, 0, 3.0, False)]},
        }


def test_a_state_that_is_passed_and_ended_in_gets_a_copy():
    world = from_gymnasium(Corridor(), horizon=2)
    assert (world.spec.states, (world.reward_offset, world.reward_scale)) == (4, (-1.0, 5.0))
    # Half get 4 and are done, half get -1 and then 3.
    assert world.optimal_value == pytest.approx(0.5 * 4 + 0.5 * 2)
    episodes = world.simulate(uniform(world), 200, np.random.default_rng(0))
    raw = np.round(world.reward_offset + world.reward_scale * episodes.rewards, 9)
    assert set(map(tuple, raw.tolist())) == {(4.0, 0.0), (-1.0, 3.0)}


def test_a_time_limit_may_be_a_wrapper():
    world = from_gymnasium(TimeLimit(Corridor(), 7))
    assert (world.spec.horizon, world.assumed[0]) == (7, "horizon 7 (the time limit)")
    # The shorter one is what an episode has.
    assert from_gymnasium(TimeLimit(gymnasium.make("FrozenLake-v1"), 9)).spec.horizon == 9
    assert from_gymnasium(TimeLimit(gymnasium.make("FrozenLake-v1"), 999)).spec.horizon == 100


def test_names_rebuild_imported_worlds():
    world = from_gymnasium("FrozenLake-v1", horizon=9, is_slippery=False)
    again = build_world(world.name)
    assert again.name == world.name
    assert (again.model.transitions == world.model.transitions).all()
    assert world.name == "gym:FrozenLake-v1,horizon=9,is_slippery=false"
    for name in ("gym:FrozenLake-v1",):
        assert build_world(name).spec.horizon == 100


# Ways to an end: agents see other rewards than values are of.


class Way(gymnasium.Env):
    """From cell 0 to the end in two steps of -2; at the start a risk of a loss of -6."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(2)
    initial_state_distrib = np.array([1.0, 0.0, 0.0])

    def __init__(self, ends=5.0, free=False):
        stay = [(1.0, 0, 0.0 if free else -2.0, False)]
        self.P = {
            0: {0: stay, 1: [(0.5, 1, -2.0, False), (0.5, 1, -6.0, False)]},
            1: {0: [(1.0, 2, 5.0, True)], 1: [(1.0, 2, ends, True)]},
            2: {a: [(1.0, 2, 0.0, True)] for a in range(2)},
        }


def test_a_way_to_an_end_shows_the_steps_that_are_saved():
    world = from_gymnasium(Way(), horizon=4)
    # Values are what is paid: -2 or -6, then 5; or -2 four times.
    assert world.optimal_value == pytest.approx(1.0)
    assert world.value(Policy.deterministic(np.zeros((4, 4), int), 2)) == pytest.approx(-8.0)
    # Agents see 1 for the end and for each step after it: 3 of 4. The cost of 4 more than the
    # cheapest step, 2 of its steps, is shown as the loss of all with probability 2 / 4.
    go = np.ones((4, 4), dtype=np.int64)
    episodes = world.simulate(Policy.deterministic(go, 2), 4000, np.random.default_rng(0))
    got = episodes.rewards.sum(axis=1)
    assert set(got.tolist()) == {0.0, 3.0}
    assert (episodes.states[got == 0, 1:] == 3).all()
    assert abs((got == 0).mean() - 0.5 * 0.5) < 0.03
    assert any("a way to an end" in words for words in world.assumed)
    for other in (Way(ends=4.0), Way(free=True)):  # ends that differ, steps that cost nothing
        plain = from_gymnasium(other, horizon=4)
        assert (plain.valued, plain.reward_offset) == (plain.model, -6.0)
    clipped = from_gymnasium(Way(), horizon=4, reward_range=(-2.0, 0.0))
    assert (clipped.optimal_value, clipped.spec.reward_values) == (pytest.approx(1.0), (0.0, 1.0))
    linear = tacit.linear.linear_from_tabular(world)
    assert linear.optimal_value == pytest.approx(1.0)


def test_the_best_way_for_agents_is_the_best_way():
    for name in ("CliffWalking-v1", "Taxi-v4"):
        world = from_gymnasium(name)
        assert world.value(optimal(world.model)[1]) == pytest.approx(world.optimal_value)
    # Where a fall is a matter of luck, what it is worth depends on what is left; it is close.
    slippery = from_gymnasium("CliffWalkingSlippery-v1")
    found = slippery.value(optimal(slippery.model)[1])
    assert -66.0 < found < slippery.optimal_value < -63.0


class Coins(gymnasium.Env):
    """Two coins to turn; the second turned up ends the episode. Actions start at 1."""

    observation_space = spaces.MultiDiscrete([2, 2])
    action_space = spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.coins = np.zeros(2, dtype=np.int64)
        return self.coins.copy(), {}

    def step(self, action):
        # The first coin costs .5 to turn, the second is worth 1.
        self.coins[action - 1] = self.np_random.random() < 0.5
        done = bool(self.coins[1])
        return self.coins.copy(), 1.0 if done else -0.5, done, False, {}


def test_sampled_worlds():
    world = from_gymnasium(Coins(), horizon=3, reward_range=(-0.5, 1.0), optimal_value=2.5)
    assert isinstance(world, SampledWorld)
    assert not world.exact
    assert (world.spec.states, world.spec.actions, world.optimal_value) == (5, 2, 2.5)
    second = Policy.deterministic(np.ones((3, 5), dtype=np.int64), 2, version=3)
    n = 4000
    episodes = world.simulate(second, n, np.random.default_rng(0))
    assert (episodes.versions == 3).all()
    # The second coin falls with .5 at each step, and then the user stays at the end.
    assert set(np.unique(episodes.states).tolist()) == {0, 4}
    ended = (episodes.states == 4).mean(axis=0)
    assert np.abs(ended - [0, 0.5, 0.75, 0.875]).max() < 5 * 0.5 / np.sqrt(n)
    assert (np.diff(episodes.states, axis=1) >= 0).all()
    # On the scale of [0, 1]: -.5 is 0, 0 (padding) is 1/3, 1 is 1.
    expected = [0.5, 0.25 + 0.5 / 3, 0.125 + 0.75 / 3]
    assert np.abs(episodes.rewards.mean(axis=0) - expected).max() < 5 * 0.5 / np.sqrt(n)
    assert set(np.unique(episodes.rewards).tolist()) == {0.0, 1.0}
    assert world.value(second) == world.value(second)
    # In the environment's own units: 1 at the end, and .5 for every step before it.
    own = 0.5 * 1 + 0.25 * (1 - 0.5) + 0.125 * (1 - 1) - 0.125 * 1.5
    assert abs(world.value(second) - own) < 5 * 1.0 / np.sqrt(world.evaluation_users)
    assert world.reference_value == world.baseline_value


def test_every_form_is_one_of_episodes():
    world = from_gymnasium(Coins(), horizon=3, reward_range=(-0.5, 1.0), evaluation_users=10)
    assert np.isnan(world.optimal_value)
    episodes, counts = (
        world.simulate(uniform(world), 200, np.random.default_rng(7), form)
        for form in ("episodes", "counts")
    )
    for name in ("states", "actions", "rewards"):
        assert (getattr(episodes, name) == getattr(counts, name)).all()
    with pytest.raises(InvalidArgument, match="form must be one of"):
        world.simulate(uniform(world), 200, np.random.default_rng(7), "sums")


def test_what_a_table_does_not_know_is_sampled():
    blackjack = from_gymnasium("Blackjack-v1", 5, evaluation_users=20)
    assert blackjack.spec.states == 32 * 11 * 2 + 1
    assert (blackjack.reward_offset, blackjack.reward_scale) == (-1.0, 2.0)
    assert -1 <= blackjack.baseline_value <= 0
    assert blackjack.spec.largest_return == 1.0
    assert 1 < blackjack.random_steps < 2
    plain = from_gymnasium("Blackjack-v1", 5, reward_range=(-1, 1))
    assert plain.spec.largest_return is None
    fickle = from_gymnasium("Taxi-v4", 5, reward_range=(-10, 20), fickle_passenger=True)
    assert isinstance(fickle, SampledWorld)
    wrapped = gymnasium.wrappers.TransformReward(gymnasium.make("FrozenLake-v1"), lambda r: 1 - r)
    assert isinstance(from_gymnasium(wrapped, reward_range=(0, 1)), SampledWorld)


def test_a_return_is_told_when_an_episode_ends():
    world = SampledWorld(numbered(Coins(), None, []), 3, "coins", (-1.5, 1.0), None, 4000, (), True)
    assert world.spec.largest_return == 1.0
    second = Policy.deterministic(np.ones((3, 5), dtype=np.int64), 2)
    episodes = world.simulate(second, 4000, np.random.default_rng(0))
    # The end is state 4. Whoever never comes there is told at the last step.
    last = (episodes.states[:, :-1] != 4).sum(axis=1) - 1
    elsewhere = np.arange(3) != last[:, np.newaxis]
    assert set(last.tolist()) == {0, 1, 2}
    assert (episodes.rewards[elsewhere] == 0).all()
    assert (episodes.rewards[last == 0].sum(axis=1) == 1).all()
    assert abs(episodes.rewards.sum(axis=1).mean() - (world.value(second) + 1.5) / 2.5) < 0.03


def test_large_blocks_come_in_parts_that_are_the_same_every_time(monkeypatch):
    monkeypatch.setattr("tacit.gym.finite._PART", 64)
    world = from_gymnasium(Coins(), horizon=3, reward_range=(-0.5, 1.0))
    block = world.simulate(uniform(world), 150, np.random.default_rng(0), "streamed")
    once, twice = list(block.parts()), list(block.parts())
    assert [part.users for part in once] == [64, 64, 22]
    for a, b in zip(once, twice, strict=True):
        assert all((a[name] == b[name]).all() for name in ("states", "actions", "rewards"))


test_mistakes_are_named = refusals(
    lambda make: make(),
    (lambda: from_gymnasium("NoSuchLake-v1"), "no environment 'NoSuchLake-v1'"),
    (lambda: from_gymnasium("FrozenLake-v1", ice=3), "no environment"),
    (lambda: from_gymnasium(3), "env_or_id must be"),
    (lambda: from_gymnasium(Corridor(), 2, cells=4), r"\['cells'\] are for making"),
    (lambda: from_gymnasium("FrozenLake-v1", discount=0.9), "discount means nothing to Discrete"),
    (lambda: from_gymnasium("FrozenLake-v1", horizon=0), "horizon must be an integer >= 1"),
    (lambda: from_gymnasium(Coins(), 3, reward_range=(0, 0)), "reward_range must be two"),
    (
        lambda: from_gymnasium("FrozenLake-v1", optimal_value=-5.0),
        "optimal_value is given, but gym:FrozenLake-v1.* has a table",
    ),
    (lambda: FiniteEnv("riverswim"), "world must be FiniteWorld, got 'riverswim'"),
)


@pytest.mark.parametrize("name", IDS)
def test_registered_worlds_pass_gymnasiums_checker(name):
    env = gymnasium.make(f"tacit/{name}-v0").unwrapped
    # Warnings are errors here.
    check_env(env)
    world = from_gymnasium(f"tacit/{name}-v0")
    assert world.name == env.world.name
    shorter = from_gymnasium(f"tacit/{name}-v0", horizon=2, evaluation_users=10)
    assert isinstance(shorter, SampledWorld)
    assert (shorter.spec.horizon, shorter.spec.states) == (2, world.spec.states + 1)


def test_an_environment_plays_its_world():
    world = riverswim(states=3, horizon=8)
    env = FiniteEnv(world)
    returns = environment_returns(env, world.optimal_policy, 2000, seed=0)
    assert abs(returns.mean() - world.optimal_value) < 5 * returns.std() / np.sqrt(2000)
    state, _ = env.reset(seed=3)
    assert state == 0
    ends = [env.step(1)[2:4] for _ in range(8)]
    assert ends == [(False, False)] * 7 + [(False, True)]
    with pytest.raises(InvalidArgument, match="over after 8 steps"):
        env.step(1)
    with pytest.raises(InvalidArgument, match="action must be in"):
        env.step(2)
