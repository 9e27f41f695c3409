import math
import stat

import numpy as np
import pytest

from tacit import InvalidArgument
from tacit.continuous import Custom, Grid, Polynomial, QPolicy
from tacit.continuous.worlds import chooser
from tacit.store.values import dump, load
from tests.refusals import refusals

GRID = Grid((0.0,), (1.0,), (3,))
MAPS = [Grid((0.0, 0.0), (1.0, 2.0), (4, 3)), Polynomial((1.0, 2.0), 1.5, 2)]
RNG = np.random.default_rng


def normal(features, actions=3, seed=0, **options):
    weights = RNG(seed).normal(size=(actions, features.size))
    return QPolicy(features, weights, **options)


def test_the_largest_value_wins():
    policy = QPolicy(GRID, [[1.0, 0.0, 0.0], [0.0, 0.5, 2.0]])
    np.testing.assert_allclose(policy.values([[0.25], [0.75]]), [[0.5, 0.25], [0.0, 1.25]])
    assert (policy.greedy([[0.25], [0.75]]).tolist(), policy.act(7, [0.75], RNG(0))) == ([0, 1], 1)
    assert policy.act_many(0, [[0.25], [0.75]], RNG(0)).tolist() == [0, 1]


@pytest.mark.parametrize("features", [*MAPS, Custom(lambda s: s, 2)], ids=repr)
@pytest.mark.parametrize("preference", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_exact_ties_go_by_preference(features, preference):
    row = RNG(1).normal(size=features.size)
    policy = QPolicy(features, [row, row, row], preference=preference)
    states = RNG(2).uniform(-1.0, 3.0, (500, 2))
    states[0] = np.nan
    assert (policy.greedy(states) == preference[0]).all()
    assert (chooser(policy)(states) == preference[0]).all()


def test_preferences_are_drawn_evenly():
    rng = RNG(3)
    first = [QPolicy.draw(GRID, np.zeros((4, 3)), rng).preference[0] for _ in range(4000)]
    # Six standard deviations: below 1e-7 for all four together.
    assert np.abs(np.bincount(first, minlength=4) - 1000).max() < 6 * math.sqrt(750)


@pytest.mark.parametrize("features", MAPS, ids=repr)
def test_compiled_actions_are_the_same(features):
    policy = normal(features, actions=5, preference=(3, 1, 0, 2, 4))
    states = RNG(4).uniform(-1.0, 3.0, (3000, 2))
    states[5, 0], states[6, 1] = np.nan, np.inf
    assert (chooser(policy)(states) == policy.greedy(states)).all()


def test_explored_actions_are_uniform_with_probability_epsilon():
    policy = QPolicy(GRID, np.eye(3), epsilon=0.4)
    states = np.full((90_000, 1), 1.0)
    expected = np.array([0.4 / 3, 0.4 / 3, 0.6 + 0.4 / 3])
    np.testing.assert_allclose(policy.probabilities([1.0]), expected)
    counts = np.bincount(policy.act_many(0, states, RNG(5)), minlength=3)
    deviation = np.sqrt(len(states) * expected * (1.0 - expected))
    assert (np.abs(counts - len(states) * expected) < 6 * deviation).all()  # below 1e-8


def test_the_number_that_is_drawn_decides():
    policy = QPolicy(GRID, np.eye(3), epsilon=0.3)
    coins = np.array([0.0, 0.0999, 0.1, 0.2, np.nextafter(0.3, 0.0), 0.3, 0.9])
    assert policy.random_actions(coins).tolist() == [0, 0, 1, 2, 2, -1, -1]


@pytest.mark.parametrize("permutation", [(0, 1, 2), (1, 2, 0), (2, 1, 0)])
def test_relabelled(permutation):
    policy = normal(MAPS[0], epsilon=0.1, version=4, preference=(1, 2, 0))
    other = policy.relabelled(permutation)
    states = RNG(6).random((200, 2))
    assert (other.greedy(states) == np.array(permutation)[policy.greedy(states)]).all()
    table = policy.probabilities(states)
    assert (other.probabilities(states)[:, list(permutation)] == table).all()
    assert (other.version, other.epsilon) == (4, 0.1)


@pytest.mark.parametrize("features", MAPS, ids=repr)
def test_a_checkpoint_holds_it_to_the_bit(features):
    policy = normal(features, epsilon=1 / 3, version=5, preference=(2, 0, 1))
    again = load(dump(policy))
    assert (again.weights == policy.weights).all()
    assert again.features == policy.features
    assert (again.epsilon, again.version, again.preference) == (1 / 3, 5, (2, 0, 1))


@pytest.mark.parametrize("features", MAPS, ids=repr)
def test_the_published_file_is_plain_arrays_for_everybody(features, tmp_path):
    policy = normal(features, epsilon=0.25, version=6, preference=(2, 0, 1))
    path = tmp_path / "policy.npz"
    policy.publish(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    with np.load(path, allow_pickle=False) as archive:
        stored = {name: archive[name] for name in archive.files}
    assert (stored["weights"] == policy.weights).all()
    assert (float(stored["epsilon"]), stored["preference"].tolist()) == (0.25, [2, 0, 1])
    assert str(stored["features"]) == features.published_as
    assert all((stored[name] == value).all() for name, value in features.parameters().items())


def test_code_is_not_published(tmp_path):
    with pytest.raises(InvalidArgument, match="code and cannot be published"):
        normal(Custom(lambda s: s, 2)).publish(tmp_path / "policy.npz")
    assert not list(tmp_path.iterdir())


test_wrong_arguments_are_named = refusals(
    lambda make: make(),
    (lambda: QPolicy(None, np.zeros((2, 3))), "features must be FeatureMap"),
    (lambda: QPolicy(GRID, np.zeros((2, 4))), "weights must be finite, of shape"),
    (lambda: QPolicy(GRID, [["a", "b", "c"]]), "numbers"),
    (lambda: QPolicy(GRID, np.full((2, 3), np.nan)), "finite"),
    (lambda: QPolicy(GRID, np.zeros((2, 3)), epsilon=math.nan), "epsilon"),
    (lambda: QPolicy(GRID, np.zeros((2, 3)), version=-1), "version"),
    (lambda: QPolicy(GRID, np.zeros((2, 3)), preference=(0, 0)), "each of 2 actions once"),
    (lambda: QPolicy(GRID, np.zeros((2, 3))).relabelled([0, 2]), "permutation must hold"),
    (lambda: QPolicy.uniform(0, 2), "dimension"),
)
