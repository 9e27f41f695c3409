"""Compiled inner loop of policy optimisation."""

from __future__ import annotations

import numpy as np

from tacit.numerics.compiled import Floats, compiled


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
