"""Compiled sums of features."""

from __future__ import annotations

import math

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled


@compiled
def sum_features(
    states: Ints,
    actions: Ints,
    rewards: Floats,
    features: Floats,
    weights: Floats,
    lengths: Floats,
    limit: float,
    gram_share: float,
    reward_share: float,
    pooled: bool,
    separate: bool,
    visits: Floats,
    following: Floats,
    paid: Floats,
) -> None:
    """Adds users' weighted steps; see :class:`tacit.linear.statistics.FeatureSums` for the weights.

    ``visits`` (rows, L, S, A) takes the weights, ``following`` (rows, L, d, S) weight times feature
    under the next state, ``paid`` (rows, L, d) weight times feature times reward; row 0 takes
    all users, or each user her own row when ``separate``. ``weights`` (1 or H, S, A) are public,
    ``lengths`` (S, A) are the squared lengths of the features, ``limit`` is the largest squared
    length of what one user adds, and the shares are the squared weights of Grams and rewards.
    """
    users, horizon = actions.shape
    n_states, n_actions, dimension = features.shape
    last = len(weights) - 1
    # What the user did so far: cells, next states and rewards, with their weights.
    past_state = np.empty(horizon, dtype=np.int64)
    past_action = np.empty(horizon, dtype=np.int64)
    past_after = np.empty(horizon, dtype=np.int64)
    past_pay = np.empty(horizon)
    past_weight = np.empty(horizon)
    towards = np.zeros(n_states)
    for user in range(users):
        row = user if separate else 0
        used, count = 0.0, 0
        for step in range(horizon):
            state, action = states[user, step], actions[user, step]
            after, reward = states[user, step + 1], rewards[user, step]
            if state < 0 or state >= n_states or after < 0 or after >= n_states:
                continue
            if action < 0 or action >= n_actions or np.isnan(reward):
                continue
            phi, q = features[state, action], lengths[state, action]
            # Inner products of this step with the sums so far: of Grams, of rewards, and the
            # largest that any next state could have.
            of_gram, of_reward, most, actual = 0.0, 0.0, 0.0, 0.0
            if pooled:
                for i in range(count):
                    other = features[past_state[i], past_action[i]]
                    dot = 0.0
                    for k in range(dimension):
                        dot += phi[k] * other[k]
                    of_gram += past_weight[i] * dot * dot
                    of_reward += past_weight[i] * past_pay[i] * dot
                    towards[past_after[i]] += past_weight[i] * dot
                for i in range(count):
                    most = max(most, towards[past_after[i]])
                actual = towards[after]
                for i in range(count):
                    towards[past_after[i]] = 0.0
            # The largest weight with which no next state and no reward could pass the limit: the
            # root of c w^2 + 2 b w = room, without cancellation.
            b = gram_share * of_gram + most + reward_share * max(of_reward, 0.0)
            c = gram_share * q * q + (1.0 + reward_share) * q
            room = max(limit - used, 0.0)
            weight = weights[min(step, last), state, action]
            if c > 0.0 and limit < math.inf:
                bound = b + math.sqrt(b * b + c * room)
                weight = min(weight, room / bound if bound > 0.0 else 0.0)
            if weight <= 0.0:
                continue
            inner = gram_share * of_gram + actual + reward_share * reward * of_reward
            own = gram_share * q * q + (1.0 + reward_share * reward * reward) * q
            used += 2.0 * weight * inner + weight * weight * own
            at = 0 if pooled else step
            visits[row, at, state, action] += weight
            for k in range(dimension):
                paid[row, at, k] += weight * reward * phi[k]
                following[row, at, k, after] += weight * phi[k]
            past_state[count], past_action[count] = state, action
            past_after[count], past_pay[count], past_weight[count] = after, reward, weight
            count += 1
