"""Compiled loops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, Ints, compiled


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
) -> None:
    """Adds users' valid steps to ``transitions`` (rows, C, S) and ``sums`` (rows, C).

    Row 0 takes everybody, or each user her own row when ``separate``. ``cells`` (H, S, A) is the
    cell of a step, negative where it is dropped; only the first ``cap`` steps of a user in a cell
    count. Invalid states and actions are negative or too large, invalid rewards are NaN.
    """
    users, horizon = actions.shape
    n_states, n_actions = cells.shape[1], cells.shape[2]
    seen = np.zeros(sums.shape[1], dtype=np.int64)
    capped = cap < horizon
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
            if cell < 0:
                continue
            if capped:
                if seen[cell] >= cap:
                    continue
                seen[cell] += 1
            transitions[row, cell, after] += 1.0
            sums[row, cell] += reward
        for step in range(horizon if capped else 0):
            state, action = states[user, step], actions[user, step]
            if 0 <= state < n_states and 0 <= action < n_actions:
                cell = cells[step, state, action]
                if cell >= 0:
                    seen[cell] = 0


@compiled
def count_first_visits(
    states: Ints,
    actions: Ints,
    rewards: Floats,
    admitted: NDArray[np.bool_],
    components: Ints,
    wanted: NDArray[np.bool_],
    most: int,
    whole: bool,
    separate: bool,
    transitions: Floats,
    sums: Floats,
    first_paid: Floats,
) -> None:
    """Adds users' first visits to ``transitions`` (rows, L, S, A, S) and ``sums`` (rows, L, S, A).

    And the cells where they were paid first to ``first_paid``, or all of their visits and no cells
    if ``whole``. ``wanted`` (components or 1, L, S, A) says which cells count of whom. Row 0 takes
    everybody, or each user her own row when ``separate``. Invalid states are negative or too large,
    actions that do not count negative, invalid rewards NaN.
    """
    users, horizon = actions.shape
    n_sets, n_steps, n_states, n_actions = wanted.shape
    seen = np.full((n_steps, n_states, n_actions), -1, dtype=np.int64)
    for user in range(users):
        if not admitted[user]:
            continue
        row = user if separate else 0
        asked = wanted[min(components[user], n_sets - 1)]
        counted, paid = 0, whole
        for step in range(horizon):
            if counted == most and paid:
                break
            state, action = states[user, step], actions[user, step]
            after, reward = states[user, step + 1], rewards[user, step]
            if state < 0 or state >= n_states or after < 0 or after >= n_states:
                continue
            if action < 0 or action >= n_actions or np.isnan(reward):
                continue
            at = max(step - (horizon - n_steps), 0)
            if reward > 0.0 and not paid:
                paid = True
                first_paid[row, at, state, action] += 1.0
            if counted == most or not asked[at, state, action]:
                continue
            if seen[at, state, action] == user and not whole:
                continue
            seen[at, state, action] = user
            counted += 1
            transitions[row, at, state, action, after] += 1.0
            sums[row, at, state, action] += reward
