from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit import InvalidArgument
from tacit.linear import LinearWorld, linear_from_tabular, simplex, two_state
from tacit.tabular.policy import Policy
from tacit.tabular.spec import FiniteSpec
from tests.refusals import refusals
from tests.tabular.families import drawn_worlds, factors

GOOD = {
    "features": [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]],
    "measures": [[[1.0, 0.0], [0.0, 1.0]]],
    "rewards": [[0.0, 1.0]],
    "horizon": 3,
}


test_mistakes_are_named = refusals(
    lambda change: LinearWorld(**GOOD | change),
    ({"features": [[1.0]]}, r"features must have shape \(S, A, d\), got \(1, 1\)"),
    ({"features": [[["a"]]]}, "features must be an array of numbers"),
    (
        {"features": [[[1.0, 0.0], [0.0, np.inf]], [[0.5, 0.5], [0.5, 0.5]]]},
        "features at state 0, action 1 must be finite, but entry 1 is inf",
    ),
    ({"measures": [np.eye(2)] * 2}, r"measures must have shape \(1 or horizon=3, "),
    (
        {"measures": [np.eye(2), np.eye(2), [[1.0, 0.0], [0.5, 0.25]]]},
        "<features, measures> at step 2, state 0, action 1 must be probabilities with sum 1, "
        "but the sum is 0.75",
    ),
    ({"rewards": [[0.0, np.nan]]}, "rewards at step 0 must be finite, but entry 1 is nan"),
    ({"rewards": [[-0.5, 1.0]]}, "step 0, state 0, action 0 must be in .* got -0.5"),
)


def test_a_tabular_world_is_linear():
    tabular = tacit.tabular.riverswim(states=4, horizon=5)
    world = linear_from_tabular(tabular)
    assert world.name == "linear_from_tabular(riverswim:states=4,horizon=5)"
    assert world.spec.dimension == 8
    assert world.spec.nonnegative
    assert world.spec.stationary_transitions
    np.testing.assert_array_equal(
        np.einsum("sad,hdt->hsat", world.features, world.measures), tabular.model.transitions
    )
    assert world.optimal_value == tabular.optimal_value
    assert world.baseline_value == tabular.baseline_value
    assert linear_from_tabular(tabular.model).optimal_value == tabular.optimal_value
    with pytest.raises(InvalidArgument, match="world must be a FiniteModel or have one, got str"):
        linear_from_tabular("riverswim")


def test_a_tabular_worlds_rewards_need_not_be_bernoulli():
    values, probabilities = [0.0, 0.5, 1.0], np.zeros((2, 1, 3))
    probabilities[..., 1] = 1.0
    tabular = tacit.tabular.TabularWorld(np.full((2, 1, 2), 0.5), (values, probabilities), 3)
    world = linear_from_tabular(tabular)
    assert world.spec.reward_values == (0.0, 0.5, 1.0)
    policy = world.optimal_policy
    episodes = world.simulate(policy, 100, np.random.default_rng(0))
    assert (episodes.rewards == 0.5).all()
    again = tabular.simulate(policy, 100, np.random.default_rng(0))
    assert (episodes.states == again.states).all()


def test_what_an_agent_may_know():
    world = LinearWorld(**factors(13), start=[0.5, 0.5, 0.0])
    spec = world.spec
    assert isinstance(spec, FiniteSpec)
    assert (spec.states, spec.actions, spec.horizon, spec.dimension) == (3, 2, 3, 4)
    assert (spec.reward_values, spec.start) == ((0.0, 1.0), (0.5, 0.5, 0.0))
    assert spec.nonnegative
    assert spec.known_rewards is None
    assert (spec.features == world.features).all()
    assert not spec.features.flags.writeable
    told = LinearWorld(**factors(13), start=[0.5, 0.5, 0.0], known_rewards=True).spec
    assert (told.known_rewards == world.model.mean_rewards).all()
    assert told != spec
    assert replace(told, known_rewards=None) == spec
    signed = LinearWorld([[[-1.0]]], [[[-1.0]]], [[-0.5]], 1)
    assert not signed.spec.nonnegative
    assert signed.optimal_value == 0.5


def myopic_value(world):
    """What pays most at once, from the model's tables."""
    H = world.spec.horizon
    actions = [world.model.mean_rewards_at(h).argmax(axis=1) for h in range(H)]
    return world.value(Policy.deterministic(actions, world.spec.actions))


@pytest.mark.parametrize("softness", [0.0, 0.6, 0.9, 1.0])
def test_two_state(softness):
    world = two_state(seed=5, softness=softness, horizon=7)
    spec = world.spec
    assert (spec.states, spec.actions, spec.dimension, spec.horizon) == (2, 100, 10, 7)
    assert not spec.stationary_transitions
    assert spec.stationary_rewards
    assert spec.known_rewards is None
    codes = 3 * world.features[..., :8]
    assert (np.abs(codes) == 1).all()
    assert (codes[0] == codes[1]).all()
    assert len(np.unique(codes[0], axis=0)) == 100
    right = np.round(3 * world.features[..., 8])
    assert (np.round(3 * world.features[..., 9]) == 1 - right).all()
    star = int(right[0].argmax())
    assert right[0].sum() == 1
    assert (right[1] == 1 - right[0]).all()
    np.testing.assert_allclose(world.model.mean_rewards[0], 0.99 * right + 0.01 * (1 - right))
    # What is right and what is wrong lead to state 0 the one way or the other, by the step's bit.
    for to_0 in world.model.transitions[..., 0]:
        of_right, of_wrong = to_0[0, star], to_0[1, star]
        assert {round(of_right, 9), round(of_wrong, 9)} == {softness, round(1 - softness, 9)}
        np.testing.assert_allclose(to_0, np.where(right == 1, of_right, of_wrong))
    assert world.optimal_value == pytest.approx(0.99 * 7)
    best = world.optimal_policy.actions
    assert (right[[0, 1], best] == 1).all()


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"stationary": False},
        {"states": 100},
        {"dimension": 3, "states": 30, "actions": 3},
        {"dimension": 20, "actions": 5, "horizon": 4},
    ],
)
def test_simplex_worlds_are_accepted(sizes):
    for world in drawn_worlds(simplex, sizes, usual=20, most=300):
        assert myopic_value(world) < 0.88 * world.optimal_value
        assert world.spec.nonnegative
        np.testing.assert_allclose(world.features.sum(axis=-1), 1.0)
        np.testing.assert_allclose(world.measures.sum(axis=-1), 1.0)
        assert (world.measures >= 0).all()
        rest = [0.0] * (world.spec.dimension - 2)
        assert sorted(world.rewards[0].tolist()) == [*rest, 0.05, 1.0]
        assert world.spec.stationary_transitions == sizes.get("stationary", True)
        assert world.spec.stationary_rewards


test_mistakes_in_built_in_worlds_are_named = refusals(
    lambda make: make(),
    (lambda: two_state(seed=-1), "seed must be an integer >= 0, got -1"),
    (lambda: two_state(softness=1.5), r"softness is 1.5, but must be in \[0, 1\]"),
    (lambda: simplex(dimension=2), "dimension must be an integer in 3..20, got 2"),
)
