"""Trial worlds: values that simulations confirm, and people who stay the same from look to look."""

from types import SimpleNamespace

import numpy as np
import pytest

import tacit
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import run
from tacit.trial.worlds import micro_randomised


class Fixed:
    """A policy with given chances by context, and histories that are ignored."""

    version = 3

    def __init__(self, weights, low=0.0):
        self.weights, self.low = np.asarray(weights, dtype=float), low

    def chances(self, features, history=None):
        return np.clip(features @ self.weights > 0, self.low, 1.0 - self.low)

    def history(self, people):
        return SimpleNamespace(add=lambda *decision: None)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"effect": 0.05, "rate": 0.05},
        {"burden": 0.1, "habituation": 1.0},
        {"linear": True, "average": 0.05},
    ],
)
def test_values_are_those_of_simulated_people(shape):
    world = micro_randomised(decisions=60, dropout=0.0, contexts=4, **shape)
    policy = Fixed(world.conditions.effects)
    rewards = world.simulate(policy, 20_000, np.random.default_rng(0)).rewards.sum(axis=1)
    # Seven standard errors, and what cutting probabilities adds where rewards are rare.
    margin = 7.0 * rewards.std() / np.sqrt(20_000) + (0.3 if "rate" in shape else 0.02)
    assert abs(rewards.mean() - world.value(policy)) < margin
    assert world.baseline_value < world.value(policy) <= world.optimal_value + 1e-9


def test_a_message_that_wears_people_out_is_not_worth_its_effect():
    world = micro_randomised(effect=0.1, average=0.0, burden=0.2)
    assert world.advantages.max() < 0.0
    assert world.value(Fixed(np.zeros(8))) == world.optimal_value  # never


def test_cohorts_keep_their_people():
    world = micro_randomised(decisions=40, contexts=3)
    people = world.cohort(np.random.default_rng(1))
    policy = Fixed(world.conditions.effects, low=0.2)
    looks, served = [], []
    for _ in world.spec.edges:
        looks.append(people.simulate(policy, 50, np.random.default_rng(1)))
        served.append(people.served)
    assert served == [20, 50]
    for early, edge in zip(looks, world.spec.edges, strict=True):
        last = looks[-1]
        assert early.user_ids == last.user_ids == tuple(range(50))
        assert np.array_equal(early.lengths, np.minimum(last.lengths, edge))
        for name in ("states", "actions", "rewards", "propensities"):
            now, then = getattr(early, name), getattr(last, name)
            assert np.array_equal(now[:, :edge], then[:, :edge], equal_nan=True)
        assert np.isnan(early.rewards[:, edge:]).all()
    share = (people.served_value - 70 / 140 * 40) / (world.optimal_value - world.baseline_value)
    assert 0.45 < share < 0.75  # .6 of what is possible, by people who differ
    with pytest.raises(InvalidArgument, match="2 looks"):
        people.simulate(policy, 50, np.random.default_rng(1))


def test_propensities_are_of_the_actions_taken():
    world = micro_randomised(decisions=30, contexts=2, dropout=0.5)
    found = world.simulate(Fixed([-1.0, 1.0], low=0.3), 400, np.random.default_rng(2))
    made = np.isfinite(found.rewards)
    assert np.array_equal(made.sum(axis=1), found.lengths)
    likely = (found.states[:, :-1, 1] > 0) == (found.actions == 1)
    assert np.allclose(found.propensities[made], np.where(likely, 0.7, 0.3)[made])
    assert np.isnan(found.propensities[~made]).all()


@pytest.mark.parametrize(
    "wrong", [{"effect": 1.5}, {"rate": 0.05, "effect": 0.2}, {"dropout": -0.1}, {"contexts": 0}]
)
def test_impossible_trials_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        micro_randomised(**wrong)


def test_names_rebuild_worlds():
    world = micro_randomised(contexts=3, linear=True, burden=0.01, looks=(0.5, 1))
    again = tacit.world(world.name)
    assert again.name == world.name
    assert again.spec == world.spec
    assert again.optimal_value == world.optimal_value


class Uniform:
    """An agent that serves coins and learns nothing."""

    name, users, privacy, guarantee = "coins", 80, "none", None
    data_format = "episodes"

    def __init__(self, spec):
        self.spec, self.learnt = spec, []
        self.policy = self.greedy_policy = Fixed(np.zeros(spec.dimension), low=0.5)

    @property
    def block_users(self):
        return 80 if len(self.learnt) < len(self.spec.looks) else 0

    def learn(self, data):
        self.learnt.append(data)


def test_run_moves_the_same_people_from_look_to_look():
    world = micro_randomised(dropout=0.0)
    agent = Uniform(world.spec)
    result = run(agent, world, progress=False)
    assert [data.lengths.max() for data in agent.learnt] == [56, 140]
    assert np.array_equal(agent.learnt[0].actions[:, :56], agent.learnt[1].actions[:, :56])
    assert result.served.tolist() == [0, 32, 80]
    assert result.served_value == pytest.approx(world.baseline_value)
