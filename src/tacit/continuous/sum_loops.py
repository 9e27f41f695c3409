"""Compiled sums over users' steps on a grid. Imported where they run: numba is slow to load."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled, inner

Steps: TypeAlias = tuple[Floats, Ints, Floats, Ints]
"""States (users, H + 1, D), actions, rewards (users, H) and lengths (users,)."""
GridNumbers: TypeAlias = tuple[Floats, Ints]
"""Numbers and table of a grid; see :class:`~tacit.continuous.grid.LoopParameters`."""
Targets: TypeAlias = tuple[Floats, Floats, Floats]
"""Values and predictions, (A, m), and the numbers of :func:`add_residuals`."""


@inner
def _corners(state: Floats, box: Floats, table: Ints, places: Ints, weights: Floats) -> bool:
    """The points of the grid around a state and their weights; whether the state is finite."""
    dimension = len(state)
    places[0], weights[0] = 0, 1.0
    found = 1
    for i in range(dimension):
        x = state[i]
        if not math.isfinite(x):
            return False
        x = min(max(x, box[0, i]), box[1, i])
        position = (x - box[0, i]) * box[2, i]
        cell = min(int(position), table[i, 0] - 2)
        part = min(position - cell, 1.0)
        stride = table[i, 1]
        for c in range(found):
            place, weight = places[c] + cell * stride, weights[c]
            places[c], weights[c] = place, weight * (1.0 - part)
            places[found + c], weights[found + c] = place + stride, weight * part
        found *= 2
    return True


@inner
def _add_line(steps: Steps, user: int, grid: GridNumbers, about: Targets, sums: Floats) -> None:
    """One user's residuals by action and point, where states have one coordinate."""
    states, actions, rewards = steps[0][user, :, 0], steps[1][user], steps[2][user]
    length, (box, table), (values, predictions, numbers) = steps[3][user], grid, about
    points = table[0, 0]
    discount, centre, unit, offset = numbers[1], numbers[2], numbers[3], numbers[4]
    low, high, ending, least, most = numbers[5], numbers[6], numbers[7], numbers[8], numbers[9]
    left, right, per_unit = box[0, 0], box[1, 0], box[2, 0]
    A, skips = len(values), math.isnan(ending)
    here, part_here, good_here = 0, 0.0, False
    for t in range(min(len(actions), length) + 1):
        x = states[t]
        good, place, part = math.isfinite(x), 0, 0.0
        if good:
            position = (min(max(x, left), right) - left) * per_unit
            place = min(int(position), points - 2)
            part = min(position - place, 1.0)
        if t > 0 and good and good_here:
            action, reward, ended = actions[t - 1], rewards[t - 1], t == length
            if math.isfinite(reward) and 0 <= action < A and not (ended and skips):
                ahead = ending
                if not ended:
                    ahead = -math.inf
                    for b in range(A):
                        value = values[b, place] * (1.0 - part) + values[b, place + 1] * part
                        ahead = max(ahead, value)
                    ahead = min(max(ahead - offset, low), high)
                e = (min(max(reward, least), most) - centre) / unit + discount * ahead
                e -= predictions[action, here] * (1.0 - part_here)
                e -= predictions[action, here + 1] * part_here
                sums[action, here] += e * (1.0 - part_here)
                sums[action, here + 1] += e * part_here
        here, part_here, good_here = place, part, good


@inner
def _add_steps(
    steps: Steps,
    user: int,
    grid: GridNumbers,
    about: Targets,
    room: tuple[Ints, Ints, Floats, Floats],
    sums: Floats,
) -> None:
    """The same in any number of coordinates."""
    states, actions, rewards = steps[0][user], steps[1][user], steps[2][user]
    length, (box, table), (values, predictions, numbers) = steps[3][user], grid, about
    here, there, at_here, at_there = room
    discount, centre, unit, offset = numbers[1], numbers[2], numbers[3], numbers[4]
    low, high, ending, least, most = numbers[5], numbers[6], numbers[7], numbers[8], numbers[9]
    A, size, horizon = len(values), len(here), len(actions)
    good_here = _corners(states[0], box, table, here, at_here)
    for t in range(min(horizon, length)):
        good_there = _corners(states[t + 1], box, table, there, at_there)
        action, reward = actions[t], rewards[t]
        ended = t + 1 == length
        valid = good_here and good_there and math.isfinite(reward) and 0 <= action < A
        if valid and not (ended and math.isnan(ending)):
            ahead = ending
            if not ended:
                ahead = -math.inf
                for b in range(A):
                    value = 0.0
                    for c in range(size):
                        value += at_there[c] * values[b, there[c]]
                    ahead = max(ahead, value)
                ahead = min(max(ahead - offset, low), high)
            e = (min(max(reward, least), most) - centre) / unit + discount * ahead
            for c in range(size):
                e -= at_here[c] * predictions[action, here[c]]
            for c in range(size):
                sums[action, here[c]] += e * at_here[c]
        here, there = there, here
        at_here, at_there = at_there, at_here
        good_here = good_there


@compiled
def add_visits(
    steps: Steps, actions_there: int, grid: GridNumbers, clip: float, separate: bool, out: Floats
) -> None:
    """Adds users' clipped histograms of visits to ``out``, as :func:`add_residuals` does."""
    (states, actions, rewards, lengths), (box, table) = steps, grid
    users, horizon = actions.shape
    size, m = 2 ** states.shape[2], out.shape[1]
    here, weights = np.empty(size, dtype=np.int64), np.empty(size)
    seen = np.empty(m)
    for user in range(users):
        seen[:] = 0.0
        good = _corners(states[user, 0], box, table, here, weights)
        for t in range(min(horizon, lengths[user])):
            follows = True
            for x in states[user, t + 1]:
                follows = follows and math.isfinite(x)
            known = math.isfinite(rewards[user, t]) and 0 <= actions[user, t] < actions_there
            if good and follows and known:
                for c in range(size):
                    seen[here[c]] += weights[c]
            if follows:
                _corners(states[user, t + 1], box, table, here, weights)
            good = follows
        norm = math.sqrt((seen * seen).sum())
        scale, row = clip / max(norm, clip), user if separate else 0
        for i in range(m):
            out[row, i] += scale * seen[i]


@inner
def _add_clipped(
    sums: Floats, clip: float, root: Floats, coordinates: Floats, row: int, out: Floats
) -> None:
    """Adds one user's sums in the coordinates of ``root``, clipped; nothing if they overflow."""
    (A, m), k = sums.shape, root.shape[1]
    square = 0.0
    coordinates[:] = 0.0
    for a in range(A):
        for i in range(m):
            s = sums[a, i]
            if s != 0.0:
                for j in range(k):
                    coordinates[a, j] += s * root[i, j]
        for j in range(k):
            square += coordinates[a, j] * coordinates[a, j]
    norm = math.sqrt(square)
    if math.isfinite(norm):
        scale = clip / max(norm, clip)
        for a in range(A):
            for j in range(k):
                out[row, a * k + j] += scale * coordinates[a, j]


def add_residuals(
    steps: Steps, grid: GridNumbers, about: Targets, root: Floats, separate: bool, out: Floats
) -> None:
    """Adds users' clipped coordinates to ``out``: to row ``user`` if ``separate``, else to row 0.

    ``numbers`` are clip, discount, centre, unit, offset, the range of values, the value of an end
    (not a number where steps into an end are dropped), and the range of rewards.
    """
    # Two loops, of which a world needs one: what is not called is not compiled.
    loop = residuals_on_line if steps[0].shape[2] == 1 else residuals_on_grid
    loop(steps, grid, about, root, separate, out)


@compiled
def residuals_on_line(
    steps: Steps, grid: GridNumbers, about: Targets, root: Floats, separate: bool, out: Floats
) -> None:
    """:func:`add_residuals` where states have one coordinate."""
    (A, m), k = about[0].shape, root.shape[1]
    sums, coordinates = np.empty((A, m)), np.empty((A, k))
    for user in range(len(steps[1])):
        sums[:] = 0.0
        _add_line(steps, user, grid, about, sums)
        _add_clipped(sums, about[2][0], root, coordinates, user if separate else 0, out)


@compiled
def residuals_on_grid(
    steps: Steps, grid: GridNumbers, about: Targets, root: Floats, separate: bool, out: Floats
) -> None:
    """:func:`add_residuals` in any number of coordinates."""
    (A, m), k = about[0].shape, root.shape[1]
    size = 2 ** steps[0].shape[2]
    places = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    room = places[0], places[1], np.empty(size), np.empty(size)
    sums, coordinates = np.empty((A, m)), np.empty((A, k))
    for user in range(len(steps[1])):
        sums[:] = 0.0
        _add_steps(steps, user, grid, about, room, sums)
        _add_clipped(sums, about[2][0], root, coordinates, user if separate else 0, out)
