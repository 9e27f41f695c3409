"""Compiled inner loops of the tabular family."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.finite_kernels import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def count_visits(
    states: Ints,
    actions: Ints,
    rewards: Floats,
    admitted: NDArray[np.bool_],
    cells: Ints,
    cap: int,
    separate: bool,
    transitions: Floats,
    sums: Floats,
    visits: Floats,
) -> None:
    """Adds users' valid steps to ``transitions`` (rows, C, S), ``sums`` and ``visits`` (rows, C).

    Row 0 takes everybody, or each user her own row when ``separate``. ``cells`` (H, S, A) is the
    cell of a step, negative where it is dropped; only the first ``cap`` steps of a user in a cell
    count. Invalid states and actions are negative or too large, invalid rewards are NaN.
    """
    users, horizon = actions.shape
    n_states, n_actions = cells.shape[1], cells.shape[2]
    seen = np.zeros(sums.shape[1], dtype=np.int64)
    for user in range(users):
        if not admitted[user]:
            continue
        row = user if separate else 0
        for step in range(horizon):
            state, action = states[user, step], actions[user, step]
            after, reward = states[user, step + 1], rewards[user, step]
            if state < 0 or state >= n_states or after < 0 or after >= n_states:
                continue
            if action < 0 or action >= n_actions or np.isnan(reward):
                continue
            cell = cells[step, state, action]
            if cell < 0 or seen[cell] >= cap:
                continue
            seen[cell] += 1
            transitions[row, cell, after] += 1.0
            sums[row, cell] += reward
            visits[row, cell] += 1.0
        for step in range(horizon):
            state, action = states[user, step], actions[user, step]
            if (
                0 <= state < n_states
                and 0 <= action < n_actions
                and cells[step, state, action] >= 0
            ):
                seen[cells[step, state, action]] = 0


@compiled
def project(counts: Floats, known: NDArray[np.bool_], out: Floats) -> None:
    """Rows of noisy counts (R, S) to the nearest distributions; uniform where not known.

    The nearest point with the same sum and no negative entry: subtract one number from all, cut
    at zero. Dividing by the sum gives the probabilities.
    """
    rows, states = counts.shape
    for row in range(rows):
        total = 0.0
        for state in range(states):
            total += counts[row, state]
        if not known[row] or total <= 0.0:
            out[row] = 1.0 / states
            continue
        lowest = counts[row].min()
        if lowest >= 0.0:
            out[row] = counts[row] / total
            continue
        ordered = np.sort(counts[row])[::-1]
        running, threshold = 0.0, 0.0
        for k in range(states):
            running += ordered[k]
            level = (running - total) / (k + 1)
            if ordered[k] > level:
                threshold = level
        for state in range(states):
            out[row, state] = max(counts[row, state] - threshold, 0.0) / total


@compiled
def plan(
    probabilities: Floats,
    rewards: Floats,
    counts: Floats,
    known: NDArray[np.bool_],
    noise: Floats,
    reward_noise: Floats,
    horizon: int,
    sampling: float,
    privacy: float,
    range_term: float,
    ties: Floats,
    q_values: Floats,
    bonuses: Floats,
    actions: Ints,
    greedy: Ints,
) -> None:
    """Optimistic and greedy backward induction; see :mod:`tacit.tabular.ucbvi` for the bonus.

    ``probabilities`` (L, S, A, S), ``rewards``, ``counts`` (lowered), ``noise`` (L, S, A), L = 1 or
    H; ``ties`` (H, S, A) are small random numbers that decide between equal actions.
    """
    n_states, n_actions = counts.shape[1], counts.shape[2]
    last = counts.shape[0] - 1
    value = np.zeros(n_states)
    plain = np.zeros(n_states)
    next_value = np.zeros(n_states)
    next_plain = np.zeros(n_states)
    for step in range(horizon - 1, -1, -1):
        at = min(step, last)
        left = float(horizon - step)
        for state in range(n_states):
            best, best_tie, best_action = -1.0, -1.0, 0
            best_plain, plain_tie, plain_action = -1.0, -1.0, 0
            for action in range(n_actions):
                row = probabilities[at, state, action]
                mean, square, mean_plain = 0.0, 0.0, 0.0
                support, values, squares = 0, 0.0, 0.0
                for after in range(n_states):
                    if row[after] > 0.0:
                        mean += row[after] * value[after]
                        square += row[after] * value[after] ** 2
                        mean_plain += row[after] * plain[after]
                        support += 1
                        values += value[after]
                        squares += value[after] ** 2
                # Sum over the support of (value - mean)^2: noise elsewhere was projected away.
                spread = max(squares - 2.0 * mean * values + support * mean * mean, 0.0)
                reward = rewards[at, state, action]
                q, bonus = left, left
                if known[at, state, action]:
                    n = counts[at, state, action]
                    variance = max(square - mean * mean, 0.0)
                    private = (
                        noise[at, state, action] ** 2 * spread
                        + reward_noise[at, state, action] ** 2
                    )
                    bonus = sampling * np.sqrt(variance / n + privacy**2 * private / n**2)
                    bonus += range_term * left / n
                    q = min(reward + mean + bonus, left)
                q_values[step, state, action] = q
                bonuses[step, state, action] = bonus
                tie = ties[step, state, action]
                if q > best or (q == best and tie > best_tie):
                    best, best_tie, best_action = q, tie, action
                exact = min(reward + mean_plain, left)
                if exact > best_plain or (exact == best_plain and tie > plain_tie):
                    best_plain, plain_tie, plain_action = exact, tie, action
            next_value[state], actions[step, state] = best, best_action
            next_plain[state], greedy[step, state] = best_plain, plain_action
        value[:] = next_value
        plain[:] = next_plain
