import itertools
from dataclasses import replace

import numpy as np
import pytest

from tacit.mixture import MixtureSpec, MixtureWorld, hard_mixture, mixture_of_models
from tests.refusals import refusals
from tests.tabular.families import drawn_worlds, parts, returns_have_the_exact_mean


def test_arrays_are_read_only_copies():
    made = parts(11)
    world = MixtureWorld(**made)
    for array in (world.transition_features, world.weights, world.rewards, world.model.transitions):
        assert not array.flags.writeable
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


test_mistakes_are_named = refusals(
    lambda change: MixtureWorld(**GOOD | change),
    ({"transition_features": [[1.0]]}, "transition_features must be finite, of shape"),
    ({"transition_features": np.zeros((2, 2, 3, 1))}, "transition_features must be finite"),
    ({"transition_features": [[[["a"]]]]}, "transition_features must be an array of numbers"),
    ({"transition_features": BROKEN}, "transition_features must be finite"),
    ({"weights": [[0.25, 0.75]] * 2}, r"weights must be finite, of shape \(3, 2\)"),
    ({"weights": [[0.25, np.nan]]}, "weights must be finite"),
    (
        {"weights": [[0.25, 0.75], [0.5, 0.5], [0.25, 0.5]]},
        "<transition_features, weights> at step 2, state 0, action 0 must be probabilities "
        "with sum 1, but the sum is 0.75",
    ),
    (
        {"weights": [[1.25, -0.25]]},
        "<transition_features, weights> at step 0, state 0, action 0 must be probabilities .*-0.25",
    ),
    (
        {"rewards": [[[0.0, 0.5], [1.0, np.nan]]]},
        r"rewards at step 0, state 1, action 1 must be in \[0, 1\], got nan",
    ),
    ({"reward_features": np.zeros((2, 2))}, "reward_features must be finite, of shape"),
    ({"reward_features": np.ones((2, 2, 1))}, "rewards must be <reward_features, omega>"),
    ({"known_rewards": False}, "reward_features must be given where known_rewards is False"),
    ({"center": [0.5]}, r"center must be finite, of shape \(2\), got \(1,\)"),
    ({"directions": np.eye(3)}, "directions must be finite, of shape"),
    ({"radius": float("nan")}, "radius must be > 0 and finite, got nan"),
    (
        {"center": [0.5, 0.5], "directions": [[1.0], [1.0]]},
        r"weights at step 0 must be center \+ directions @ eta, but the nearest differ by 0.25",
    ),
    (
        {"weights": [[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]], "center": [0.5, 0.5]}
        | {"directions": [[1.0], [-1.0]], "radius": 0.4},
        r"weights at step 2 must be center .* radius = 0.4, but \|eta\| is 0.5",
    ),
)


def test_what_an_agent_may_know():
    options = {"reward_features": np.eye(6).reshape(3, 2, 6), "start": [0.5, 0.5, 0.0]}
    world = MixtureWorld(**parts(14), **options)
    spec = world.spec
    assert (spec.dimension, spec.free, spec.radius) == (4, 4, 2.0)
    assert (spec.directions == np.eye(4)).all()
    assert (spec.known_rewards == world.model.mean_rewards).all()
    untold = MixtureWorld(**parts(14), **options, known_rewards=False).spec
    assert replace(spec, known_rewards=None) == untold != spec
    # Large features are shared and not copied.
    assert spec.transition_features is world.transition_features


SMALL = {
    "states": 1,
    "actions": 1,
    "horizon": 2,
    "transition_features": [[[[1.0], [1.0]]]],
    "known_rewards": [[[0.5]]],
    "stationary_transitions": True,
    "stationary_rewards": True,
}


test_mistakes_in_specs_are_named = refusals(
    lambda change: MixtureSpec(**SMALL | change),
    ({"actions": 2}, r"transition_features must be finite, of shape \(1, 2, \?, 1\)"),
    ({"known_rewards": None}, "reward_features and known_rewards must not both be None"),
    ({"known_rewards": [[[np.nan]]]}, r"known_rewards must be in \[0, 1\]"),
    ({"radius": True}, "radius must be > 0"),
)


BUILT_IN = {
    "hard_mixture": hard_mixture,
    "hard_mixture_per_step": lambda: hard_mixture(3, 4, per_step=True, gap=0.1, seed=2),
    "mixture_of_models": mixture_of_models,
    "mixture_of_models_unknown": lambda: mixture_of_models(3, 6, seed=2, known_rewards=False),
}


@pytest.fixture(params=BUILT_IN, scope="module")
def world(request):
    return BUILT_IN[request.param]()


def unknowing_value(world):
    """The value of the policy that were optimal if all weights were the same."""
    d = world.spec.dimension
    believed = MixtureWorld(
        world.transition_features,
        np.full((1, d), 1 / d),
        world.rewards,
        world.spec.horizon,
        start=world.spec.start,
    )
    return world.value(believed.optimal_policy)


def test_probabilities_and_rewards_are_linear_in_the_features(world):
    P = np.einsum("sait,hi->hsat", world.transition_features, world.weights)
    np.testing.assert_allclose(P, world.model.transitions, atol=1e-12)
    R = np.einsum("sam,hm->hsa", world.reward_features, world.reward_weights)
    np.testing.assert_allclose(R, world.model.mean_rewards, atol=1e-9)
    told = world.spec.known_rewards
    assert (told is None) == ("known_rewards=False" in world.name)
    assert told is None or (told == world.model.mean_rewards).all()
    assert (world.spec.reward_features == world.reward_features).all()


def test_what_is_public_of_the_weights_holds_and_leaves_no_doubt_of_sums(world):
    spec = world.spec
    k = spec.free
    assert k == spec.dimension - 1
    np.testing.assert_allclose(spec.directions.T @ spec.directions, np.eye(k), atol=1e-12)
    # Whatever the coordinates, rows add up to 1; and each changes the probabilities in its way.
    any_weights = spec.center + spec.directions @ np.random.default_rng(0).normal(size=k)
    np.testing.assert_allclose((any_weights @ spec.transition_features).sum(axis=-1), 1.0)
    effects = np.einsum("sait,ik->satk", spec.transition_features, spec.directions)
    assert np.linalg.matrix_rank(effects.reshape(-1, k)) == k


def test_simulated_returns_have_the_exact_mean(world):
    returns_have_the_exact_mean(world)


@pytest.mark.parametrize(
    ("dimension", "horizon", "per_step", "gap"), [(5, 6, False, 0.03), (4, 9, True, 0.02)]
)
def test_hard_mixture(dimension, horizon, per_step, gap):
    world = hard_mixture(dimension, horizon, per_step, gap, seed=7)
    spec = world.spec
    H, A, bits = horizon, 2 ** (dimension - 1), dimension - 1
    assert (spec.states, spec.actions, spec.horizon, spec.dimension) == (H + 2, A, H, dimension)
    assert spec.stationary_transitions == (not per_step)
    assert spec.stationary_rewards
    assert spec.radius == pytest.approx(2 * gap * np.sqrt(bits))
    assert world.weights.shape == (H if per_step else 1, dimension)
    np.testing.assert_allclose(np.abs(world.weights[:, :bits]), gap)
    assert (world.weights[:, bits] == 1).all()
    vectors = world.transition_features[0, :, :bits, H + 1]
    assert (np.abs(vectors) == 1).all()
    assert len(np.unique(vectors, axis=0)) == A
    for h, x in itertools.product(range(H), range(H)):
        to_goal = 1 / H + vectors @ world.weights[h if per_step else 0, :bits]
        P = world.model.transitions_at(h)[x]
        np.testing.assert_allclose(P[:, H + 1], to_goal, atol=1e-12)
        np.testing.assert_allclose(P[:, x + 1], 1 - to_goal, atol=1e-12)

    def value(p):
        return sum(1 - (1 - p) ** h for h in range(1, H))

    assert world.optimal_value == pytest.approx(value(1 / H + gap * bits))
    assert world.baseline_value == pytest.approx(value(1 / H))


def test_hard_mixture_depends_on_the_seed():
    found = [hard_mixture(seed=seed, per_step=True) for seed in range(20)]
    assert len({world.spec for world in found}) == 20
    assert len(np.unique(found[0].weights, axis=0)) > 1


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"dimension": 2},
        {"dimension": 3, "states": 5, "actions": 3},
        {"dimension": 10, "states": 30, "horizon": 4},
    ],
)
def test_mixtures_of_models_are_accepted(sizes):
    for world in drawn_worlds(mixture_of_models, sizes, usual=10, most=30):
        assert unknowing_value(world) < 0.8 * world.optimal_value
        assert (world.transition_features >= 0).all()
        np.testing.assert_allclose(world.transition_features.sum(axis=-1), 1.0)
        weights = np.sort(world.weights[0])[::-1]
        if world.spec.dimension == 4:
            np.testing.assert_allclose(weights, [0.7, 0.15, 0.1, 0.05])
        else:
            np.testing.assert_allclose(weights[1:] / weights[:-1], 0.5)
        np.testing.assert_allclose(weights.sum(), 1.0)


test_mistakes_in_built_in_worlds_are_named = refusals(
    lambda make: make(),
    (lambda: hard_mixture(seed=-1), "seed must be an integer >= 0, got -1"),
    (lambda: hard_mixture(dimension=1), "dimension must be an integer >= 2, got 1"),
    (lambda: hard_mixture(dimension=10**9), "bytes"),
    (lambda: hard_mixture(gap=0.05), r"gap is 0.05, but must be in \(0, 0.0416667\]"),
    (lambda: hard_mixture(gap="small"), "gap is 'small'"),
    (lambda: hard_mixture(per_step="no"), "per_step must be True or False, got 'no'"),
    (
        lambda: mixture_of_models(dimension=2, states=90, actions=2),
        "in no world with dimension=2, .* take four actions",
    ),
)
