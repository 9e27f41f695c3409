"""Compiled loops."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, Ints, compiled, inner


@inner
def _place(cumulative: Floats, u: float) -> int:
    """The first entry above u, or the last one."""
    return min(int(np.searchsorted(cumulative, u, side="right")), len(cumulative) - 1)


@compiled
def walk(
    rng: Generator, start: Floats, moves: Floats, policies: Ints, components: Ints, path: Ints
) -> None:
    """Paths (n, H) through a model, as numbers of cells: (step or 0, state, action), flat.

    ``start`` (S,) and ``moves`` (L, S, A, S) are cumulative.
    """
    n_states, n_actions, first = moves.shape[1], moves.shape[2], path.shape[1] - moves.shape[0]
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
def best_actions(
    transitions: Floats, rewards: Floats, ties: Floats, fixed: bool, actions: Ints
) -> Floats:
    """Backward induction: fills ``actions`` (H, S) and returns the values of the first step.

    ``transitions`` (L, S, A, S) may lack mass, which is worth nothing; ``rewards`` are (L, S, A),
    of the last L steps, the first of which stands for all before it. No value is larger than the
    number of steps left. Of equal actions that with the largest of ``ties`` (S, A) is taken; if
    they are ``fixed``, values are those of the given ones.
    """
    horizon, n_states = actions.shape
    n_actions, first = transitions.shape[2], horizon - transitions.shape[0]
    value, before = np.zeros(n_states), np.zeros(n_states)
    for step in range(horizon - 1, -1, -1):
        at, steps = max(step - first, 0), float(horizon - step)
        for state in range(n_states):
            best, best_tie, given = -1.0, -1.0, actions[step, state]
            for action in range(n_actions):
                if fixed and action != given:
                    continue
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
    all users, or each has her own row when ``separate``. Invalid states are negative or too large,
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
