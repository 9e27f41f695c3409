"""Compiled action-centred scores of people, each of length at most 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled, inner

PRIOR = 5.0  # decisions that the guess of a reward counts for
PAIRS = 16  # pairs of redrawn actions


@compiled
def decision_gains(
    cells: Ints, actions: Ints, rewards: Floats, chances: Floats, lengths: Ints,
    window: int, usual: float, states: int, gains: Floats,
) -> None:  # fmt: skip
    """Return of the next ``window`` decisions less what her own past lets expect, into ``gains``.

    ``cells`` (n, H) are numbers below ``states``, for each of which a baseline is kept. Decisions
    of other cells, or whose ``chances`` (n, H, A) are 0, are left out, and their gains are NaN.
    """
    horizon, n_actions = actions.shape[1], chances.shape[2]
    sums, seen, used = np.empty(states), np.empty(states), np.empty(horizon, dtype=np.bool_)
    returns, counts = np.empty(horizon), np.empty(horizon)
    for i in range(len(actions)):
        for zeroed in (sums, seen, returns, counts):
            zeroed[:] = 0.0
        gains[i] = np.nan
        total, heard = 0.0, 0
        length = min(max(lengths[i], 0), horizon)
        for h in range(length):
            used[h] = 0 <= actions[i, h] < n_actions and chances[i, h, 0] > 0.0
            used[h] = used[h] and 0 <= cells[i, h] < states and math.isfinite(rewards[i, h])
            for k in range(max(0, h - window + 1), h + 1):
                if used[h]:
                    returns[k] += rewards[i, h]
                    counts[k] += 1.0
        for h in range(length):
            cell, k = cells[i, h], h - window
            if k >= 0 and used[k] and counts[k] > 0.0:
                sums[cells[i, k]] += returns[k] / counts[k]
                seen[cells[i, k]] += 1.0
            if used[h]:
                mean = (PRIOR * usual + total) / (PRIOR + heard)
                base = (sums[cell] + PRIOR * mean) / (seen[cell] + PRIOR)
                gains[i, h] = returns[h] - counts[h] * base
                total += rewards[i, h]
                heard += 1


@compiled
def centred_scores(
    features: Floats, cells: Ints, actions: Ints, chances: Floats, gains: Floats, out: Floats
) -> None:
    """Unit scores of each person into ``out`` (n, c d); see :class:`.statistics.CentredScores`.

    ``features`` (n, H, d) are those of decisions, or (n, H, 0) where ``cells`` (n, H), numbers
    below d, stand for one-hot ones. Decisions whose gains are not finite are left out.
    """
    n_actions = chances.shape[2]
    width = out.shape[1]
    score, drawn, mean = np.empty(width), np.empty(width), np.empty(width)
    for i in range(len(actions)):
        score[:] = 0.0
        skewed = False
        used = np.flatnonzero(np.isfinite(gains[i]))
        for h in used:
            skewed = skewed or n_actions > 2 or abs(chances[i, h, 0] - 0.5) > 1e-9
            _add(score, features[i, h], cells[i, h], actions[i, h], chances[i, h], gains[i, h])
        size = _length(score)
        if size <= 0.0:
            continue
        mean[:] = 0.0
        if skewed:
            # The mean unit score of this very person, had her actions changed nothing: her own
            # draws again, by chances that depend on her data alone.
            state: Any = np.uint64(0)
            for h in used:
                share = gains[i, h] / (abs(gains[i, h]) + size)  # of any scale
                state = _scrambled(state ^ np.uint64(int((share + 1.0) * 2.0**52)))
            first = state
            for pair in range(2 * PAIRS):  # odd ones mirror those before
                first = first if pair % 2 else state
                state = first
                drawn[:] = 0.0
                for h in used:
                    state = _scrambled(state)
                    level = float(state >> np.uint64(11)) * 2.0**-53
                    level = 1.0 - level if pair % 2 else level
                    action, total = 0, chances[i, h, 0]
                    while total <= level and action < n_actions - 1:
                        action += 1
                        total += chances[i, h, action]
                    _add(drawn, features[i, h], cells[i, h], action, chances[i, h], gains[i, h])
                again = _length(drawn)
                if again > 0.0:
                    mean += drawn / (2.0 * PAIRS * again)
        out[i] = (score / size - mean) / (1.0 + _length(mean))


@inner
def _add(score: Floats, f: Floats, cell: int, action: int, chances: Floats, gain: float) -> None:
    """Adds what a decision would score with this action."""
    n_actions = len(chances)
    columns = 1 if n_actions == 2 else n_actions
    d = len(score) // columns
    for c in range(columns):
        one = c + 1 if n_actions == 2 else c
        weight = gain * ((1.0 if action == one else 0.0) - chances[one])
        for j in range(len(f)):
            score[c * d + j] += weight * f[j]
        if len(f) == 0:
            score[c * d + cell] += weight


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
