from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.linear import LinearSpec, LinearWorld, linear_from_tabular
from tacit.tabular.spec import FiniteSpec
from tests.tabular.families import LINEAR, factors, refuses

# Worlds.


def test_it_says_what_it_is():
    world = LINEAR.random(11)
    assert world.name == "linear"
    assert repr(world) == "<LinearWorld 'linear': 3 states, 2 actions, 3 steps>"
    for array in (world.features, world.measures, world.rewards, world.model.transitions):
        assert not array.flags.writeable


GOOD = {
    "features": [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]],
    "measures": [[[1.0, 0.0], [0.0, 1.0]]],
    "rewards": [[0.0, 1.0]],
    "horizon": 3,
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": [[1.0]]}, r"features must have shape \(S, A, d\), got \(1, 1\)"),
        ({"features": [[["a"]]]}, "features must be an array of numbers"),
        ({"features": np.zeros((2, 2, 0))}, "features must have shape"),
        (
            {"features": [[[1.0, 0.0], [0.0, np.inf]], [[0.5, 0.5], [0.5, 0.5]]]},
            "features at state 0, action 1 must be finite, but entry 1 is inf",
        ),
        ({"measures": np.eye(2)}, r"shape \(1 or horizon=3, 2, 2\), got \(2, 2\)"),
        ({"measures": [np.eye(2)] * 2}, r"measures must have shape \(1 or horizon=3, 2, 2\)"),
        ({"measures": [[[1.0, 0.0], [np.nan, 1.0]]]}, "measures at step 0 must be finite"),
        (
            {"measures": [np.eye(2), np.eye(2), [[1.0, 0.0], [0.5, 0.25]]]},
            "<features, measures> at step 2, state 0, action 1 must be probabilities with sum 1, "
            "but the sum is 0.75",
        ),
        (
            {"measures": [[[1.0, 0.0], [1.25, -0.25]]]},
            "<features, measures> at step 0, state 0, action 1 must be probabilities, "
            "but entry 1 is -0.25",
        ),
        ({"rewards": [0.0, 1.0]}, r"rewards must have shape \(1 or horizon=3, 2\), got \(2,\)"),
        ({"rewards": [[0.0, np.nan]]}, "rewards at step 0 must be finite, but entry 1 is nan"),
        (
            {"rewards": [[0.0, 1.0], [0.0, 1.5], [0.0, 0.0]]},
            r"<features, rewards> at step 1, state 0, action 1 must be in \[0, 1\], got 1.5",
        ),
        ({"rewards": [[-0.5, 1.0]]}, "step 0, state 0, action 0 must be in .* got -0.5"),
    ],
)
def test_mistakes_are_named(arguments, message):
    refuses(LinearWorld, GOOD, arguments, message)


def test_rounding_is_forgiven():
    """Rows that are right to nine digits become exact probabilities."""
    almost = 1.0 + 1e-12
    world = LinearWorld(
        GOOD["features"], [[[almost, 1.0 - almost], [0.0, 1.0]]], [[-1e-12, almost]], 3
    )
    assert (world.model.transitions >= 0).all()
    assert (world.model.transitions.sum(axis=-1) == 1).all()
    assert (world.model.mean_rewards[0, 0] == [0, 1]).all()


# Tabular worlds as linear ones.


def test_a_tabular_world_is_linear():
    tabular = tacit.tabular.riverswim(states=4, horizon=5)
    world = linear_from_tabular(tabular)
    assert world.spec.dimension == 8
    assert world.spec.nonnegative
    np.testing.assert_array_equal(
        np.einsum("sad,hdt->hsat", world.features, world.measures), tabular.model.transitions
    )


# Specs.


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


def test_zeros_are_equal_whatever_their_sign():
    zeros = [LinearSpec(**SMALL | {"features": [[[1.0, zero]]]}) for zero in (0.0, -0.0)]
    assert zeros[0] == zeros[1]
    assert hash(zeros[0]) == hash(zeros[1])


SMALL = {
    "states": 1,
    "actions": 1,
    "horizon": 2,
    "features": [[[1.0, 0.0]]],
    "stationary_transitions": True,
    "stationary_rewards": True,
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"states": 2}, r"features must have shape \(2, 1, d\), got \(1, 1, 2\)"),
        ({"features": [[[np.nan, 0.0]]]}, "features at state 0, action 0 must be finite"),
        ({"known_rewards": [[0.5]]}, r"known_rewards must have shape \(1 or 2, 1, 1\)"),
        ({"known_rewards": [[[1.5]]]}, r"known_rewards must be in \[0, 1\]"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_mistakes_in_specs_are_named(arguments, message):
    assert LinearSpec(**SMALL).stationary
    refuses(LinearSpec, SMALL, arguments, message)
