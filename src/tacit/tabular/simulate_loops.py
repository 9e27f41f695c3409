"""Compiled inner loops for finite worlds. Imported only where they run: numba is slow to load."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, Ints, compiled

# Below this many entries a scan from the largest probability down beats a binary search.
_SCAN = 24
# A number that is no constant to the compiler, which would compile for it alone.
_FIRST = cast(int, np.int64(0))


@compiled
def draw(rng: Generator, cumulative: Floats, base: int, width: int) -> int:
    """Draws from one row, ``base`` to ``base + width``, of flat cumulative probabilities.

    A row reaches exactly 1 at its last possible outcome, so the search ends there at the latest.
    A sure outcome takes no random number.
    """
    if cumulative[base] >= 1.0:
        return 0
    u = rng.random()
    if width <= _SCAN:
        at = base
        while u >= cumulative[at]:
            at += 1
        return at - base
    low, high = base, base + width - 1
    while low < high:
        middle = (low + high) // 2
        if u < cumulative[middle]:
            high = middle
        else:
            low = middle + 1
    return low - base


@compiled
def roll_out(
    rng: Generator,
    start_states: NDArray[np.int32],
    start: Floats,
    successors: NDArray[np.int32],
    moves: Floats,
    rewards: Floats,
    reward_values: Floats,
    deterministic: bool,
    actions: Ints,
    choices: Floats,
    components: Ints,
    out_states: Ints,
    out_actions: Ints,
    out_rewards: Floats,
) -> None:
    """Simulates users one by one into the three ``out`` arrays.

    ``actions`` and ``choices`` have an axis of components in front, of which ``components`` has
    that of every user, or one for all. ``start``, ``moves``, ``rewards`` and ``choices`` are
    cumulative probabilities along the last axis. They are indexed flat, which is a fifth faster
    than by rows.
    """
    users, horizon = out_actions.shape
    moving_steps, states, n_actions, width = moves.shape
    paying_steps, levels = rewards.shape[0], rewards.shape[3]
    flat_moves, flat_successors = moves.reshape(-1), successors.reshape(-1)
    flat_rewards, flat_choices = rewards.reshape(-1), choices.reshape(-1)
    for user in range(users):
        component = components[user] if len(components) > 1 else components[0]
        state = np.int64(start_states[draw(rng, start, _FIRST, len(start))])
        out_states[user, 0] = state
        for step in range(horizon):
            if deterministic:
                action = actions[component, step, state]
            else:
                row = ((component * horizon + step) * states + state) * n_actions
                action = np.int64(draw(rng, flat_choices, row, n_actions))
            pair = state * n_actions + action
            row = (min(step, paying_steps - 1) * states * n_actions + pair) * levels
            out_actions[user, step] = action
            out_rewards[user, step] = reward_values[draw(rng, flat_rewards, row, levels)]
            row = (min(step, moving_steps - 1) * states * n_actions + pair) * width
            state = np.int64(flat_successors[row + draw(rng, flat_moves, row, width)])
            out_states[user, step + 1] = state


@compiled
def roll_out_sparse(
    rng: Generator,
    start_states: NDArray[np.int32],
    start: Floats,
    begins: Ints,
    ends: Ints,
    targets: Ints,
    moves: Floats,
    rewards: Floats,
    deterministic: bool,
    actions: Ints,
    choices: Floats,
    components: Ints,
    out_states: Ints,
    out_actions: Ints,
    out_rewards: Floats,
) -> None:
    """As :func:`roll_out`, where only possible transitions are stored.

    Those of (s, a) are the entries from ``begins[s, a]`` to ``ends[s, a]`` of ``targets``,
    ``moves`` (cumulative) and ``rewards``.
    """
    users, horizon = out_actions.shape
    states, n_actions = begins.shape
    flat_choices = choices.reshape(-1)
    for user in range(users):
        component = components[user] if len(components) > 1 else components[0]
        state = np.int64(start_states[draw(rng, start, _FIRST, len(start))])
        out_states[user, 0] = state
        for step in range(horizon):
            if deterministic:
                action = actions[component, step, state]
            else:
                row = ((component * horizon + step) * states + state) * n_actions
                action = np.int64(draw(rng, flat_choices, row, n_actions))
            first = begins[state, action]
            at = first + draw(rng, moves, first, ends[state, action] - first)
            out_actions[user, step] = action
            out_rewards[user, step] = rewards[at]
            state = targets[at]
            out_states[user, step + 1] = state


@compiled
def _split(rng: Generator, count: int, conditional: Floats, out: Ints) -> None:
    """A multinomial as a chain of binomials; ``conditional`` is 1 at the last possible outcome."""
    out[:] = 0
    left = count
    for k in range(len(conditional)):
        if left == 0:
            return
        p = conditional[k]
        drawn = left if p >= 1.0 else rng.binomial(left, p)
        out[k] = drawn
        left -= drawn


@compiled
def count_moves(
    rng: Generator,
    users: int,
    start_states: NDArray[np.int32],
    start: Floats,
    successors: NDArray[np.int32],
    moves: Floats,
    deterministic: bool,
    actions: Ints,
    choices: Floats,
    visits: Ints,
    transitions: Ints,
) -> None:
    """Adds a block's visits, (H, S, A), and transitions, (H or 1, S, A, S), to zeros.

    ``start``, ``moves`` and ``choices`` are probabilities given that no earlier outcome occurred.
    """
    horizon, states, n_actions = visits.shape
    last_move, last_row = moves.shape[0] - 1, transitions.shape[0] - 1
    here, there = np.zeros(states, dtype=np.int64), np.zeros(states, dtype=np.int64)
    split = np.zeros(max(states, n_actions), dtype=np.int64)
    started = split[: len(start)]
    _split(rng, users, start, started)
    for k in range(len(start)):
        here[start_states[k]] += started[k]
    moved = np.zeros(moves.shape[3], dtype=np.int64)
    for step in range(horizon):
        there[:] = 0
        for state in range(states):
            if here[state] == 0:
                continue
            first, end = np.int64(0), np.int64(n_actions)
            if deterministic:
                first = actions[step, state]
                end = first + 1
                visits[step, state, first] = here[state]
            else:
                _split(rng, here[state], choices[step, state], visits[step, state])
            for action in range(first, end):
                count = visits[step, state, action]
                if count == 0:
                    continue
                at = min(step, last_move)
                _split(rng, count, moves[at, state, action], moved)
                into = transitions[min(step, last_row), state, action]
                for k in range(len(moved)):
                    if moved[k] > 0:
                        into[successors[at, state, action, k]] += moved[k]
                        there[successors[at, state, action, k]] += moved[k]
        here, there = there, here


@compiled
def sum_rewards(
    rng: Generator, visits: Ints, rewards: Floats, reward_values: Floats, sums: Floats
) -> None:
    """Adds the rewards of visits, (steps, S, A), to ``sums``, (steps or 1, S, A)."""
    steps, states, n_actions = visits.shape
    last_reward, last_row = rewards.shape[0] - 1, sums.shape[0] - 1
    split = np.zeros(len(reward_values), dtype=np.int64)
    for step in range(steps):
        for state in range(states):
            for action in range(n_actions):
                if visits[step, state, action] == 0:
                    continue
                row = rewards[min(step, last_reward), state, action]
                _split(rng, visits[step, state, action], row, split)
                for k in range(len(split)):
                    sums[min(step, last_row), state, action] += split[k] * reward_values[k]
