"""What holds for linear worlds and for mixtures alike."""

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit import InvalidArgument
from tacit.simulation.run import run
from tacit.tabular.policy import Policy
from tacit.tabular.spec import FiniteSpec
from tests.tabular.families import FAMILIES, taught

# Every statistical test here has a fixed seed and would alarm falsely with about this probability.
pytestmark = pytest.mark.parametrize("family", FAMILIES)


def all_policies(spec):
    H, S, A = spec.horizon, spec.states, spec.actions
    for actions in itertools.product(range(A), repeat=H * S):
        yield Policy.deterministic(np.reshape(actions, (H, S)), A)


def brute_value(family, world, policy):
    """Over all paths of states, from features and factors or weights alone."""
    H, S = world.spec.horizon, world.spec.states
    total = 0.0
    for path in itertools.product(range(S), repeat=H):
        p, earned = float(world.model.start[path[0]]), 0.0
        for h, s in enumerate(path):
            a = policy.actions[h, s]
            earned += family.reward(world, h, s, a)
            if h + 1 < H:
                p *= family.probability(world, h, s, a, path[h + 1])
        total += p * earned
    return total


@pytest.mark.parametrize("steps", [(1, 1), (3, 1), (1, 3), (3, 3)])
def test_values_are_those_of_all_paths_and_the_optimum_that_of_all_policies(family, steps):
    world = family.random(1, states=2, steps=steps)
    values = [brute_value(family, world, policy) for policy in all_policies(world.spec)]
    for policy, value in zip(all_policies(world.spec), values, strict=True):
        assert world.value(policy) == pytest.approx(value, abs=1e-12)
    assert world.optimal_value == pytest.approx(max(values), abs=1e-12)
    assert world.value(world.optimal_policy) == pytest.approx(max(values), abs=1e-12)
    # Acting uniformly is a uniformly drawn deterministic policy.
    assert world.baseline_value == pytest.approx(np.mean(values), abs=1e-12)
    assert world.reference_value == 0.0
    assert world.spec.stationary_transitions == (steps[0] == 1)
    assert world.spec.stationary_rewards == (steps[1] == 1)
    assert world.spec.stationary == (steps == (1, 1))


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    states=st.integers(1, 6),
    actions=st.integers(1, 4),
    dimension=st.integers(1, 6),
    horizon=st.integers(1, 4),
    per_step=st.tuples(st.booleans(), st.booleans()),
)
def test_the_model_is_linear_in_whatever_basis(
    family, seed, states, actions, dimension, horizon, per_step
):
    """Another basis makes measures, or features and weights, signed, and the world no different."""
    steps = tuple(horizon if one else 1 for one in per_step)
    made = family.made_of(seed, states, actions, dimension, horizon, steps)
    world = family.world(**made)
    P, R = family.model(made)
    np.testing.assert_allclose(world.model.transitions, P, atol=1e-12)
    np.testing.assert_allclose(world.model.mean_rewards, R, atol=1e-12)
    # A rotation, so that nothing is lost to rounding.
    basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(dimension, dimension)))
    turned = family.turned(made, basis)
    np.testing.assert_allclose(turned.model.transitions, P, atol=1e-9)
    assert turned.optimal_value == pytest.approx(world.optimal_value, abs=1e-9)


def test_actions_keep_their_labels(family):
    world = family.random(6)
    assert not world.exchangeable_actions

    class Watching(family.world):
        def simulate(self, policy, users, rng, form="episodes"):
            served.append(policy)
            return super().simulate(policy, users, rng, form)

    served = []
    agent = tacit.UCBVI(world.spec, users=1000, privacy=tacit.NonPrivate(), noise_seed=0)
    first = agent.policy
    run(agent, Watching(**family.made_of(6)), seed=1)
    assert (served[0].table() == first.table()).all()


def test_tabular_agents_run_on_these_worlds(family):
    world = family.random(7, states=4, actions=3, horizon=4)
    learnt = taught(world.spec)
    result = tacit.run(learnt, world, seed=2)
    assert result.values[-1] > (world.baseline_value + world.optimal_value) / 2
    # What it knows of the world can be less.
    small = FiniteSpec(states=4, actions=3, horizon=4, stationary=True)
    assert tacit.run(taught(small), world, seed=2).optimal_value == world.optimal_value


def test_an_agent_for_other_features_is_refused(family):
    world, other = family.random(9), family.random(10)
    agent = tacit.UCBVI(other.spec, users=100, privacy=tacit.NonPrivate(), noise_seed=0)
    with pytest.raises(InvalidArgument, match=f"agent is for a world with {family.features}"):
        tacit.run(agent, world)


def test_specs_are_equal_by_content(family):
    spec = family.random(14).spec
    again = family.random(14).spec
    assert spec == again
    assert spec is not again
    assert hash(spec) == hash(again)
    assert repr(spec) == repr(again)
    assert copy.deepcopy(spec) == spec
    others = family.others(spec)
    different = len(others) + 1
    assert len({*others, spec}) == len({repr(one) for one in (*others, spec)}) == different
    assert spec != FiniteSpec(3, 2, 3, stationary=True, start=spec.start)
    large = family.random(16, states=40, dimension=40).spec
    assert len(repr(large)) < 250
