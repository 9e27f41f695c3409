"""Compiled policy gradients of users. Imported where they run: numba is slow to load."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, compiled

SMALLEST = 1e-280
"""A squared length below this counts as none: its digits are lost, and ratios could exceed one."""


@compiled
def policy_gradients(
    features: Floats,
    scores: Floats,
    rewards: Floats,
    valid: NDArray[np.bool_],
    ended: NDArray[np.bool_],
    critic: Floats,
    discount: float,
    trace: float,
    actor_sums: Floats,
    critic_sums: Floats,
    moments: Floats,
) -> None:
    """For each user, sums over her steps of advantage x score x features and advantage x features.

    And the mean of u u' with u the features at length one. Features are (n, H + 1, m), scores
    (n, H, R), the rest (n, H). Each user is summed on her own: no sum depends on another user.
    """
    users, steps, rows = scores.shape
    m = features.shape[2]
    values = np.empty(steps + 1)
    for n in range(users):
        for t in range(steps + 1):
            values[t] = 0.0
            for i in range(m):
                values[t] += critic[i] * features[n, t, i]
        ahead, counted = 0.0, 0
        for t in range(steps - 1, -1, -1):
            if not valid[n, t]:
                ahead = 0.0
                continue
            later = 0.0 if ended[n, t] else values[t + 1]
            ahead = rewards[n, t] + discount * later - values[t] + discount * trace * ahead
            counted += 1
            square = 0.0
            for i in range(m):
                z = features[n, t, i]
                square += z * z
                critic_sums[n, i] += ahead * z
                for row in range(rows):
                    actor_sums[n, row, i] += ahead * scores[n, t, row] * z
            if square > SMALLEST:
                for i in range(m):
                    part = features[n, t, i] / square
                    for j in range(m):
                        moments[n, i, j] += part * features[n, t, j]
        for i in range(m):
            for j in range(m):
                moments[n, i, j] /= max(counted, 1)
