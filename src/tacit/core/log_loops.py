"""The compiled loop that lays the entries of a log out as tables of steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
    unreadable: int,
    given: NDArray[np.uint8],
    states: Ints,
    actions: Ints,
    rewards: Floats,
) -> None:
    """Fills ``states`` (n, H + 1), ``actions`` and ``rewards`` (n, H), in which all is missing.

    ``given`` (n, H) counts the entries of each step, from 0. A step that is given twice says
    nothing. ``next_state`` is empty where it is that of the next step.
    """
    horizon = actions.shape[1]
    for i in range(len(rows)):
        row, step = rows[i], steps[i]
        if 0 <= step < horizon and step <= ends[row] and given[row, step] < 2:
            given[row, step] += 1
    for i in range(len(rows)):
        row, step = rows[i], steps[i]
        if not (0 <= step < horizon and step <= ends[row]):
            continue
        if given[row, step] > 1:
            actions[row, step] = unreadable
            continue
        states[row, step] = state[i]
        actions[row, step] = action[i]
        rewards[row, step] = reward[i]
    for i in range(len(next_state)):
        row, step = rows[i], steps[i]
        if not (0 <= step < horizon and step <= ends[row]) or given[row, step] > 1:
            continue
        seen = step + 1 < horizon and given[row, step + 1] == 1
        if not seen:
            states[row, step + 1] = next_state[i]
        elif states[row, step + 1] != next_state[i]:
            states[row, step + 1] = unreadable
