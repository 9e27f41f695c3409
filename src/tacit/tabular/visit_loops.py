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
