import os
import pickle
import stat

import numpy as np
import pytest
from scipy.special import chdtrc

from tacit import InvalidArgument, published
from tacit.tabular.policy import Policy
from tests.refusals import refusals


def stochastic(seed=0, horizon=3, states=4, actions=2, version=0):
    rng = np.random.default_rng(seed)
    return Policy.stochastic(rng.dirichlet(np.ones(actions), (horizon, states)), version)


def test_sizes_and_tables():
    actions = np.array([[0, 2], [1, 1], [2, 0]])
    policy = Policy.deterministic(actions, n_actions=3, version=7)
    assert (policy.horizon, policy.states, policy.n_actions, policy.version) == (3, 2, 3, 7)
    assert policy.is_deterministic
    assert (policy.table().argmax(axis=2) == actions).all()
    assert (policy.table().sum(axis=2) == 1).all()
    drawn = stochastic()
    assert not drawn.is_deterministic
    assert drawn.table() is drawn.probabilities
    assert (Policy.uniform(2, 3, 5).table() == 0.2).all()


def test_published_arrays_cannot_change():
    actions = np.zeros((2, 3), dtype=np.int64)
    probabilities = np.full((2, 3, 2), 0.5)
    fixed = Policy.deterministic(actions, 2)
    mixed = Policy.stochastic(probabilities)
    actions[0, 0] = 1
    probabilities[0, 0] = 1.0, 0.0
    assert (fixed.actions[0, 0], mixed.probabilities[0, 0, 0]) == (0, 0.5)
    for array in (fixed.actions, mixed.probabilities, mixed.table()):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
    with pytest.raises(AttributeError):
        fixed.version = 3


test_mistakes_are_named = refusals(
    lambda make: make(),
    (lambda: Policy.deterministic([[0, 2]], 2), r"actions\[0, 1\] must be in 0..1, got 2"),
    (lambda: Policy.deterministic([0, 1], 2), "shape"),
    (lambda: Policy.deterministic([[0.0, 1.0]], 2), "float64"),
    (lambda: Policy.deterministic([[0, 1]], 0), "n_actions"),
    (lambda: Policy.stochastic([[[0.5, 0.4]]]), r"probabilities\[0, 0\].*sum to 1"),
    (lambda: Policy.stochastic([[[0.5, 0.5], [1.5, -0.5]]]), r"probabilities\[0, 1\]"),
    (lambda: Policy.stochastic([[[np.nan, 1.0]]]), r"probabilities\[0, 0\]"),
    (lambda: Policy(np.ones((1, 1, 1)), np.zeros((1, 1), int), 0, 1), "not both"),
    (lambda: Policy.uniform(1, 1, 0), "actions must be an integer >= 1, got 0"),
    (lambda: Policy.stochastic([[[1.0]]], version=-1), "version must be an integer >= 0"),
)


def test_rounding_of_sums_is_removed_and_mistakes_are_not():
    policy = Policy.stochastic(np.full((1, 1, 3), (1 + 1e-9) / 3))
    assert abs(policy.probabilities.sum() - 1) < 1e-15
    with pytest.raises(InvalidArgument, match="sum to 1"):
        Policy.stochastic(np.full((1, 1, 3), (1 + 1e-6) / 3))


def test_act_follows_the_table():
    rng = np.random.default_rng(0)
    table = np.array([[[0.0, 0.2, 0.0, 0.5, 0.3, 0.0]]])
    policy = Policy.stochastic(table)
    n = 20_000
    counts = np.bincount([policy.act(0, 0, rng) for _ in range(n)], minlength=6)
    assert (counts[table[0, 0] == 0] == 0).all()
    expected = n * table[0, 0][counts > 0]
    # False alarm with probability 1e-6.
    assert chdtrc(2, ((counts[counts > 0] - expected) ** 2 / expected).sum()) > 1e-6


def test_act_never_takes_an_impossible_action():
    class Highest:
        def random(self):
            return float(np.nextafter(1.0, 0.0))

    # Ten times .1 is below 1 in floating point, and the last action is impossible.
    policy = Policy.stochastic([[[0.1] * 10 + [0.0]]])
    assert policy.act(0, 0, Highest()) == 9


@pytest.mark.parametrize(
    "policy",
    [stochastic(version=5), Policy.deterministic([[0, 1], [2, 0]], 4, version=9)],
    ids=["stochastic", "deterministic"],
)
def test_publish_and_load(tmp_path, policy):
    path = tmp_path / "policy.npz"
    before = os.umask(0o022)
    try:
        policy.publish(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    loaded = published.load(path)
    np.testing.assert_array_equal(loaded.probabilities, policy.probabilities)
    np.testing.assert_array_equal(loaded.actions, policy.actions)
    assert (loaded.version, loaded.n_actions) == (policy.version, policy.n_actions)
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.npz"]


class Bomb:
    exploded = False

    def __reduce__(self):
        return (setattr, (Bomb, "exploded", True))


def test_nothing_in_a_file_is_executed(tmp_path):
    path = tmp_path / "policy.npz"
    array = np.empty((1, 1), dtype=object)
    array[0, 0] = Bomb()
    np.savez(path, format=1, version=0, n_actions=1, actions=array)
    with pytest.raises(ValueError, match="no published policy"):
        published.load(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match="no published policy"):
        published.load(path)
    assert not Bomb.exploded


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "policy.npz"
    stochastic().publish(path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    # In the middle of the largest member, the probabilities.
    flipped[len(whole) - 600] ^= 0xFF
    for data in (b"", b"policy", whole[:-40], whole[: len(whole) // 2], bytes(flipped)):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"policy\.npz"):
            published.load(path)
    # Any single byte, of which a seventh are tried: refused, or of no consequence.
    original = stochastic()
    for position in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[position] ^= 0xFF
        path.write_bytes(flipped)
        try:
            loaded = published.load(path)
        except ValueError:
            continue
        assert (loaded.probabilities == original.probabilities).all()
        assert loaded.version == original.version
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(ValueError, match="no npz archive"):
        published.load(tmp_path / "array.npy")
    with pytest.raises(FileNotFoundError):
        published.load(tmp_path / "missing.npz")
