"""Compiled loops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, Ints, compiled, inner


@inner
def _place(cumulative: Floats, u: float) -> int:
    """The first entry above u, or the last one."""
    low, high = 0, len(cumulative) - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] <= u:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def walk(
    rng: np.random.Generator,
    start: Floats,
    moves: Floats,
    policies: Ints,
    components: Ints,
    path: Ints,
) -> None:
    """Paths (n, H) through a model, as numbers of cells: (step or 0, state, action), flat.

    ``start`` (S,) and ``moves`` (L, S, A, S) are cumulative.
    """
    n_states, n_actions = moves.shape[1], moves.shape[2]
    first = path.shape[1] - moves.shape[0]
    for user in range(path.shape[0]):
        state = _place(start, rng.random())
        for step in range(path.shape[1]):
            action = policies[components[user], step, state]
            at = max(step - first, 0)
            path[user, step] = (at * n_states + state) * n_actions + action
            state = _place(moves[at, state, action], rng.random())


@compiled
def count_paths(path: Ints, wanted: NDArray[np.bool_], most: int, visits: Floats) -> None:
    """Adds the first visits that would count of users on these paths, as numbers of cells."""
    seen = np.zeros(len(visits), dtype=np.int64)  # by whom last, from 1
    for user in range(path.shape[0]):
        counted = 0
        for step in range(path.shape[1]):
            cell = path[user, step]
            if not wanted[cell] or seen[cell] == user + 1:
                continue
            seen[cell] = user + 1
            visits[cell] += 1.0
            counted += 1
            if counted == most:
                break


@compiled
def best_actions(transitions: Floats, rewards: Floats, ties: Floats, actions: Ints) -> Floats:
    """Backward induction: fills ``actions`` (H, S) and returns the values of the first step.

    ``transitions`` (L, S, A, S) may lack mass, which is worth nothing; ``rewards`` are (L, S, A),
    of the last L steps, the first of which stands for all before it. No value is larger than the
    number of steps left. Of equal actions that with the largest of ``ties`` (S, A) is taken.
    """
    horizon, n_states = actions.shape
    n_actions, first = transitions.shape[2], horizon - transitions.shape[0]
    value, before = np.zeros(n_states), np.zeros(n_states)
    for step in range(horizon - 1, -1, -1):
        at, steps = max(step - first, 0), float(horizon - step)
        for state in range(n_states):
            best, best_tie = -1.0, -1.0
            for action in range(n_actions):
                q = rewards[at, state, action]
                for after in range(n_states):
                    q += transitions[at, state, action, after] * value[after]
                q = min(q, steps)
                tie = ties[state, action]
                if q > best + 1e-9 or (q > best - 1e-9 and tie > best_tie):
                    best, best_tie = max(q, best), tie
                    actions[step, state] = action
            before[state] = best
        value, before = before, value
    return value


@compiled
def value_of(transitions: Floats, rewards: Floats, actions: Ints) -> Floats:
    """The values of a policy at the first step, in the world of :func:`best_actions`."""
    horizon, n_states = actions.shape
    first = horizon - transitions.shape[0]
    value, before = np.zeros(n_states), np.zeros(n_states)
    for step in range(horizon - 1, -1, -1):
        at, steps = max(step - first, 0), float(horizon - step)
        for state in range(n_states):
            action = actions[step, state]
            q = rewards[at, state, action]
            for after in range(n_states):
                q += transitions[at, state, action, after] * value[after]
            before[state] = min(q, steps)
        value, before = before, value
    return value


@compiled
def occupancy(transitions: Floats, start: Floats, actions: Ints, visits: Floats) -> None:
    """Adds the expected visits of a policy to ``visits`` (L, S, A)."""
    horizon, n_states = actions.shape
    first = horizon - transitions.shape[0]
    here = start.copy()
    for step in range(horizon):
        at, after = max(step - first, 0), np.zeros(n_states)
        for state in range(n_states):
            if here[state] > 0.0:
                action = actions[step, state]
                visits[at, state, action] += here[state]
                for there in range(n_states):
                    after[there] += here[state] * transitions[at, state, action, there]
        here = after
