import numpy as np
import pytest

from tacit import InvalidArgument
from tacit.linear import simplex, two_state, worlds
from tacit.registry import build_world
from tacit.tabular.policy import Policy
from tests.tabular.families import drawn_worlds, returns_have_the_exact_mean, uniform

BUILT_IN = {
    "two_state": two_state,
    "simplex": simplex,
    "simplex_per_step": lambda: simplex(dimension=4, states=8, stationary=False, seed=3),
}


@pytest.fixture(params=BUILT_IN, scope="module")
def world(request):
    return BUILT_IN[request.param]()


def myopic_value(world):
    """What pays most at once, from the model's tables."""
    H = world.spec.horizon
    actions = [world.model.mean_rewards_at(h).argmax(axis=1) for h in range(H)]
    return world.value(Policy.deterministic(actions, world.spec.actions))


def test_values_agree_with_each_other(world):
    assert world.value(world.optimal_policy) == pytest.approx(world.optimal_value, abs=1e-12)
    assert world.value(uniform(world)) == world.baseline_value
    assert 0.0 == world.reference_value < world.baseline_value < world.optimal_value / 2


def test_the_name_rebuilds_the_world(world):
    again = build_world(world.name)
    assert again.name == world.name
    assert again.spec == world.spec
    assert (again.measures == world.measures).all()
    assert (again.rewards == world.rewards).all()


def test_features_are_short_and_all_directions_are_used(world):
    assert (np.linalg.norm(world.features, axis=-1) <= 1 + 1e-12).all()
    flat = world.features.reshape(-1, world.spec.dimension)
    assert np.linalg.matrix_rank(flat) == world.spec.dimension


def test_simulated_returns_have_the_exact_mean(world):
    returns_have_the_exact_mean(world)


# Two states.


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


def test_two_state_depends_on_the_seed():
    worlds = [two_state(seed) for seed in range(20)]
    assert len({world.spec for world in worlds}) == 20
    stars = {int(world.features[0, :, 8].argmax()) for world in worlds}
    assert len(stars) > 10
    bits = {tuple((world.model.transitions[:, 0, 0, 0] > 0.5).tolist()) for world in worlds}
    assert len(bits) == 20
    assert two_state(3).spec == two_state(3).spec
    assert (two_state(3).measures == two_state(3).measures).all()


# Simplex.


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


def test_simplex_draws_measures_per_step():
    world = simplex(stationary=False)
    assert world.measures.shape == (10, 5, 20)
    assert len(np.unique(world.measures, axis=0)) == 10
    assert len(world.rewards) == 1
    assert not world.spec.stationary


def test_simplex_depends_on_the_seed_alone():
    first, again, other = (simplex(seed=seed) for seed in (0, 0, 1))
    assert first.spec == again.spec != other.spec
    assert (first.measures == again.measures).all()
    assert (first.measures != other.measures).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: two_state(seed=-1), "seed must be an integer >= 0, got -1"),
        (lambda: two_state(softness=1.5), r"softness must be in \[0, 1\], got 1.5"),
        (lambda: two_state(softness="soft"), "softness must be a number, got 'soft'"),
        (lambda: two_state(softness=float("nan")), r"softness must be in \[0, 1\], got nan"),
        (lambda: two_state(horizon=0), "horizon must be an integer >= 1"),
        (lambda: simplex(dimension=2), "dimension must be >= 3, got 2"),
        (lambda: simplex(stationary="no"), "stationary must be True or False, got 'no'"),
        (lambda: simplex(states=300), "states must be <= 100, got 300"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(InvalidArgument, match=message):
        make()


def test_worlds_that_are_never_accepted_are_refused(monkeypatch):
    monkeypatch.setattr(worlds, "_ATTEMPTS", 0)
    with pytest.raises(InvalidArgument, match=r"no world with .* was found .* three actions"):
        simplex()
