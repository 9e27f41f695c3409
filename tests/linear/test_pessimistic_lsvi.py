"""Pessimistic least squares on a log: the optimum of exact sums, its gate, and its evidence."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import tacit
from tacit import InvalidArgument, JointDP, NonPrivate, check_agent
from tacit.linear import simplex
from tacit.linear.estimate import Sums
from tacit.linear.pessimistic_lsvi import FeaturePolicies

BUDGET = JointDP(1.0, 1e-6)


def test_exact_sums_give_the_optimum_at_no_price():
    """Every state and action 10^6 times, moved and paid as the world has it on average."""
    world = simplex(dimension=3, states=6, actions=3, horizon=4, seed=300)
    agent = tacit.PessimisticLSVI(world.spec, 100, NonPrivate(), caution=0.0)
    algorithm, phi = agent.algorithm, agent.algorithm.features.reshape(18, 3)
    many = 1e6
    gram = many * (phi.T @ phi)[np.newaxis]
    following = many * (phi.T @ world.model.transitions_at(0).reshape(18, 6))[np.newaxis]
    rewards = many * (phi.T @ world.model.mean_rewards_at(0).reshape(18))[np.newaxis]
    learnt = Sums(gram, following, rewards, 0.0, 0.0, 0.0)
    policies = FeaturePolicies(algorithm, replace(agent.state, learnt=learnt))
    values = [
        world.value(tacit.Policy.stochastic(policies.tilted(beta)))
        for beta in (1e-6, 3.0, 30.0, 1e6)
    ]
    assert values[3] == pytest.approx(world.optimal_value, rel=1e-3)
    assert values[0] == pytest.approx(world.baseline_value, rel=1e-3)
    assert values == sorted(values)
    assert policies.moment(policies.tilted(1e-6)) == pytest.approx(1.0, rel=1e-3)


def test_it_learns_from_a_log_and_proves_it():
    world = simplex(seed=301)
    log = world.simulate(tacit.Policy.uniform(10, 20, 10), 100_000, np.random.default_rng(0))
    found = tacit.learn_offline(
        log, world.spec, BUDGET, "uniform", agent=tacit.PessimisticLSVI, noise_seed=0
    )
    assert found.better
    assert world.value(found.policy) in found.value
    assert world.baseline_value in found.today


def test_it_needs_features():
    with pytest.raises(InvalidArgument, match="spec must be"):
        tacit.PessimisticLSVI(tacit.tabular.riverswim(3, 4).spec, 100, BUDGET)


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["uniform", "unknown"])
def test_it_passes_all_checks(behaviour):
    world = simplex(dimension=3, states=6, actions=3, horizon=3, seed=300)
    make = partial(tacit.PessimisticLSVI, privacy=BUDGET, behaviour=behaviour)
    assert check_agent(make, world, users=200).releases == 2
