"""Worlds with many states: what their authors say of them, and what they must not do."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import tacit
from research.worlds import build, icu_sepsis, sparse_mdp
from tacit import InvalidArgument
from tacit.registry import build_world
from tacit.tabular.policy import uniform_policy

needs_package = pytest.mark.skipif(
    find_spec("icu_sepsis") is None, reason="needs the package icu-sepsis"
)


@needs_package
@pytest.mark.parametrize(
    ("horizon", "values"), [(20, (0.6854, 0.6920, 0.7922)), (50, (0.7754, 0.7778, 0.8691))]
)
def test_values_of_icu_sepsis(horizon, values):
    """Uniform, clinicians and optimum, computed beforehand from the package's dense tables."""
    world = icu_sepsis(horizon)
    found = (world.baseline_value, world.people_value, world.optimal_value)
    assert found == pytest.approx(values, abs=6e-5)
    assert world.reference_value == world.baseline_value


@needs_package
def test_what_is_public_of_icu_sepsis():
    world = build("icu_sepsis")
    spec = world.spec
    assert ((spec.states, spec.actions, spec.horizon), spec.largest_return) == ((716, 25, 20), 1.0)
    assert sum(map(len, spec.admissible[:713])) / 713 == pytest.approx(3.1, abs=0.05)
    assert spec.admissible[713:] == ((0,),) * 3
    assert len(world.model.source) < 10**5
    assert world.name == "research.worlds.icu_sepsis:horizon=20"
    episodes = world.simulate(uniform_policy(spec), 20_000, np.random.default_rng(0))
    returns = episodes.rewards.sum(axis=1)
    assert set(np.unique(returns)) == {0.0, 1.0}
    assert abs(returns.mean() - world.baseline_value) < 5 * 0.5 / np.sqrt(20_000)


def test_sparse_mdp_is_what_its_page_says():
    world = sparse_mdp()
    assert world.optimal_value == pytest.approx(0.7318, abs=5e-5)
    assert world.baseline_value == pytest.approx(0.5638, abs=5e-5)
    counts = [len(actions) for actions in world.spec.admissible[:-2]]
    assert set(counts) == {1, 2, 3, 4, 5, 7}
    assert build_world(world.name).optimal_value == world.optimal_value
    assert sparse_mdp(seed=1).optimal_value != world.optimal_value


def test_sums_are_refused_and_labels_kept():
    world = sparse_mdp(states=10)
    policy = uniform_policy(world.spec)
    for form in ("counts", "pooled"):
        with pytest.raises(InvalidArgument, match="in this world"):
            world.simulate(policy, 3, np.random.default_rng(0), form)
    assert not world.exchangeable_actions


def test_agents_without_such_sets_are_for_another_world():
    world = sparse_mdp(states=10)
    agent = tacit.PolicyImprovement(
        replace(world.spec, admissible=((0,),) * 10), users=10, privacy=tacit.NonPrivate()
    )
    with pytest.raises(InvalidArgument, match="admissible"):
        tacit.run(agent, world, progress=False)
    same = tacit.PolicyImprovement(replace(world.spec), users=10, privacy=tacit.NonPrivate())
    assert tacit.run(same, world, progress=False).users == 10
