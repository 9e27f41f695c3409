"""Compiled loops."""

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

    Row 0 takes all users, or each has her own row when ``separate``. ``cells`` (1 or H, S, A) is
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


@compiled
def robust_gains(
    states: Ints,
    actions: Ints,
    rewards: Floats,
    chances: Floats,
    weights: Floats,
    values: Floats,
    q_values: Floats,
    largest: float,
    paths: bool,
    logged: bool,
    found: Floats,
) -> None:
    """Sets users' rows of ``found``, (users, K + 1 or 2 K + 1); see :class:`RobustGains`."""
    users, horizon = actions.shape
    policies, last, n_states, none = weights.shape
    of_values, of_q = values.shape[1] - 1, q_values.shape[1] - 1
    last, none = last - 1, none - 1  # the column of an action that is none
    product = np.ones(policies)
    for user in range(users):
        gained, going = 0.0, 0 <= states[user, 0] < n_states
        if not going:
            continue
        product[:] = 1.0
        for k in range(policies):
            found[user, k] = values[k, 0, states[user, 0]]
        step = 0
        while going and step < horizon:
            state, action = states[user, step], actions[user, step]
            after, reward = states[user, step + 1], rewards[user, step]
            chance = chances[user, step] if logged else 1.0
            if action < 0 or action >= none:
                action = none
            going = action < none and 0 <= after < n_states and not np.isnan(reward)
            going = going and chance > 0.0  # which no NaN is
            if going:
                reward = min(reward, largest - gained)
                gained += reward
            for k in range(policies):
                weight = weights[k, min(step, last), state, action]
                if paths and going:
                    # Cut before it is multiplied: 0 times an infinite ratio is no number.
                    product[k] = min(product[k] * min(weight / chance, 1e200), 1e200)
                    weight = product[k]
                ahead = reward + values[k, min(step + 1, of_values), after] if going else 0.0
                missed = ahead - q_values[k, min(step, of_q), state, action]
                found[user, k] += weight * missed
            step += 1
        for k in range(policies):
            found[user, k] -= gained
            if paths:
                found[user, policies + k] = (1.0 - product[k]) * (largest - gained)
        found[user, found.shape[1] - 1] = gained


@compiled
def count_first_actions(
    states: Ints, actions: Ints, cells: Ints, first: int, separate: bool, counts: Floats
) -> None:
    """Adds users to ``counts``, (rows, C): what each did at first visits of her first states.

    ``cells`` (S, A) is the cell of a state and an action, negative where there is none; an episode
    ends where its state or action is invalid or has no cell.
    """
    users, horizon = actions.shape
    n_states, n_actions = cells.shape
    seen = np.zeros(n_states, dtype=np.bool_)
    kept = np.zeros(first, dtype=np.int64)
    for user in range(users):
        row, found = user if separate else 0, 0
        for step in range(horizon):
            state, action = states[user, step], actions[user, step]
            if state < 0 or state >= n_states or action < 0 or action >= n_actions:
                break
            if cells[state, action] < 0 or found == first:
                break
            if not seen[state]:
                seen[state] = True
                kept[found] = state
                found += 1
                counts[row, cells[state, action]] += 1.0
        for i in range(found):
            seen[kept[i]] = False
