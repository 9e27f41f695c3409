"""The compiled loop that sums what users got from their first visits on."""

from __future__ import annotations

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled


@compiled
def sum_returns(
    states: Ints,
    actions: Ints,
    rewards: Floats,
    cells: Ints,
    centre: Floats,
    trace: float,
    first: int,
    most: float,
    length: float,
    separate: bool,
    sums: Floats,
    visits: Floats,
) -> None:
    """Adds users to ``sums`` and ``visits``, (rows, C); see :class:`ReturnSums` for what is added.

    Row 0 takes everybody, or each user her own row when ``separate``. ``cells`` (1 or H, S, A) is
    the cell of a step, negative where it has none; ``centre`` is (H, S). Invalid states and actions
    are negative or too large, invalid rewards are NaN.
    """
    users, horizon = actions.shape
    last, n_states, n_actions = cells.shape[0] - 1, cells.shape[1], cells.shape[2]
    seen = np.zeros(sums.shape[1], dtype=np.bool_)
    residuals = np.zeros(horizon)
    kept, entries = np.zeros(first, dtype=np.int64), np.zeros(first)
    for user in range(users):
        steps = 0
        while steps < horizon:
            state, action = states[user, steps], actions[user, steps]
            after, reward = states[user, steps + 1], rewards[user, steps]
            if state < 0 or state >= n_states or after < 0 or after >= n_states:
                break
            if action < 0 or action >= n_actions or np.isnan(reward):
                break
            steps += 1
        gained = 0.0
        for step in range(steps - 1, -1, -1):
            ahead = centre[step + 1, states[user, step + 1]] if step + 1 < steps else 0.0
            here = rewards[user, step] + ahead - centre[step, states[user, step]]
            gained = here + trace * gained
            residuals[step] = gained
        count, square = 0, 0.0
        for step in range(steps):
            cell = cells[min(step, last), states[user, step], actions[user, step]]
            if cell < 0 or seen[cell]:
                continue
            if count == first:
                break
            seen[cell] = True
            kept[count] = cell
            entries[count] = min(max(residuals[step], -most), most)
            square += entries[count] ** 2
            count += 1
        factor = length / np.sqrt(square) if square > length * length else 1.0
        row = user if separate else 0
        for i in range(count):
            sums[row, kept[i]] += factor * entries[i]
            visits[row, kept[i]] += 1.0
            seen[kept[i]] = False
