"""Compiled inner loops of the mixture family."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, Ints, compiled


@compiled
def sum_steps(
    states: Ints,
    actions: Ints,
    rewards: Floats,
    support: NDArray[np.bool_],
    grams: Floats,
    features: Floats,
    offsets: Floats,
    paying: Floats,
    limit: float,
    pooled: bool,
    last: int,
    separate: bool,
    sums: Floats,
    crosses: Floats,
    paid: Floats,
) -> None:
    """Adds users' weighted steps; see :class:`tacit.mixture.statistics.ModelSums`.

    A step at (s, a) that ends in s' adds ``grams[s, a]`` to ``sums`` (rows, L, G), and, before
    ``last``, ``features[s, a, :, s'] - offsets[s, a]`` to ``crosses`` (rows, L, k); its reward
    times ``paying[s, a]`` goes to ``paid`` (rows, L, m). The first entries of a Gram belong to the
    cross, and are left out with it.
    """
    users, horizon = actions.shape
    n_states, n_actions, free, _ = features.shape
    size, extra = grams.shape[2], paying.shape[2]
    own = size - extra * (extra + 1) // 2
    gram_sum, cross_sum, pay_sum = np.zeros(size), np.zeros(free), np.zeros(extra)
    for user in range(users):
        row = user if separate else 0
        used = 0.0
        gram_sum[:] = 0.0
        cross_sum[:] = 0.0
        pay_sum[:] = 0.0
        for step in range(horizon):
            state, action = states[user, step], actions[user, step]
            after, reward = states[user, step + 1], rewards[user, step]
            if state < 0 or state >= n_states or after < 0 or after >= n_states:
                continue
            if action < 0 or action >= n_actions or np.isnan(reward):
                continue
            if not support[state, action, after]:
                continue
            begin = 0 if step < last else own
            gram, pay = grams[state, action], paying[state, action]
            of_gram, length = 0.0, 0.0
            for i in range(begin, size):
                of_gram += gram_sum[i] * gram[i]
                length += gram[i] * gram[i]
            of_pay, pay_length = 0.0, 0.0
            for i in range(extra):
                of_pay += pay_sum[i] * pay[i]
                pay_length += pay[i] * pay[i]
            # The largest weight with which no next state and no reward could pass the limit.
            weight = 1.0
            inner_here, length_here = of_gram, length
            if limit < math.inf:
                room = max(limit - used, 0.0)
                for other in range(n_states):
                    if not support[state, action, other] or (step >= last and other != after):
                        continue
                    inner, own_length = of_gram, length
                    if step < last:
                        for k in range(free):
                            value = features[state, action, k, other] - offsets[state, action, k]
                            inner += cross_sum[k] * value
                            own_length += value * value
                    if other == after:
                        inner_here, length_here = inner, own_length
                    b = inner + max(of_pay, 0.0)
                    c = own_length + pay_length
                    if c <= 0.0:
                        continue
                    root = math.sqrt(b * b + c * room)
                    if b > 0.0:
                        weight = min(weight, room / (b + root))
                    else:
                        weight = min(weight, (root - b) / c)
                used += 2.0 * weight * (inner_here + reward * of_pay)
                used += weight * weight * (length_here + reward * reward * pay_length)
            if weight <= 0.0:
                continue
            at = 0 if pooled else step
            for i in range(begin, size):
                sums[row, at, i] += weight * gram[i]
            if step < last:
                for k in range(free):
                    value = features[state, action, k, after] - offsets[state, action, k]
                    crosses[row, at, k] += weight * value
                    if pooled:
                        cross_sum[k] += weight * value
            for i in range(extra):
                paid[row, at, i] += weight * reward * pay[i]
            if pooled:
                for i in range(begin, size):
                    gram_sum[i] += weight * gram[i]
                for i in range(extra):
                    pay_sum[i] += weight * reward * pay[i]


@compiled
def count_paths(
    states: Ints,
    actions: Ints,
    rewards: Floats,
    admitted: NDArray[np.bool_],
    start: NDArray[np.bool_],
    policy: Ints,
    support: NDArray[np.bool_],
    places: Ints,
    visits: Ints,
    separate: bool,
    sums: Floats,
) -> None:
    """Counts users' steps as long as their path is one that the policy can take.

    ``places`` (H, S, S) and ``visits`` (H, S) say where a transition and a state's reward count in
    ``sums`` (rows, size), if not negative. The first step that is not valid ends a path.
    """
    users, horizon = actions.shape
    n_states = policy.shape[1]
    for user in range(users):
        if not admitted[user]:
            continue
        row = user if separate else 0
        for step in range(horizon):
            state, after, reward = states[user, step], states[user, step + 1], rewards[user, step]
            if state < 0 or state >= n_states or after < 0 or after >= n_states:
                break
            if step == 0 and not start[state]:
                break
            if actions[user, step] != policy[step, state] or np.isnan(reward):
                break
            if not support[state, policy[step, state], after]:
                break
            if places[step, state, after] >= 0:
                sums[row, places[step, state, after]] += 1.0
            if visits[step, state] >= 0:
                sums[row, visits[step, state]] += reward
