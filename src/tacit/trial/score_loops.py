"""Compiled action-centred scores of people, each of length at most 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled, inner
from tacit.privacy.statistic import Bools

PRIOR = 5.0  # decisions that the guess of a reward counts for
PAIRS = 16  # pairs of redrawn actions
SWEEPS = 100  # over a history, until her values have settled


@compiled
def window_gains(rewards: Floats, used: Bools, window: int, usual: float, gains: Floats) -> None:
    """Rewards of the next ``window`` decisions less what her own past lets expect, into ``gains``.

    Decisions (n, H) that are not ``used`` are left out, and their gains are NaN.
    """
    for i in range(len(rewards)):
        gains[i], total, heard = np.nan, 0.0, 0.0
        for h in np.flatnonzero(used[i]):
            base, gains[i, h] = (PRIOR * usual + total) / (PRIOR + heard), 0.0
            for k in range(h, min(h + window, rewards.shape[1])):
                gains[i, h] += rewards[i, k] - base if used[i, k] else 0.0
            total += rewards[i, h]
            heard += 1.0


@compiled
def model_gains(
    cells: Ints, rewards: Floats, used: Bools, discount: float, states: int, gains: Floats
) -> None:
    """Temporal differences by each person's own model of a finite world, into ``gains`` (n, H).

    Her values V solve V(s) (1 + n(s)) = sum of (r - her mean + ``discount`` V(s')) over her n(s)
    visits, so that what she saw seldom is average. ``cells`` (n, H + 1) are below ``states``.
    """
    visits, values, sums = np.empty(states), np.empty(states), np.empty(states)
    for i in range(len(rewards)):
        gains[i], visits[:], values[:] = np.nan, 0.5, 0.0
        steps = np.flatnonzero(used[i])
        mean = rewards[i][steps].mean() if len(steps) else 0.0
        for h in steps:
            visits[cells[i, h]] += 1.0
        for _ in range(SWEEPS):
            sums[:] = 0.0
            for h in steps:
                sums[cells[i, h]] += rewards[i, h] - mean + discount * values[cells[i, h + 1]]
            values[:] = sums / visits
        for h in steps:
            later = discount * values[cells[i, h + 1]] - values[cells[i, h]]
            gains[i, h] = rewards[i, h] - mean + later


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
