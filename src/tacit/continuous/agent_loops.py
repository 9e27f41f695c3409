"""Compiled loops of transition models and of plans with them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, Ints, compiled

Singles = NDArray[np.float32]
Places = NDArray[np.int32]


@compiled
def polynomial_features(
    states: Floats,
    pushes: Floats,
    centres: Floats,
    halves: Floats,
    kinds: Ints,
    coordinates: Ints,
    parents: Ints,
    factors: Ints,
    pushed: Ints,
    out: Floats,
) -> None:
    """Features of states, (n, D), under pushes, (n, k); see ``transition_model``."""
    simple = np.empty(len(kinds))
    for n in range(len(states)):
        for j in range(len(kinds)):
            x = states[n, coordinates[j]]
            if kinds[j] == 0:
                z = (x - centres[coordinates[j]]) / halves[coordinates[j]]
                simple[j] = min(max(z, -2.0), 2.0)
            elif kinds[j] == 1:
                simple[j] = math.sin(x)
            else:
                simple[j] = math.cos(x)
        out[n, 0] = 1.0
        size = len(parents)
        for i in range(1, size):
            out[n, i] = out[n, parents[i]] * simple[factors[i]]
        for k in range(pushes.shape[1]):
            for j in range(len(pushed)):
                out[n, size] = pushes[n, k] * out[n, pushed[j]]
                size += 1


@compiled
def locate(states: Floats, box: Floats, table: Ints, cells: Places, parts: Singles) -> None:
    """The lowest corner of the grid's cell around each state, and how far it is from there."""
    for n in range(len(states)):
        corner = 0
        for i in range(len(table)):
            position = (min(max(states[n, i], box[0, i]), box[1, i]) - box[0, i]) * box[2, i]
            cell = min(int(position), table[i, 0] - 2)
            parts[n, i] = min(position - cell, 1.0)
            corner += cell * table[i, 1]
        cells[n] = corner


@compiled
def iterate(
    paid: Singles,
    kept: Singles,
    cells: Places,
    parts: Singles,
    strides: Ints,
    sweeps: int,
    precision: float,
    values: Singles,
    best: Singles,
) -> int:
    """Value iteration on a grid, in place: ``best`` (n, A) are the values of actions in the end.

    Actions pay ``paid`` (n, A) and lead to states whose values count ``kept`` (n, A), zero where
    the episode ends; these are in ``cells`` at ``parts``. Returned is how many sweeps there were.
    """
    n, A = paid.shape
    D = len(strides)
    corners = 1 << D
    steps = np.empty(corners, dtype=np.int64)
    for c in range(corners):
        steps[c] = 0
        for i in range(D):
            if (c >> i) & 1:
                steps[c] += strides[i]
    shares = np.empty(corners, dtype=np.float32)
    for sweep in range(sweeps):
        change = 0.0
        for turn in range(n):
            at = turn if sweep % 2 == 0 else n - 1 - turn
            largest = -np.inf
            for a in range(A):
                value = paid[at, a]
                if kept[at, a] > 0.0:
                    shares[0] = 1.0
                    found = 1
                    for i in range(D):
                        part = parts[at, a, i]
                        for k in range(found):
                            shares[found + k] = shares[k] * part
                            shares[k] *= np.float32(1.0) - part
                        found *= 2
                    ahead = np.float32(0.0)
                    corner = cells[at, a]
                    for c in range(corners):
                        ahead += shares[c] * values[corner + steps[c]]
                    value += kept[at, a] * ahead
                best[at, a] = value
                if value > largest:
                    largest = value
            change = max(change, abs(largest - values[at]))
            values[at] = largest
        if change < precision:
            return sweep + 1
    return sweeps
