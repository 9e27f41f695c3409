import itertools

import numpy as np
import pytest

from tacit import InvalidArgument
from tacit.mixture import MixtureWorld, hard_mixture, mixture_of_models
from tacit.registry import build_world
from tests.tabular.families import drawn_worlds, returns_have_the_exact_mean, uniform

BUILT_IN = {
    "hard_mixture": hard_mixture,
    "hard_mixture_per_step": lambda: hard_mixture(3, 4, per_step=True, gap=0.1, seed=2),
    "hard_mixture_unknown": lambda: hard_mixture(seed=1, known_rewards=False),
    "mixture_of_models": mixture_of_models,
    "mixture_of_models_unknown": lambda: mixture_of_models(3, 6, seed=2, known_rewards=False),
    "mixture_of_models_built": lambda: mixture_of_models(2, 50, 5, 4, seed=1),
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


def test_values_agree_with_each_other(world):
    assert world.value(world.optimal_policy) == pytest.approx(world.optimal_value, abs=1e-12)
    assert world.value(uniform(world)) == world.baseline_value
    assert 0.0 == world.reference_value < world.baseline_value < 0.8 * world.optimal_value


def test_the_name_rebuilds_the_world(world):
    again = build_world(world.name)
    assert again.name == world.name
    assert again.spec == world.spec
    assert (again.weights == world.weights).all()


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
    np.testing.assert_allclose(
        spec.center + world.coordinates @ spec.directions.T, world.weights, atol=1e-12
    )
    assert (np.linalg.norm(world.coordinates, axis=1) < spec.radius).all()
    # Whatever the coordinates, rows add up to 1; and each changes the probabilities in its way.
    any_weights = spec.center + spec.directions @ np.random.default_rng(0).normal(size=k)
    np.testing.assert_allclose((any_weights @ spec.transition_features).sum(axis=-1), 1.0)
    effects = np.einsum("sait,ik->satk", spec.transition_features, spec.directions)
    assert np.linalg.matrix_rank(effects.reshape(-1, k)) == k


def test_simulated_returns_have_the_exact_mean(world):
    returns_have_the_exact_mean(world)


# The hard instance.


@pytest.mark.parametrize(
    ("dimension", "horizon", "per_step", "gap"),
    [(5, 6, False, 0.03), (5, 6, True, 0.03), (2, 2, False, 0.5), (4, 9, True, 0.02)],
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
    assert (world.model.transitions[:, H, :, H] == 1).all()
    assert (world.model.transitions[:, H + 1, :, H + 1] == 1).all()
    rewards = world.model.mean_rewards[0]
    assert (rewards[H + 1] == 1).all()
    assert (rewards[: H + 1] == 0).all()

    def value(p):
        return sum(1 - (1 - p) ** h for h in range(1, H))

    assert world.optimal_value == pytest.approx(value(1 / H + gap * bits))
    assert world.baseline_value == pytest.approx(value(1 / H))


def test_hard_mixture_depends_on_the_seed():
    found = [hard_mixture(seed=seed, per_step=True) for seed in range(20)]
    assert len({world.spec for world in found}) == 20
    assert len({tuple(world.weights.ravel().tolist()) for world in found}) == 20
    best = {int(hard_mixture(seed=seed).optimal_policy.actions[0, 0]) for seed in range(40)}
    assert len(best) > 10
    assert hard_mixture(seed=3).spec == hard_mixture(seed=3).spec
    assert len(np.unique(found[0].weights, axis=0)) > 1


# Mixtures of models.


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"dimension": 2},
        {"dimension": 3, "states": 5, "actions": 3},
        {"dimension": 10, "states": 30, "horizon": 4},
        {"horizon": 2},
        {"states": 3, "actions": 2, "horizon": 30},
        {"dimension": 2, "states": 50, "actions": 4},
        {"dimension": 3, "states": 120, "actions": 20},
        {"dimension": 30, "states": 60, "actions": 5},
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
        assert world.spec.stationary
        assert world.spec.radius == 1.0
        rewards = world.model.mean_rewards[0]
        assert (rewards[0] == 0).all()
        assert (rewards == rewards[:, :1]).all()
        assert sorted(rewards[:, 0].tolist()) == [0.0] * (len(rewards) - 1) + [1.0]


def test_mixtures_of_models_depend_on_the_seed_alone():
    for sizes in ({}, {"dimension": 2, "states": 12}):
        first, again, other = (mixture_of_models(**sizes, seed=seed) for seed in (0, 0, 1))
        assert first.spec == again.spec != other.spec
        assert (first.weights == again.weights).all()
    # Told or not, the world is the same.
    untold = mixture_of_models(known_rewards=False)
    assert (untold.model.transitions == mixture_of_models().model.transitions).all()
    heaviest = {int(mixture_of_models(seed=seed).weights.argmax()) for seed in range(8)}
    assert len(heaviest) > 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hard_mixture(seed=-1), "seed must be an integer >= 0, got -1"),
        (lambda: hard_mixture(dimension=1), "dimension must be >= 2, got 1"),
        (lambda: hard_mixture(dimension=10**9), "bytes"),
        (lambda: hard_mixture(horizon=1), "horizon must be >= 2, got 1"),
        (
            lambda: hard_mixture(gap=0.05),
            r"gap must be a number in \(0, 0.0416667\] at dimension=5",
        ),
        (lambda: hard_mixture(gap=0.0), "gap must be a number in .* got 0.0"),
        (lambda: hard_mixture(gap=float("nan")), "gap must be a number in .* got nan"),
        (lambda: hard_mixture(gap="small"), "gap must be a number in .* got 'small'"),
        (lambda: hard_mixture(per_step="no"), "per_step must be True or False, got 'no'"),
        (lambda: hard_mixture(known_rewards=1), "known_rewards must be True or False, got 1"),
        (lambda: mixture_of_models(dimension=1), "dimension must be >= 2, got 1"),
        (
            lambda: mixture_of_models(dimension=2, states=90, actions=2),
            "no world with dimension=2, .* was found .* take four actions",
        ),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(InvalidArgument, match=message):
        make()
