"""Compiled action-centred scores of people, each of length at most 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled, inner
from tacit.privacy.statistic import Bools

PRIOR = 5.0  # decisions that the guess of a reward counts for
PAIRS = 16  # pairs of redrawn actions


@compiled
def centred_scores(
    features: Floats,
    cells: Ints,
    actions: Ints,
    rewards: Floats,
    chances: Floats,
    lengths: Ints,
    window: int,
    usual: float,
    out: Floats,
) -> None:
    """Unit scores of each person into ``out`` (n, c d); see :class:`.statistics.CentredScores`.

    ``features`` (n, H, d) are those of decisions, or (n, 0, d) where ``cells`` (n, H), numbers
    below d, stand for one-hot ones; decisions of cell -1 are left out. Baselines are kept for each
    cell. ``chances`` (n, H, A) are of all actions, and those of a decision that is left out are 0.
    """
    users, horizon = actions.shape
    n_actions, dimension = chances.shape[2], features.shape[2]
    linear = features.shape[1] > 0
    columns = 1 if n_actions == 2 else n_actions
    gains, used = np.empty(horizon), np.empty(horizon, dtype=np.bool_)
    score, drawn = np.empty(columns * dimension), np.empty(columns * dimension)
    mean = np.empty(columns * dimension)
    for user in range(users):
        length = min(max(lengths[user], 0), horizon)
        for h in range(length):
            action = actions[user, h]
            used[h] = 0 <= action < n_actions and chances[user, h, 0] > 0.0
            used[h] = used[h] and 0 <= cells[user, h] < dimension
            used[h] = used[h] and math.isfinite(rewards[user, h])
        _centre(cells[user], rewards[user], used, length, window, usual, dimension, gains)
        score[:] = 0.0
        skewed = False
        for h in range(length):
            if used[h]:
                skewed = skewed or n_actions > 2 or abs(chances[user, h, 0] - 0.5) > 1e-9
                _add(features[user], cells[user, h], h, linear, actions[user, h],
                     chances[user, h], gains[h], score)  # fmt: skip
        size = _length(score)
        if size <= 0.0:
            continue
        mean[:] = 0.0
        if skewed:
            # The mean unit score of this very person, had her actions changed nothing: her own
            # draws again, by chances that depend on her data alone.
            state: Any = np.uint64(0)
            for h in range(length):
                if used[h]:
                    share = gains[h] / (abs(gains[h]) + size)  # of any scale
                    state = _scrambled(state ^ np.uint64(int((share + 1.0) * 2.0**52)))
            for _ in range(PAIRS):
                first = state
                for mirrored in range(2):
                    state = first
                    drawn[:] = 0.0
                    for h in range(length):
                        if used[h]:
                            state = _scrambled(state)
                            level = float(state >> np.uint64(11)) * 2.0**-53
                            level = 1.0 - level if mirrored else level
                            action, total = 0, chances[user, h, 0]
                            while total <= level and action < n_actions - 1:
                                action += 1
                                total += chances[user, h, action]
                            _add(features[user], cells[user, h], h, linear, action,
                                 chances[user, h], gains[h], drawn)  # fmt: skip
                    again = _length(drawn)
                    if again > 0.0:
                        mean += drawn / (2.0 * PAIRS * again)
        out[user] = (score / size - mean) / (1.0 + _length(mean))


@inner
def _centre(
    cells: Ints,
    rewards: Floats,
    used: Bools,
    length: int,
    window: int,
    usual: float,
    size: int,
    gains: Floats,
) -> None:
    """Return of the next ``window`` decisions, less what her own past lets expect of it."""
    returns, counts = np.zeros(length), np.zeros(length)
    total, heard = 0.0, 0
    for h in range(length):
        if used[h]:
            for k in range(max(0, h - window + 1), h + 1):
                returns[k] += rewards[h]
                counts[k] += 1.0
    sums, seen = np.zeros(size), np.zeros(size)
    for h in range(length):
        k = h - window
        if k >= 0 and used[k] and counts[k] > 0.0:
            sums[cells[k]] += returns[k] / counts[k]
            seen[cells[k]] += 1.0
        gains[h] = 0.0
        if used[h]:
            mean = (PRIOR * usual + total) / (PRIOR + heard)
            base = (sums[cells[h]] + PRIOR * mean) / (seen[cells[h]] + PRIOR)
            gains[h] = returns[h] - counts[h] * base
            total += rewards[h]
            heard += 1


@inner
def _add(
    features: Floats,
    cell: int,
    h: int,
    linear: bool,
    action: int,
    chances: Floats,
    gain: float,
    score: Floats,
) -> None:
    """Adds what a decision would score with this action."""
    n_actions = len(chances)
    columns = 1 if n_actions == 2 else n_actions
    for c in range(columns):
        one = c + 1 if n_actions == 2 else c
        weight = gain * ((1.0 if action == one else 0.0) - chances[one])
        if linear:
            d = features.shape[1]
            for i in range(d):
                score[c * d + i] += weight * features[h, i]
        else:
            score[c * (len(score) // columns) + cell] += weight


@inner
def _length(vector: Floats) -> float:
    """The Euclidean length; 0 where squares would be rounded away, or are too large."""
    total = 0.0
    for i in range(len(vector)):
        total += vector[i] * vector[i]
    return math.sqrt(total) if 1e-200 < total < 1e300 else 0.0


@inner
def _scrambled(state: Any) -> Any:
    """The next state of SplitMix64."""
    state = np.uint64(state + np.uint64(0x9E3779B97F4A7C15))
    mixed = np.uint64((state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    mixed = np.uint64((mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return np.uint64(mixed ^ (mixed >> np.uint64(31)))
