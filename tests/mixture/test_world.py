from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit import InvalidArgument
from tacit.mixture import MixtureSpec, MixtureWorld, mixture_from_tabular
from tacit.tabular.spec import FiniteSpec
from tests.tabular.families import MIXTURE, parts, refuses

# Worlds.


def test_it_says_what_it_is():
    world = MIXTURE.random(11)
    assert world.name == "mixture"
    assert repr(world) == "<MixtureWorld 'mixture': 3 states, 2 actions, 3 steps>"
    arrays = (
        *(world.transition_features, world.weights, world.rewards, world.coordinates),
        world.model.transitions,
    )
    for array in arrays:
        assert not array.flags.writeable
    made = parts(11)
    world = MixtureWorld(**made)
    made["transition_features"][:] = 0.0
    assert (world.transition_features > 0).all()


GOOD = {
    "transition_features": [[np.eye(2)] * 2] * 2,
    "weights": [[0.25, 0.75]],
    "rewards": [[[0.0, 0.5], [1.0, 0.5]]],
    "horizon": 3,
}
BROKEN = np.array(GOOD["transition_features"])
BROKEN[0, 1, 1, 0] = np.inf
SHORT = np.array(GOOD["transition_features"])
SHORT[1, 0, 1] = 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"transition_features": [[1.0]]},
            r"transition_features must have shape \(S, A, d, S\), got \(1, 1\)",
        ),
        ({"transition_features": np.zeros((2, 2, 3, 1))}, "transition_features must have shape"),
        ({"transition_features": np.zeros((2, 2, 0, 2))}, "transition_features must have shape"),
        ({"transition_features": [[[["a"]]]]}, "transition_features must be an array of numbers"),
        (
            {"transition_features": BROKEN},
            "transition_features at state 0, action 1 must be finite, but entry 1, 0 is inf",
        ),
        ({"weights": [0.25, 0.75]}, r"weights must have shape \(1 or 3, 2\), got \(2,\)"),
        ({"weights": [[0.25, 0.75]] * 2}, r"weights must have shape \(1 or 3, 2\), got \(2, 2\)"),
        ({"weights": [[0.25, np.nan]]}, "weights at step 0 must be finite, but entry 1 is nan"),
        (
            {"weights": [[0.25, 0.75], [0.5, 0.5], [0.25, 0.5]]},
            "<transition_features, weights> at step 2, state 0, action 0 must be probabilities "
            "with sum 1, but the sum is 0.75",
        ),
        (
            {"weights": [[1.25, -0.25]]},
            "<transition_features, weights> at step 0, state 0, action 0 must be probabilities, "
            "but entry 1 is -0.25",
        ),
        (
            {"transition_features": SHORT},
            "step 0, state 1, action 0 must be probabilities with sum 1, but the sum is 0.25",
        ),
        (
            {"rewards": [[0.0, 1.0]]},
            r"rewards must have shape \(1 or 3, 2, 2\), got \(1, 2\)",
        ),
        ({"rewards": np.zeros((2, 2, 2))}, r"rewards must have shape \(1 or 3, 2, 2\)"),
        (
            {"rewards": [[[0.0, 0.5], [1.0, np.nan]]]},
            r"rewards at step 0, state 1, action 1 must be in \[0, 1\], got nan",
        ),
        ({"rewards": [[[0.0, 1.5], [1.0, 0.5]]]}, "step 0, state 0, action 1 must be in .* 1.5"),
        ({"reward_features": np.zeros((2, 2))}, r"reward_features must have shape \(2, 2, m\)"),
        ({"reward_features": np.zeros((2, 2, 0))}, r"reward_features must have shape"),
        (
            {"reward_features": np.full((2, 2, 1), np.nan)},
            "reward_features at state 0, action 0 must be finite, but entry 0 is nan",
        ),
        (
            {"reward_features": np.ones((2, 2, 1))},
            "rewards at step 0, state 0, action 0 must be <reward_features, omega> for an omega "
            "of that step, but the nearest is 0.5 and not 0",
        ),
        ({"known_rewards": False}, "reward_features must be given where known_rewards is False"),
        ({"center": [0.5]}, r"center must be 2 finite numbers, .* got shape \(1,\)"),
        ({"center": [0.5, np.inf]}, "center must be 2 finite numbers"),
        ({"directions": np.eye(3)}, r"directions must be .* shape \(2, k\), got shape \(3, 3\)"),
        ({"directions": np.zeros((2, 0))}, "directions must be finite numbers of shape"),
        ({"radius": 0.0}, "radius must be a number > 0 and finite, got 0.0"),
        ({"radius": "wide"}, "radius must be a number > 0 and finite, got 'wide'"),
        ({"radius": float("nan")}, "radius must be a number > 0 and finite, got nan"),
        (
            {"center": [0.5, 0.5], "directions": [[1.0], [1.0]]},
            r"weights at step 0 must be center \+ directions @ eta for some eta, but the nearest "
            "differ by 0.25",
        ),
        (
            {"weights": [[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]], "center": [0.5, 0.5]}
            | {"directions": [[1.0], [-1.0]], "radius": 0.4},
            r"weights at step 2 must be center .* radius = 0.4, but \|eta\| is 0.5",
        ),
        ({"radius": 0.5}, r"weights at step 0 .* \|eta\| is 0.790569"),
    ],
)
def test_mistakes_are_named(arguments, message):
    refuses(MixtureWorld, GOOD, arguments, message)


def test_rounding_is_forgiven():
    """Rows that are right to nine digits become exact probabilities."""
    almost = 1.0 + 1e-12
    world = MixtureWorld(**GOOD | {"weights": [[almost, 1.0 - almost]]})
    assert (world.model.transitions >= 0).all()
    assert (world.model.transitions.sum(axis=-1) == 1).all()


@pytest.mark.parametrize("directions", [[[1.0], [-1.0]], [[2.0, 1.0], [-2.0, -1.0]], np.eye(2)])
def test_coordinates_make_the_weights(directions):
    """Also where directions are neither orthonormal nor independent; then they are the shortest."""
    world = MixtureWorld(**GOOD, center=[0.5, 0.5], directions=directions)
    np.testing.assert_allclose(
        world.spec.center + world.coordinates @ world.spec.directions.T, world.weights
    )
    shortest = np.linalg.pinv(np.array(directions)) @ [-0.25, 0.25]
    np.testing.assert_allclose(world.coordinates[0], shortest, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 3])
def test_rewards_are_linear_in_their_features(steps):
    rng = np.random.default_rng(13)
    varphi, omega = rng.dirichlet(np.ones(3), (3, 2)), rng.random((steps, 3))
    made = parts(13) | {"rewards": np.einsum("sam,hm->hsa", varphi, omega)}
    world = MixtureWorld(**made, reward_features=varphi, known_rewards=False)
    np.testing.assert_allclose(world.reward_weights, omega)
    np.testing.assert_allclose(world.model.mean_rewards, made["rewards"])
    assert world.spec.known_rewards is None
    assert (world.spec.reward_features == varphi).all()


# Specs.


def test_what_an_agent_may_know():
    options = {"reward_features": np.eye(6).reshape(3, 2, 6), "start": [0.5, 0.5, 0.0]}
    world = MixtureWorld(**parts(14), **options)
    spec = world.spec
    assert isinstance(spec, FiniteSpec)
    assert (spec.states, spec.actions, spec.horizon) == (3, 2, 3)
    assert (spec.dimension, spec.free, spec.radius) == (4, 4, 2.0)
    assert (spec.center == 0).all()
    assert (spec.directions == np.eye(4)).all()
    assert (spec.reward_values, spec.start) == ((0.0, 1.0), (0.5, 0.5, 0.0))
    assert (spec.known_rewards == world.model.mean_rewards).all()
    assert (spec.transition_features == world.transition_features).all()
    for name in ("transition_features", "reward_features", "known_rewards", "center", "directions"):
        assert not getattr(spec, name).flags.writeable
    untold = MixtureWorld(**parts(14), **options, known_rewards=False).spec
    assert untold != spec
    assert replace(spec, known_rewards=None) == untold
    # Large features are shared and not copied.
    assert spec.transition_features is world.transition_features


def test_zeros_are_equal_whatever_their_sign():
    zeros = [MixtureSpec(**SMALL | {"center": [0.5, zero]}) for zero in (0.0, -0.0)]
    assert zeros[0] == zeros[1]
    assert hash(zeros[0]) == hash(zeros[1])


def test_only_arrays_that_cannot_change_are_shared():
    features = np.ones((1, 1, 2, 1))
    view = features[:]
    view.setflags(write=False)
    spec = MixtureSpec(**SMALL | {"transition_features": view})
    features[:] = 5.0
    assert (spec.transition_features == 1).all()


SMALL = {
    "states": 1,
    "actions": 1,
    "horizon": 2,
    "transition_features": [[[[1.0], [1.0]]]],
    "known_rewards": [[[0.5]]],
    "stationary_transitions": True,
    "stationary_rewards": True,
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"actions": 2}, r"transition_features must have shape \(1, 2, d, 1\), got \(1, 1, 2, 1\)"),
        ({"transition_features": [[[[np.nan]]]]}, "transition_features at state 0, action 0 must"),
        ({"known_rewards": None}, "reward_features and known_rewards must not both be None"),
        ({"known_rewards": [[0.5]]}, r"known_rewards must have shape \(1 or 2, 1, 1\)"),
        ({"known_rewards": [[[1.5]]]}, r"known_rewards must be in \[0, 1\]"),
        ({"known_rewards": [[[np.nan]]]}, r"known_rewards must be in \[0, 1\]"),
        ({"reward_features": [[0.5]]}, r"reward_features must have shape \(1, 1, m\)"),
        ({"center": [0.0]}, "center must be 2 finite numbers"),
        ({"directions": [[1.0]]}, r"directions must be finite numbers of shape \(2, k\)"),
        ({"radius": -1.0}, "radius must be a number > 0"),
        ({"radius": True}, "radius must be a number > 0"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_mistakes_in_specs_are_named(arguments, message):
    assert MixtureSpec(**SMALL).stationary
    refuses(MixtureSpec, SMALL, arguments, message)


# Tabular worlds as linear mixtures.


def test_a_tabular_world_is_a_mixture():
    tabular = tacit.tabular.riverswim(states=4, horizon=5)
    world = mixture_from_tabular(tabular)
    spec = world.spec
    assert (spec.dimension, spec.free) == (32, 24)
    assert spec.known_rewards is None
    P = tabular.model.transitions
    assert (np.einsum("sait,hi->hsat", world.transition_features, world.weights) == P).all()
    rewards = np.einsum("sam,hm->hsa", world.reward_features, world.reward_weights)
    np.testing.assert_allclose(rewards, tabular.model.mean_rewards, atol=1e-12)
    # Whatever the coordinates, probabilities of every state and action add up to 1.
    np.testing.assert_allclose(spec.directions.T @ spec.directions, np.eye(24), atol=1e-12)
    any_weights = spec.center + spec.directions @ np.random.default_rng(0).normal(size=24)
    sums = np.einsum("sait,i->sa", spec.transition_features, any_weights)
    np.testing.assert_allclose(sums, 1.0)
    told = mixture_from_tabular(tabular, known_rewards=True).spec.known_rewards
    assert (told == tabular.model.mean_rewards).all()


def test_tabular_worlds_without_chance_and_with_steps_fit_too():
    rng = np.random.default_rng(1)
    P = np.eye(3)[rng.integers(3, size=(4, 3, 2))]
    tabular = tacit.tabular.TabularWorld(P, rng.random((4, 3, 2)), 4)
    world = mixture_from_tabular(tabular)
    assert not world.spec.stationary_transitions
    assert not world.spec.stationary_rewards
    np.testing.assert_allclose(np.linalg.norm(world.coordinates, axis=1), world.spec.radius)
    assert world.optimal_value == tabular.optimal_value


def test_tabular_worlds_that_do_not_fit_are_refused():
    with pytest.raises(InvalidArgument, match=r"80 states and 2 actions.* 12,800 features.* bytes"):
        mixture_from_tabular(tacit.tabular.riverswim(states=80))
    one = tacit.tabular.TabularWorld([[[1.0], [1.0]]], [[0.0, 1.0]], 2)
    with pytest.raises(InvalidArgument, match="at least 2 states"):
        mixture_from_tabular(one)
    with pytest.raises(InvalidArgument, match="known_rewards must be True or False, got 1"):
        mixture_from_tabular(tacit.tabular.riverswim(), known_rewards=1)
