"""Users whom the tests of finite statistics look at."""

import itertools
import math

import numpy as np

from tacit import Relation
from tacit.privacy.statistic import Block


def users_of(rng, users, S, A, H):
    """Random users, half of whom stay where they are."""
    states = rng.integers(0, S, (users, H + 1))
    actions = rng.integers(0, A, (users, H))
    rewards = rng.choice([0.0, 1.0, 0.5, np.nan], (users, H), p=[0.2, 0.6, 0.1, 0.1])
    lazy = rng.random(users) < 0.5
    states[lazy] = rng.integers(0, S, (lazy.sum(), 1))
    actions[lazy] = rng.integers(0, A, (lazy.sum(), 1))
    rewards[lazy] = rng.integers(0, 2, (lazy.sum(), 1))
    return {"states": states, "actions": actions, "rewards": rewards}


def all_episodes(S, A, H, rewards):
    """Every episode there is, possible or not; a reward of NaN is a step that does not count."""
    rows = itertools.product(
        itertools.product(range(S), repeat=H + 1),
        itertools.product(range(A), repeat=H),
        itertools.product(rewards, repeat=H),
    )
    states, actions, paid = (np.array(column) for column in zip(*rows, strict=True))
    return {"states": states, "actions": actions, "rewards": paid}


def largest_gap(*pairs):
    """Between the entries of arrays that should be equal."""
    return max(float(np.abs(one - other).max()) for one, other in pairs)


def everyone(S, A, H, rewards=(0.0, 1.0, math.nan)):
    """Every episode there is, possible or not, of version 0."""
    arrays = all_episodes(S, A, H, rewards)
    users = len(arrays["states"])
    return Block(users, {**arrays, "versions": np.zeros(users, dtype=int)})


def bounds(statistic, norm="l2"):
    """The declared sensitivities, to zero and to another user."""
    declared = getattr(statistic, norm)
    return declared(Relation.ZERO_OUT), declared(Relation.REPLACE_ONE)


def extent(vectors, power=2):
    """The longest vector and the largest distance, the zero vector included."""
    vectors = np.unique(np.vstack([vectors, 0.0 * vectors[:1]]), axis=0)
    apart = (float((np.abs(vectors - v) ** power).sum(axis=1).max()) for v in vectors)
    longest = float((np.abs(vectors) ** power).sum(axis=1).max())
    return longest ** (1 / power), max(apart) ** (1 / power)


def check_extent(statistic, block):
    """What was found, never more than declared, in shares of that."""
    found, declared = extent(statistic.vectors(block)), bounds(statistic)
    assert found[0] <= declared[0] * (1 + 1e-9)
    assert found[1] <= declared[1] * (1 + 1e-9)
    return found[0] / declared[0], found[1] / declared[1]
