"""Compiled sums over users' steps on a grid. Imported where they run: numba is slow to load."""

from __future__ import annotations

import math
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, Ints, compiled, fused, inner

Steps: TypeAlias = tuple[Floats, Ints, Floats, Ints]
"""States (users, H + 1, D), actions, rewards (users, H) and lengths (users,)."""
GridNumbers: TypeAlias = tuple[Floats, Ints]
"""Numbers and table of a grid; see :class:`~tacit.continuous.grid.LoopParameters`."""
Placed: TypeAlias = tuple[NDArray[np.int32], Floats, NDArray[np.int32], Floats]
"""Where users' steps are on a grid, which no question about them changes.

Cells (users, H + 1): the point at a state's lower corner, -1 for the state that an episode ended
in. Parts (users, H + 1, D) of the way to the upper corner. Taken (users, H): action x points +
cell, -1 for a step that does not count. Rewards (users, H), cut to their range.
"""


@compiled
def placed(
    steps: Steps, actions_there: int, grid: GridNumbers, least: float, most: float
) -> Placed:
    """Looks up all steps. One counts if its states, action and reward are valid."""
    (states, actions, rewards, lengths), (box, table) = steps, grid
    users, H = actions.shape
    D, points = states.shape[2], 1
    for i in range(D):
        points *= table[i, 0]
    cells = np.zeros((users, H + 1), dtype=np.int32)
    parts = np.zeros((users, H + 1, D))
    taken = np.full((users, H), -1, dtype=np.int32)
    paid = np.zeros((users, H))
    for user in range(users):
        length, good_here = lengths[user], False
        for t in range(min(H, length) + 1):
            good, cell = True, 0
            for i in range(D):
                x = states[user, t, i]
                good = good and math.isfinite(x)
                if good:
                    position = (min(max(x, box[0, i]), box[1, i]) - box[0, i]) * box[2, i]
                    along = min(int(position), table[i, 0] - 2)
                    parts[user, t, i] = min(position - along, 1.0)
                    cell += along * table[i, 1]
            cells[user, t] = cell
            if t > 0 and good and good_here:
                action, reward = actions[user, t - 1], rewards[user, t - 1]
                if math.isfinite(reward) and 0 <= action < actions_there:
                    taken[user, t - 1] = action * points + cells[user, t - 1]
                    paid[user, t - 1] = min(max(reward, least), most)
            good_here = good
        if 0 < length <= H:
            cells[user, length] = -1
    return cells, parts, taken, paid


@inner
def _corner_weights(parts: Floats, weights: Floats) -> None:
    """The weights of the 2^D points around a state."""
    weights[0] = 1.0
    found = 1
    for i in range(len(parts)):
        for c in range(found):
            weights[found + c] = weights[c] * parts[i]
            weights[c] *= 1.0 - parts[i]
        found *= 2


@compiled
def add_visits(where: Placed, corners: Ints, sums: Floats) -> None:
    """Adds users' visits of the points to ``sums``, (users, m).

    ``corners`` are how far the points around a state are from its lower corner.
    """
    cells, parts, taken, _ = where
    weights = np.empty(len(corners))
    for user in range(len(cells)):
        for t in range(taken.shape[1]):
            if taken[user, t] >= 0:
                _corner_weights(parts[user, t], weights)
                for c in range(len(corners)):
                    sums[user, cells[user, t] + corners[c]] += weights[c]


@partial(compiled, fastmath={"contract", "reassoc"})
def add_clipped(vectors: Floats, clip: float, out: Floats) -> None:
    """Adds users' vectors to ``out``, scaled back to a length; nothing of those that overflow."""
    for user in range(len(vectors)):
        square = 0.0
        for x in vectors[user]:
            square += x * x
        norm = math.sqrt(square)
        if math.isfinite(norm):
            scale = clip / max(norm, clip)
            for i in range(len(out)):
                out[i] += scale * vectors[user, i]


def lines_of(values: Floats, predictions: Floats) -> tuple[Floats, Floats]:
    """Values and slopes between points, of values (m - 1, A, 2) and of predictions (A m, 2).

    There are at least two actions: a second one that is the same changes no maximum.
    """
    known = (values if len(values) > 1 else np.repeat(values, 2, axis=0)).T
    lines = np.stack([known[:-1], np.diff(known, axis=0)], axis=-1)
    slopes = np.diff(predictions, axis=1, append=0.0)
    return lines, np.stack([predictions, slopes], axis=-1).reshape(-1, 2)


@fused
def residuals_on_line(
    where: Placed, lines: Floats, predicted: Floats, about: Floats, sums: Floats
) -> None:
    """Adds users' residuals by action and point to ``sums``, (users, A m); see ``ResidualSums``.

    States have one coordinate, so that between two points all is linear: see :func:`lines_of`.
    ``about`` is discount, centre, unit, offset, the range of values, and the value of an end, not a
    number where steps into an end are dropped.
    """
    cells, parts, taken, rewards = where
    discount, centre, per, offset = about[0], about[1], 1.0 / about[2], about[3]
    low, high, ending = about[4], about[5], about[6]
    A, skips = lines.shape[1], math.isnan(ending)
    for user in range(len(cells)):
        for t in range(taken.shape[1]):
            i, c = taken[user, t], cells[user, t + 1]
            if i < 0 or (skips and c < 0):
                continue
            ahead = ending
            if c >= 0:
                p = parts[user, t + 1, 0]
                ahead = max(
                    lines[c, 0, 0] + p * lines[c, 0, 1], lines[c, 1, 0] + p * lines[c, 1, 1]
                )
                for b in range(2, A):
                    ahead = max(ahead, lines[c, b, 0] + p * lines[c, b, 1])
                ahead = min(max(ahead - offset, low), high)
            p = parts[user, t, 0]
            e = (rewards[user, t] - centre) * per + discount * ahead
            e -= predicted[i, 0] + p * predicted[i, 1]
            sums[user, i] += e - e * p
            sums[user, i + 1] += e * p


@compiled
def residuals_on_grid(
    where: Placed, values: Floats, predictions: Floats, about: Floats, corners: Ints, sums: Floats
) -> None:
    """The same in any number of coordinates, for values (m, A) and predictions (A m,)."""
    cells, parts, taken, rewards = where
    discount, centre, per, offset = about[0], about[1], 1.0 / about[2], about[3]
    low, high, ending = about[4], about[5], about[6]
    A, size, skips = values.shape[1], len(corners), math.isnan(ending)
    here, there, best = np.empty(size), np.empty(size), np.empty(A)
    for user in range(len(cells)):
        _corner_weights(parts[user, 0], here)
        for t in range(taken.shape[1]):
            i, c = taken[user, t], cells[user, t + 1]
            _corner_weights(parts[user, t + 1], there)
            if i >= 0 and (c >= 0 or not skips):
                ahead = ending
                if c >= 0:
                    best[:] = 0.0
                    for k in range(size):
                        for b in range(A):
                            best[b] += there[k] * values[c + corners[k], b]
                    ahead = min(max(best.max() - offset, low), high)
                e = (rewards[user, t] - centre) * per + discount * ahead
                for k in range(size):
                    e -= here[k] * predictions[i + corners[k]]
                for k in range(size):
                    sums[user, i + corners[k]] += e * here[k]
            here, there = there, here
