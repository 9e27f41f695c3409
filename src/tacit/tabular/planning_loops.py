"""Compiled inner loop of policy optimisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, Ints, compiled


@compiled
def plan(
    probabilities: Floats,
    rewards: Floats,
    counts: Floats,
    known: NDArray[np.bool_],
    noise: Floats,
    reward_noise: Floats,
    horizon: int,
    sampling: float,
    privacy: float,
    range_term: float,
    ties: Floats,
    q_values: Floats,
    bonuses: Floats,
    actions: Ints,
    greedy: Ints,
) -> None:
    """Optimistic and greedy backward induction; see :mod:`tacit.tabular.ucbvi` for the bonus.

    ``probabilities`` (L, S, A, S), ``rewards``, ``counts`` (lowered), ``noise`` (L, S, A), of the
    last L steps, the first of which stands for all before it; ``ties`` (H, S, A) are small random
    numbers that decide between equal actions.
    """
    n_rows, n_states, n_actions = counts.shape
    value, next_value = np.zeros(n_states), np.zeros(n_states)
    plain, next_plain = np.zeros(n_states), np.zeros(n_states)
    for step in range(horizon - 1, -1, -1):
        at = max(step - (horizon - n_rows), 0)
        left = float(horizon - step)
        for state in range(n_states):
            best, best_tie, best_action = -1.0, -1.0, 0
            best_plain, plain_tie, plain_action = -1.0, -1.0, 0
            for action in range(n_actions):
                row = probabilities[at, state, action]
                mean, square, mean_plain = 0.0, 0.0, 0.0
                support, values, squares = 0, 0.0, 0.0
                for after in range(n_states):
                    if row[after] > 0.0:
                        mean += row[after] * value[after]
                        square += row[after] * value[after] ** 2
                        mean_plain += row[after] * plain[after]
                        support += 1
                        values += value[after]
                        squares += value[after] ** 2
                # Sum over the support of (value - mean)^2: noise elsewhere was projected away.
                spread = max(squares - 2.0 * mean * values + support * mean * mean, 0.0)
                reward = rewards[at, state, action]
                q, bonus = left, left
                if known[at, state, action]:
                    n = counts[at, state, action]
                    variance = max(square - mean * mean, 0.0)
                    private = (
                        noise[at, state, action] ** 2 * spread
                        + reward_noise[at, state, action] ** 2
                    )
                    bonus = sampling * np.sqrt(variance / n + privacy**2 * private / n**2)
                    bonus += range_term * left / n
                    q = min(reward + mean + bonus, left)
                q_values[step, state, action] = q
                bonuses[step, state, action] = bonus
                tie = ties[step, state, action]
                if q > best or (q == best and tie > best_tie):
                    best, best_tie, best_action = q, tie, action
                exact = min(reward + mean_plain, left)
                if exact > best_plain or (exact == best_plain and tie > plain_tie):
                    best_plain, plain_tie, plain_action = exact, tie, action
            next_value[state], actions[step, state] = best, best_action
            next_plain[state], greedy[step, state] = best_plain, plain_action
        value, next_value = next_value, value
        plain, next_plain = next_plain, plain


@compiled
def mirror_steps(
    transitions: Floats,
    paid: Floats,
    start: Floats,
    enough: float,
    eta: float,
    growth: float,
    most: int,
    policy: Floats,
    q_values: Floats,
) -> int:
    """Multiplies ``policy`` (H, S, A) by exp(eta Q) until it is worth ``enough``; counts steps.

    eta is multiplied by ``growth`` from step to step.
    Q is that of the policy so far in the world of ``transitions`` (L, S, A, S), of the last L
    steps, the first of which stands for all before it. It pays ``paid`` (H, S, A), and Q is cut to
    [0, steps left]; what a policy is worth is the mean over ``start`` of its value. The policy is
    left as the last evaluation saw it, with its ``q_values``.
    """
    horizon, n_states, n_actions = policy.shape
    first = horizon - len(transitions)
    logits = np.log(policy)
    value, before = np.zeros(n_states), np.zeros(n_states)
    for step in range(most + 1):
        before[:] = 0.0
        for h in range(horizon - 1, -1, -1):
            at = max(h - first, 0)
            left = float(horizon - h)
            for state in range(n_states):
                value[state] = 0.0
                for action in range(n_actions):
                    row = transitions[at, state, action]
                    q = paid[h, state, action]
                    for after in range(n_states):
                        q += row[after] * before[after]
                    q = min(max(q, 0.0), left)
                    q_values[h, state, action] = q
                    value[state] += policy[h, state, action] * q
            value, before = before, value
        earned = 0.0
        for state in range(n_states):
            earned += start[state] * before[state]
        if step == most or earned >= enough:
            break
        for h in range(horizon):
            for state in range(n_states):
                highest, total = -np.inf, 0.0
                for action in range(n_actions):
                    logits[h, state, action] += eta * q_values[h, state, action]
                    highest = max(highest, logits[h, state, action])
                for action in range(n_actions):
                    logits[h, state, action] -= highest
                    policy[h, state, action] = np.exp(logits[h, state, action])
                    total += policy[h, state, action]
                for action in range(n_actions):
                    policy[h, state, action] /= total
        eta *= growth
    return step
