"""The compiled loop that lays the entries of a log out as tables of steps."""

from __future__ import annotations

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled


@compiled
def lay_out(
    rows: Ints,
    steps: Ints,
    ends: Ints,
    state: Ints,
    action: Ints,
    reward: Floats,
    next_state: Ints,
    missing: int,
    unreadable: int,
    states: Ints,
    actions: Ints,
    rewards: Floats,
) -> None:
    """Fills ``states`` (n, H + 1), ``actions`` and ``rewards`` (n, H) row by row.

    The entries of a row are neighbours. A step that is given twice says nothing. ``next_state`` is
    empty where it is that of the next step, also after the last one.
    """
    horizon, total = actions.shape[1], len(rows)
    given = np.zeros(horizon, dtype=np.uint8)
    start = 0
    while start < total:
        row, stop = rows[start], start + 1
        while stop < total and rows[stop] == row:
            stop += 1
        last = min(horizon - 1, ends[row])
        for step in range(horizon):
            given[step] = 0
            states[row, step] = missing
            actions[row, step] = missing
            rewards[row, step] = np.nan
        states[row, horizon] = missing
        for i in range(start, stop):
            step = steps[i]
            if step < 0 or step > last:
                continue
            if given[step]:
                given[step] = 2
                states[row, step] = missing
                actions[row, step] = unreadable
                rewards[row, step] = np.nan
                continue
            given[step] = 1
            states[row, step] = state[i]
            actions[row, step] = action[i]
            rewards[row, step] = reward[i]
        if not len(next_state) and ends[row] >= horizon:
            beyond = 0
            for i in range(start, stop):
                if steps[i] == horizon:
                    beyond += 1
                    states[row, horizon] = state[i] if beyond == 1 else missing
        if len(next_state):
            for i in range(start, stop):
                step = steps[i]
                if step < 0 or step > last or given[step] > 1:
                    continue
                if step + 1 >= horizon or given[step + 1] != 1:
                    states[row, step + 1] = next_state[i]
                elif states[row, step + 1] != next_state[i]:
                    states[row, step + 1] = unreadable
        start = stop
