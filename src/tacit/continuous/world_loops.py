"""Compiled loops of simulated users. Imported where they run: numba is slow to load."""

from __future__ import annotations

import math

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled

REACH = 0.25
"""The longest move along a coordinate of the box."""


@compiled
def best_on_grid(
    numbers: Floats, table: Ints, weights: Floats, preference: Ints, states: Floats, out: Ints
) -> None:
    """The best actions in states by values on a grid, the first in the preference among equals.

    Numbers and table are those of ``Grid.for_loops``; weights are transposed, (m, A).
    """
    users, D = states.shape
    # The corners of a state's cell: their weights and which points they are.
    shares, corners = np.empty(1 << D), np.empty(1 << D, dtype=np.int64)
    for n in range(users):
        shares[0], corners[0] = 1.0, 0
        found = 1
        for i in range(D):
            if not math.isfinite(states[n, i]):
                found = 0
                break
            low, high = numbers[0, i], numbers[1, i]
            position = (min(max(states[n, i], low), high) - low) * numbers[2, i]
            cell = min(int(position), table[i, 0] - 2)
            part = min(position - cell, 1.0)
            for k in range(found):
                corners[found + k] = corners[k] + (cell + 1) * table[i, 1]
                shares[found + k] = shares[k] * part
                corners[k] += cell * table[i, 1]
                shares[k] *= 1.0 - part
            found *= 2
        best, largest = preference[0], -np.inf
        for a in preference:
            value = 0.0
            for k in range(found):
                value += shares[k] * weights[corners[k], a]
            if value > largest:
                best, largest = a, value
        out[n] = best


@compiled
def hold(
    coins: Floats, actions: int, explorers: float, bursts: float, holds: int, tries: Ints
) -> None:
    """Actions that users (columns) try at steps (rows); where they are greedy, none is written."""
    horizon, users = coins.shape
    for n in range(users):
        # Digits of the first number that the first step hardly looks at.
        own = (coins[0, n] * 4096.0) % 1.0
        explores = own < explorers
        scale = 2.0 ** int((own * 4096.0) % 1.0 * holds)
        chance = 1.0 if explores else bursts / scale
        step = 0
        while step < horizon:
            coin = coins[step, n]
            if coin >= chance:
                step += 1
                continue
            part = coin / chance * actions
            action = min(int(part), actions - 1)
            # How long: geometric, by what is left of the number.
            left = min(max(part - action, 0.0), 1.0 - 1e-9)
            last = min(step + 1 + int(-scale * math.log(1.0 - left)), horizon)
            while step < last:
                tries[step, n] = action
                step += 1


@compiled
def move(states: Floats, actions: Ints, sizes: Floats) -> None:
    """One step of users, in place: action 2 i takes coordinate i down, 2 i + 1 takes it up."""
    for n in range(len(states)):
        i = actions[n] // 2
        size = REACH * sizes[n] if actions[n] % 2 else -REACH * sizes[n]
        states[n, i] = min(max(states[n, i] + size, 0.0), 1.0)


@compiled
def add_up(paid: Floats, sums: Floats) -> None:
    """Integrals of a function from 0 to each point of a line, in cells, by the trapezoidal rule."""
    sums[0] = 0.0
    for k in range(1, len(paid)):
        sums[k] = sums[k - 1] + 0.5 * (paid[k - 1] + paid[k])


@compiled
def line_value(rewards: Floats, chances: Floats, best: bool, horizon: int) -> float:
    """The expected return on the line from a uniform start, or the ``best`` of any policy.

    Rewards and chances of both actions are at n + 1 points of [0, 1]. n must be divisible by 4, so
    that a longest move is a whole number of cells; moves end at the ends of the line.
    """
    n = len(rewards) - 1
    reach = n // 4
    share = 1.0 / reach  # the probability that a move ends in any one cell
    values, paid, sums = np.zeros(n + 1), np.empty(n + 1), np.empty(n + 1)
    for _ in range(horizon):
        for k in range(n + 1):
            paid[k] = rewards[k] + values[k]
        add_up(paid, sums)
        for k in range(n + 1):
            low, high = max(k - reach, 0), min(k + reach, n)
            down = share * (sums[k] - sums[low] + (reach - (k - low)) * paid[0])
            up = share * (sums[high] - sums[k] + (reach - (high - k)) * paid[n])
            values[k] = max(down, up) if best else chances[0, k] * down + chances[1, k] * up
    add_up(values, sums)
    return float(sums[n] / n)
