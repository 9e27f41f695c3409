"""The compiled loop in which an agent plans after every user; see the module of closed loops.

Cells are ordered by action, then state, and labels of actions are the world's own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.finite.simulate_loops import roll_out
from tacit.numerics.compiled import Floats, Ints, compiled, fused

Actions = NDArray[np.int16]

# Once more than one next state in so many was seen, whole rows are faster than lists.
_DENSE = 6


@fused
def _moments(
    table: Floats,
    value: Floats,
    square: Floats,
    plain: Floats,
    mean: Floats,
    second: Floats,
    mean_plain: Floats,
) -> None:
    """Expectations of three functions of the next state, by cell, from ``table`` (S, cells).

    Four states at a time, so that the sums are loaded and stored less often.
    """
    states, cells = table.shape
    mean[:] = 0.0
    second[:] = 0.0
    mean_plain[:] = 0.0
    whole = states - states % 4
    for j in range(0, whole, 4):
        v0, v1, v2, v3 = value[j], value[j + 1], value[j + 2], value[j + 3]
        w0, w1, w2, w3 = square[j], square[j + 1], square[j + 2], square[j + 3]
        g0, g1, g2, g3 = plain[j], plain[j + 1], plain[j + 2], plain[j + 3]
        for c in range(cells):
            p0, p1, p2, p3 = table[j, c], table[j + 1, c], table[j + 2, c], table[j + 3, c]
            mean[c] = mean[c] + p0 * v0 + p1 * v1 + p2 * v2 + p3 * v3
            second[c] = second[c] + p0 * w0 + p1 * w1 + p2 * w2 + p3 * w3
            mean_plain[c] = mean_plain[c] + p0 * g0 + p1 * g1 + p2 * g2 + p3 * g3
    for j in range(whole, states):
        for c in range(cells):
            mean[c] += table[j, c] * value[j]
            second[c] += table[j, c] * square[j]
            mean_plain[c] += table[j, c] * plain[j]


@fused
def _listed_moments(
    begin: Ints,
    index: NDArray[np.uint32],
    probability: Floats,
    value: Floats,
    square: Floats,
    plain: Floats,
    mean: Floats,
    second: Floats,
    mean_plain: Floats,
) -> None:
    """The same from lists of the next states that were seen; ``begin`` (cells + 1,) says where."""
    for c in range(len(begin) - 1):
        x, y, z = 0.0, 0.0, 0.0
        for i in range(begin[c], begin[c + 1]):
            # Unsigned: for numba, other indices may be negative and count from the end.
            p, j = probability[np.uint64(i)], np.uint64(index[np.uint64(i)])
            x += p * value[j]
            y += p * square[j]
            z += p * plain[j]
        mean[c], second[c], mean_plain[c] = x, y, z


@compiled
def _best(rng: np.random.Generator, q_values: Floats, value: Floats, actions: Actions) -> None:
    """The best of ``q_values`` (A, S), and any best action; there are no branches until a tie."""
    n_actions, states = q_values.shape
    for s in range(states):
        value[s] = q_values[0, s]
        actions[s] = 0
    for a in range(1, n_actions):
        for s in range(states):
            actions[s] = a if q_values[a, s] > value[s] else actions[s]
            value[s] = max(value[s], q_values[a, s])
    equal = 0
    for a in range(n_actions):
        for s in range(states):
            equal += q_values[a, s] == value[s]
    if equal == states:
        return
    for s in range(states):
        ties = 0
        for a in range(n_actions):
            ties += q_values[a, s] == value[s]
        if ties == 1:
            continue
        chosen = int(rng.random() * ties)
        for a in range(n_actions):
            if q_values[a, s] == value[s]:
                if chosen == 0:
                    actions[s] = a
                chosen -= 1


@compiled
def serve(
    rng: np.random.Generator,
    ties: np.random.Generator,
    start_states: NDArray[np.int32],
    start: Floats,
    successors: NDArray[np.int32],
    moves: Floats,
    rewards: Floats,
    reward_values: Floats,
    by_transition: bool,
    transition_rewards: Floats,
    sampling: float,
    range_term: float,
    room: int,
    counts: Floats,
    sums: Floats,
    reached: NDArray[np.bool_],
    policies: Actions,
    greedy: Actions,
) -> None:
    """Serves n users, with a plan between any two of them.

    Plans are those of :func:`tacit.tabular.plan_loops.plan`.

    The bonus of a cell is ``sampling`` sqrt(variance / n) + ``range_term`` (steps left) / n, and an
    unknown cell is worth the steps left. The first arrays are those of :func:`roll_out`.

    ``counts`` (L, A S, S) and ``sums`` (L, A S), of rewards, grow; ``reached`` (L, A S) is set
    where a policy of these users acts. ``policies`` and ``greedy`` (n, H, S) come with the first
    user's and leave with everybody's. ``room`` is that of a cell's list of next states, in which
    estimates are kept until there are so many of them that whole rows are faster.
    """
    users, horizon, n_states = policies.shape
    steps, cells = sums.shape
    n_actions = cells // n_states
    n = np.zeros((steps, cells))
    mean_reward = np.zeros((steps, cells))
    width = np.zeros((steps, cells))
    range_width = np.zeros((steps, cells))
    unknown = np.ones((steps, cells))
    dense, seen = False, 0
    table = np.zeros((0, 0, 0))
    size = np.zeros((steps, cells), dtype=np.int64)
    index = np.zeros((steps, cells, room), dtype=np.uint32)
    probability = np.zeros((steps, cells, room))
    begin = np.zeros((steps, cells + 1), dtype=np.int64)
    indices = np.zeros(index.size, dtype=np.uint32)
    chances = np.zeros(index.size)
    value, square, plain = np.zeros(n_states), np.zeros(n_states), np.zeros(n_states)
    mean, second, mean_plain = np.zeros(cells), np.zeros(cells), np.zeros(cells)
    q_values, plain_values = np.zeros((n_actions, n_states)), np.zeros((n_actions, n_states))
    q, plain_q = q_values.reshape(-1), plain_values.reshape(-1)
    actions = np.zeros((horizon, n_states), dtype=np.int64)
    no_choices = np.zeros((1, 1, 1))
    states = np.zeros((1, horizon + 1), dtype=np.int64)
    taken = np.zeros((1, horizon), dtype=np.int64)
    paid = np.zeros((1, horizon))
    one_component = np.zeros(1, dtype=np.int64)
    for at in range(steps):
        for c in range(cells):
            for j in range(n_states):
                if counts[at, c, j] > 0.0:
                    n[at, c] += counts[at, c, j]
                    index[at, c, size[at, c]] = j
                    size[at, c] += 1
                    seen += 1
    for k in range(users):
        for h in range(horizon):
            at = min(h, steps - 1)
            for s in range(n_states):
                actions[h, s] = policies[k, h, s]
                reached[at, policies[k, h, s] * n_states + s] = True
        roll_out(
            rng,
            start_states,
            start,
            successors,
            moves,
            rewards,
            reward_values,
            True,
            actions.reshape(1, horizon, n_states),
            no_choices,
            one_component,
            states,
            taken,
            paid,
        )
        for h in range(horizon):
            at, j = min(h, steps - 1), states[0, h + 1]
            c = taken[0, h] * n_states + states[0, h]
            if counts[at, c, j] == 0.0:
                index[at, c, size[at, c]] = j
                size[at, c] += 1
                seen += 1
            counts[at, c, j] += 1.0
            n[at, c] += 1.0
            if by_transition:
                sums[at, c] += transition_rewards[states[0, h], taken[0, h], j]
            else:
                sums[at, c] += paid[0, h]
        if k == users - 1:
            break
        # Estimates of what was just visited, or of everything where there are none yet.
        everything = k == 0
        if not dense and _DENSE * seen > counts.size:
            dense, everything = True, True
            table = np.zeros((steps, n_states, cells))
        for visit in range(steps * cells if everything else horizon):
            if everything:
                at, c = visit // cells, visit % cells
            else:
                at = min(visit, steps - 1)
                c = taken[0, visit] * n_states + states[0, visit]
            visits = n[at, c]
            if visits == 0.0:
                continue
            unknown[at, c] = 0.0
            mean_reward[at, c] = min(sums[at, c] / visits, 1.0)
            width[at, c] = sampling / np.sqrt(visits)
            range_width[at, c] = range_term / visits
            for i in range(size[at, c]):
                j = index[at, c, i]
                if dense:
                    table[at, j, c] = counts[at, c, j] / visits
                else:
                    probability[at, c, i] = counts[at, c, j] / visits
        if not dense:
            # Without the room between lists, a plan reads little more than the fastest cache holds.
            end = 0
            for at in range(steps):
                for c in range(cells):
                    begin[at, c] = end
                    for i in range(size[at, c]):
                        indices[end] = index[at, c, i]
                        chances[end] = probability[at, c, i]
                        end += 1
                begin[at, cells] = end
        value[:] = 0.0
        plain[:] = 0.0
        for h in range(horizon - 1, -1, -1):
            at, left = min(h, steps - 1), float(horizon - h)
            total = 0.0
            for s in range(n_states):
                square[s] = value[s] * value[s]
                total += plain[s]
            average = total / n_states
            if h == horizon - 1:  # nothing comes after
                mean[:], second[:], mean_plain[:] = 0.0, 0.0, 0.0
            elif not dense:
                _listed_moments(
                    begin[at], indices, chances, value, square, plain, mean, second, mean_plain
                )
            else:
                _moments(table[at], value, square, plain, mean, second, mean_plain)
            for c in range(cells):
                variance = max(second[c] - mean[c] * mean[c], 0.0)
                bonus = width[at, c] * np.sqrt(variance) + range_width[at, c] * left
                optimistic = mean_reward[at, c] + mean[c] + bonus + unknown[at, c] * left
                q[c] = min(optimistic, left)
                exact = mean_reward[at, c] + mean_plain[c] + unknown[at, c] * average
                plain_q[c] = min(exact, left)
            _best(ties, q_values, value, policies[k + 1, h])
            _best(ties, plain_values, plain, greedy[k + 1, h])
