"""Gains over what people did: by hand, attacked, and what intervals make of them."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tacit import Block, CheckFailed, JointCurator, JointDP, Relation, check_statistic
from tacit.privacy.reading import StepColumns, read_rewards
from tacit.tabular.return_statistics import (
    SPREAD_WEIGHT,
    ActionCounts,
    RobustGains,
    mean_bounds,
    propensities,
)
from tests.tabular.samples import users_of

H, S, A = 3, 4, 2


def by_paths(table, most, largest, steps=H, **more):
    """Gains of policies that are so much likelier to do what was done, (K, S, A)."""
    K, states, _ = table.shape
    weights = np.concatenate([table, np.zeros((K, states, 1))], axis=2)[:, np.newaxis]
    ranges = [[-largest, most]] * K + [[-most, largest]] * K
    nothing = np.zeros((K, 1, states)), np.zeros_like(weights), np.array(ranges)
    return RobustGains(weights, *nothing, largest, steps, paths=True, **more)


def sample(rng, users):
    """Random users; and some of large weight who get all, half or nothing."""
    arrays = users_of(rng, users, S, A, H)
    some = rng.random(users) < 0.7
    arrays["states"][some], arrays["actions"][some] = 0, 0
    paid = rng.choice([0.0, 0.5, 1.0], (some.sum(), 1))
    arrays["rewards"][some] = np.where(np.arange(H) == 0, paid, 0.0)
    return Block(users, arrays)


def extreme(policies=2, **more):
    table = np.random.default_rng(0).choice([0.5, 1.0, 4.0], (policies, S, A))
    table[:, 0, 0], table[:, 1] = 20.0, 0.0
    return by_paths(table, 3.0, 1.0, **more)


def with_propensities(rng, users):
    block = sample(rng, users)
    chances = rng.choice([0.01, 0.5, 1.0, np.nan, 0.0, -3.0, 7.0], (users, H))
    chances[rng.random(users) < 0.8] = 0.5
    return Block(users, {**block.arrays, "propensities": chances})


@pytest.mark.parametrize("policies", [1, 3])
@pytest.mark.parametrize("logged", [False, True])
def test_sensitivities_hold_whatever_a_log_says(policies, logged):
    statistic = extreme(policies, logged=logged)
    users = with_propensities if logged else sample
    report = check_statistic(statistic, users, users=300, rounds=30)
    assert 0.7 < report.tightness["replace-one l2"] <= 1.0, report.tightness
    assert statistic.l2(Relation.REPLACE_ONE) == pytest.approx(math.sqrt(2 * policies + 1))


@pytest.mark.parametrize("size", [3.0, 1e300])
def test_gains_by_a_model_are_bounded_whatever_the_model_says(size):
    rng = np.random.default_rng(1)
    weights = size * rng.choice([0.0, 1.0], (2, H, S, A + 1))
    values, q = rng.normal(size=(2, H + 1, S)), rng.normal(size=(2, H, S, A + 1))
    ranges = np.array([[-0.5, 0.5], [-0.1, 0.3]])
    statistic = RobustGains(weights, values, q, ranges, 1.0, H)
    report = check_statistic(statistic, sample, users=300, rounds=30)
    assert max(report.tightness.values()) <= 1.0
    if size == 3.0:
        assert report.tightness["replace-one l2"] > 0.9, report.tightness
    assert statistic.l2(Relation.REPLACE_ONE) == pytest.approx(math.sqrt(3))


def test_a_larger_weight_of_spreads_would_cost_something():
    """The bound of the class is where it is said to be: spreads are free up to 3.33, not 3.4."""
    x = np.linspace(0, 1, 2001)
    for weight, free in ((SPREAD_WEIGHT, True), (3.4, False)):
        pair = np.stack([x, weight * x * (1 - x)], axis=1)
        farthest = max(np.linalg.norm(pair - one, axis=1).max() for one in pair[::20])
        assert (farthest <= 1.0 + 1e-9) == free, (weight, farthest)


def test_gains_by_hand():
    table = np.ones((2, S, A))
    table[0, 0, 1], table[0, 1, 0] = 3.0, 0.5
    statistic = by_paths(table, 4.0, 2.0)
    block = Block(
        4,
        {
            # w = 3, 1.5, 1.5; nothing follows the last step, so that it need not be known
            "states": np.array([[0, 1, 2, -1], [0, 1, 2, 2], [0, 1, -1, 0], [-1, 0, 0, 0]]),
            "actions": np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]]),
            # the second user's rewards are cut to 1 each, and to 2 together; the third's ends
            "rewards": np.array([[1.0, 0, 1.0], [7.0, 1.0, 1.0], [0.5, np.nan, 1.0], [1, 1, 1]]),
        },
    )
    parts = [statistic.layout.unpack(v) for v in statistic.vectors(block)]
    got = [[4.5 - 2.0, 0.0], [4.5 - 2.0, 0.0], [1.5 - 0.5, 0.0], [0.0, 0.0]]
    missed = [[0.0, 0.0], [0.0, 0.0], [(1.0 - 3.0) * 1.5, 0.0], [0.0, 0.0]]
    for part, gains, losses, G in zip(parts, got, missed, [2.0, 2.0, 0.5, 0.0], strict=True):
        assert 6.0 * part["sums"] == pytest.approx([*gains, *losses, 3.0 * G])
        x = part["sums"] + [1 / 3, 1 / 3, 2 / 3, 2 / 3, 0]
        assert part["spreads"] == pytest.approx([2 / 9] * 4 + [0] - x * (1 - x))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_both_means_are_gains(seed):
    """Exactly, over all episodes of a small world; cut, one is at most that, the other at least."""
    rng = np.random.default_rng(seed)
    P, r = rng.dirichlet(np.ones(2), (2, 2)), rng.random((2, 2))
    # Ratios of at most 20 a step: the clip at 10^6 never matters.
    b, pi = 0.05 + 0.9 * rng.dirichlet(np.ones(2), 2), rng.dirichlet(np.ones(2), 2)
    b /= b.sum(axis=1, keepdims=True)
    means, value = {1e6: np.zeros(2), 0.3: np.zeros(2)}, 0.0
    for path in np.ndindex(2, 2, 2, 2, 2):
        s, a, t, c, last = path
        moves = P[s, a, t] * P[t, c, last] * 0.5
        states, actions = np.array([[s, t, last]]), np.array([[a, c]])
        rewards = np.array([[r[s, a], r[t, c]]])
        block = Block(1, {"states": states, "actions": actions, "rewards": rewards})
        for most, mean in means.items():
            statistic = by_paths((pi / b)[np.newaxis], most, 2.0, 2)
            found = statistic.layout.unpack(statistic.vectors(block)[0])["sums"][:2]
            mean += moves * b[s, a] * b[t, c] * found * (most + 2.0)
        value += moves * (pi[s, a] * pi[t, c] - b[s, a] * b[t, c]) * rewards.sum()
    assert means[1e6] == pytest.approx([value, value], rel=1e-6)
    assert means[0.3][0] <= value + 1e-9
    assert means[0.3][1] >= value - 1e-9


def with_one_tiny_propensity(users=1000):
    """Users who all got 1 with weight 1; the last has a weight of 0, and then an infinite ratio."""
    table = np.ones((1, S, A))
    table[0, 0, 1] = 0.0
    statistic = by_paths(0.5 * table, 1.0, 1.0, logged=True)
    arrays = {
        "states": np.zeros((users, H + 1), dtype=np.int64),
        "actions": np.zeros((users, H), dtype=np.int64),
        "rewards": np.tile([0.7, 0.0, 0.0], (users, 1)),
        "propensities": np.full((users, H), 0.5),
    }
    arrays["actions"][-1, 0] = 1
    arrays["propensities"][-1, 1] = 5e-324
    return statistic, Block(users, arrays)


def test_a_tiny_propensity_does_not_make_a_weight_of_zero_something_else():
    statistic, block = with_one_tiny_propensity()
    assert statistic.vectors(block)[-1, :3] == pytest.approx([-0.35, 0.15, 0.7])
    assert statistic.layout.unpack(statistic.total(block))["sums"][0] == pytest.approx(-0.35)
    curator = JointCurator(JointDP(8.0, 1e-6), users=1000)
    curator.add(block)
    release = curator.release(statistic)
    # Ten standard deviations of the noise.
    expected = [-0.35, 0.15, 700.0]
    assert np.abs(release["sums"] - expected).max() < 10 * float(release.std["sums"])


class OldWeights(RobustGains):
    """Multiplies before it cuts."""

    def vectors(self, block):
        states, actions, *_ = StepColumns(H).read(block)
        chances = read_rewards(block, "propensities", actions.shape)
        known = (states[:, :-1] >= 0) & (states[:, :-1] < S) & (actions >= 0) & (actions < A)
        at = np.where(known, states[:, :-1], 0), np.where(known, actions, 0)
        weights = np.where(known & (chances > 0.0), self.weights[0, 0][at] / chances, 1.0)
        vectors = super().vectors(block)
        vectors[np.isnan(weights.prod(axis=1))] = np.nan
        return vectors


@pytest.mark.parametrize("seed", range(4))
def test_the_attack_finds_a_ratio_that_overflows_on_every_seed(seed):
    statistic, _ = with_one_tiny_propensity()
    check_statistic(statistic, with_propensities, users=100, rounds=1, seed=seed)
    shown = [getattr(statistic, f.name) for f in dataclasses.fields(statistic) if f.name != "name"]
    broken = OldWeights(*shown)
    with pytest.raises(CheckFailed, match="not finite"):
        check_statistic(broken, with_propensities, users=100, rounds=0, seed=seed)


def release_of(x, noise, rng):
    sums = x.sum() + noise * rng.normal()
    spreads = (x * (1 - x)).sum() + noise / SPREAD_WEIGHT * rng.normal()
    return np.array(sums), np.array(spreads), (noise, noise / SPREAD_WEIGHT)


@pytest.mark.parametrize("noise", [0.0, 4.2, 60.0])
def test_bounds_hold_and_are_near(noise):
    """A rare 1: 400 bounds of failure .05 each, of which 39 or more fail with probability 1e-4."""
    rng = np.random.default_rng(3)
    users, mean, failed, far = 2000, 0.03, 0, 0.0
    for _ in range(400):
        x = (rng.random(users) < mean).astype(float)
        sums, spreads, noises = release_of(x, noise, rng)
        low = float(mean_bounds(sums, spreads, noises, users, 0.05, 0.0))
        failed += low > mean
        far += (mean - low) / 400
    assert failed <= binom.ppf(1 - 1e-4, 400, 0.05)
    usual = 1.64 * math.sqrt(mean * (1 - mean) / users)
    # sampling, range, and noise: never more than three times what has to be
    assert far < 3.0 * (usual + 3.0 / users + 2.0 * noise / users)


def test_action_counts_by_hand_and_their_sensitivity():
    allowed = np.array([[True, True], [True, False], [True, True]])
    statistic = ActionCounts(allowed, 4, first=2)
    block = Block(
        3,
        {
            # once per state; two states at most; ended by an action that is not allowed
            "states": np.array([[0, 0, 2, 1, 0], [2, 2, 2, 2, 2], [1, 1, 0, 0, 0]]),
            "actions": np.array([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]),
            "rewards": np.zeros((3, 4)),
        },
    )
    rows = statistic.vectors(block).tolist()
    assert rows == [[0, 1, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 1, 0, 0]]

    def walks(rng, users):
        states = rng.permuted(np.tile(np.arange(3), (users, 1)), axis=1)[:, [0, 1, 2, 0, 1]]
        actions = rng.integers(0, 2, (users, 4))
        rewards = np.zeros(actions.shape)
        return Block(users, {"states": states, "actions": actions, "rewards": rewards})

    report = check_statistic(statistic, walks, users=300, rounds=30)
    assert min(report.tightness.values()) > 0.99, report.tightness


def test_bounds_of_propensities_hold_all_at_once():
    """300 logs: all of 6 bounds but with probability .1; 52 failures have probability 1e-4."""
    rng = np.random.default_rng(8)
    allowed = np.array([[True, True, True], [True, True, True]])
    true = np.array([[0.7, 0.2, 0.1], [0.05, 0.15, 0.8]])
    curator_noise, failed, loose = 5.0, 0, 0.0
    for _ in range(300):
        visits = rng.binomial(3000, [0.9, 0.3])
        counts = np.concatenate([rng.multinomial(n, p) for n, p in zip(visits, true, strict=True)])
        noisy = counts + curator_noise * rng.normal(size=6)
        estimates, bounds = propensities(noisy, curator_noise, allowed, 0.1)
        failed += bool((bounds < true).any())
        loose += float((bounds / true).max()) / 300
        assert estimates.sum(axis=1) == pytest.approx(1.0)
    assert failed <= binom.ppf(1 - 1e-4, 300, 0.1)
    assert 1.0 < loose < 2.5
