"""Compiled sums over users' steps. Imported where they run: numba is slow to load."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, Ints, compiled, fused, inner

Steps: TypeAlias = tuple[Floats, Ints, Floats, NDArray[np.bool_], NDArray[np.bool_]]
"""Users' steps; see ``statistics.Steps``."""
Cells: TypeAlias = tuple[NDArray[np.int32], Floats, NDArray[np.int32]]
"""Where users' steps are on a grid: cells, parts and taken.

Cells (users, H + 1): the point at a state's lower corner, -1 where an episode ended. Parts
(users, H + 1, D) of the way to the upper corner. Taken (users, H): action x points + cell, -1 for
a step that does not count.
"""
Placed: TypeAlias = tuple[NDArray[np.int32], Floats, NDArray[np.int32], Floats]
"""The same, and rewards (users, H), cut to their range."""
OnLine: TypeAlias = tuple[NDArray[Any], NDArray[Any], Floats]
"""The same on a line, where states are rounded, so that tables have their values.

Places (users, H + 1): cell x ``FINE`` + how many of ``FINE`` - 1 parts of the way to the upper
point, -1 where an episode ended. Taken (users, H): action x points x ``FINE`` + place, or -1.
Rewards are the last.
"""

_BITS = 6
FINE = 1 << _BITS
"""Places in a cell of a line; the first and the last are its two points."""


@compiled
def placed(steps: Steps, grid: tuple[Floats, Ints]) -> Cells:
    """Looks up all steps on a grid; see ``Grid.for_loops``."""
    (states, actions, _, valid, ended), (box, table) = steps, grid
    users, H = actions.shape
    D, points = states.shape[2], 1
    for i in range(D):
        points *= table[i, 0]
    cells = np.zeros((users, H + 1), dtype=np.int32)
    parts = np.zeros((users, H + 1, D))
    taken = np.full((users, H), -1, dtype=np.int32)
    for user in range(users):
        for t in range(H + 1):
            cell = 0
            for i in range(D):
                x = min(max(states[user, t, i], box[0, i]), box[1, i])
                position = (x - box[0, i]) * box[2, i]
                along = min(int(position), table[i, 0] - 2)
                parts[user, t, i] = min(position - along, 1.0)
                cell += along * table[i, 1]
            cells[user, t] = cell
            if t < H and valid[user, t]:
                taken[user, t] = actions[user, t] * points + cell
            if t > 0 and ended[user, t - 1]:
                cells[user, t] = -1
    return cells, parts, taken


@compiled
def placed_on_line(
    steps: Steps, grid: tuple[Floats, Ints], places: NDArray[Any], taken: NDArray[Any]
) -> None:
    """Looks up all steps on a grid of one coordinate."""
    (states, actions, _, valid, ended), (box, table) = steps, grid
    users, H = actions.shape
    points = table[0, 0]
    for user in range(users):
        for t in range(H + 1):
            position = (min(max(states[user, t, 0], box[0, 0]), box[1, 0]) - box[0, 0]) * box[2, 0]
            cell = min(int(position), points - 2)
            place = cell * FINE + int(min(position - cell, 1.0) * (FINE - 1) + 0.5)
            places[user, t] = -1 if t > 0 and ended[user, t - 1] else place
            if t < H:
                now = actions[user, t] * points * FINE + place
                taken[user, t] = now if valid[user, t] else -1


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
def add_visits(where: Cells, corners: Ints, sums: Floats) -> None:
    """Adds users' visits of the points to ``sums``, (users, m); corners are those of the grid."""
    cells, parts, taken = where
    weights = np.empty(len(corners))
    for user in range(len(cells)):
        for t in range(taken.shape[1]):
            if taken[user, t] >= 0:
                _corner_weights(parts[user, t], weights)
                for c in range(len(corners)):
                    sums[user, cells[user, t] + corners[c]] += weights[c]


@compiled
def visits_on_line(where: OnLine, sums: Floats) -> None:
    """Users' visits of the points of a line, (users, m)."""
    places, taken, _ = where
    part = np.arange(FINE) / (FINE - 1)
    for user in range(len(places)):
        mine = sums[user]
        mine[:] = 0.0
        for t in range(taken.shape[1]):
            if taken[user, t] >= 0:
                i, later = places[user, t] >> _BITS, part[places[user, t] & (FINE - 1)]
                mine[i] += 1.0 - later
                mine[i + 1] += later


@partial(compiled, fastmath={"contract", "reassoc"})
def add_clipped(vectors: Floats, clip: float, out: Floats) -> None:
    """Adds users' vectors to ``out``, scaled back to a length; nothing of those that overflow."""
    scales = np.empty(len(vectors))
    for user in range(len(vectors)):
        square = 0.0
        for x in vectors[user]:
            square += x * x
        scales[user] = square
    for user in range(len(vectors)):
        square = scales[user]
        # The root of a square is exact: within the length the scale is 1.
        scales[user] = clip / math.sqrt(max(square, clip * clip)) if square < math.inf else 0.0
    for user in range(len(vectors)):
        if scales[user] > 0.0:
            for i in range(len(out)):
                out[i] += scales[user] * vectors[user, i]


def tables_of(
    values: Floats, predictions: Floats, discount: float, offset: float, low: float, high: float
) -> tuple[Floats, Floats]:
    """Discounted values (m - 1, FINE) and predictions (A m, FINE) at all places of a line, flat."""
    part = np.arange(FINE) / (FINE - 1)
    ahead = values[:, :-1, np.newaxis] + np.diff(values, axis=1)[..., np.newaxis] * part
    slopes = np.diff(predictions, axis=1, append=0.0)
    predicted = predictions[..., np.newaxis] + slopes[..., np.newaxis] * part
    return discount * np.clip(ahead.max(axis=0) - offset, low, high).ravel(), predicted.ravel()


@fused
def residuals_on_line(
    where: OnLine, ahead: Floats, predicted: Floats, about: Floats, sums: Floats
) -> None:
    """Users' residuals by action and point, (users, A m); see ``ResidualSums``, :func:`tables_of`.

    ``about`` is the unit of rewards, what they are measured from, and the discounted value of an
    end, not a number where steps into an end are dropped.
    """
    places, taken, rewards = where
    per, ending = 1.0 / about[0], about[2]
    centre, skips = about[1] * per, math.isnan(ending)
    part = np.arange(FINE) / (FINE - 1)
    for user in range(len(places)):
        mine = sums[user]
        mine[:] = 0.0
        for t in range(taken.shape[1]):
            now, then = taken[user, t], places[user, t + 1]
            if now < 0 or (skips and then < 0):
                continue
            value = ending
            if then >= 0:
                value = ahead[then]
            e = rewards[user, t] * per - centre + value - predicted[now]
            i, later = now >> _BITS, e * part[now & (FINE - 1)]
            mine[i] += e - later
            mine[i + 1] += later


@compiled
def residuals_on_grid(
    where: Placed, values: Floats, predictions: Floats, about: Floats, corners: Ints, sums: Floats
) -> None:
    """Adds the same in any number of coordinates, for values (m, A) and predictions (A m,).

    ``about`` is unit and centre of rewards, the value of an end, the discount, what values are
    measured from, and their range.
    """
    cells, parts, taken, rewards = where
    per, centre, ending, discount = 1.0 / about[0], about[1], about[2], about[3]
    offset, low, high = about[4], about[5], about[6]
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
