"""Compiled values on the plane. Imported only where they run: numba is slow to load."""

from __future__ import annotations

import numpy as np

from tacit.continuous.world_loops import add_up
from tacit.numerics.compiled import Floats, compiled


@compiled
def plane_value(rewards: Floats, chances: Floats, best: bool, horizon: int) -> float:
    """The expected return on the plane from a uniform start.

    Points are as on the line along both coordinates: chances are (4, n + 1, n + 1).
    """
    n = len(rewards) - 1
    reach = n // 4
    share = 1.0 / reach
    values, paid = np.zeros((n + 1, n + 1)), np.empty((n + 1, n + 1))
    sums, along = np.empty((n + 1, n + 1)), np.empty(n + 1)
    moved = np.empty((4, n + 1))
    for _ in range(horizon):
        for j in range(n + 1):
            paid[0, j] = rewards[0, j] + values[0, j]
            sums[0, j] = 0.0
        for i in range(1, n + 1):
            for j in range(n + 1):
                paid[i, j] = rewards[i, j] + values[i, j]
                sums[i, j] = sums[i - 1, j] + 0.5 * (paid[i - 1, j] + paid[i, j])
        for i in range(n + 1):
            low, high = max(i - reach, 0), min(i + reach, n)
            below, above = reach - (i - low), reach - (high - i)
            for j in range(n + 1):
                moved[0, j] = share * (sums[i, j] - sums[low, j] + below * paid[0, j])
                moved[1, j] = share * (sums[high, j] - sums[i, j] + above * paid[n, j])
            add_up(paid[i], along)
            for j in range(n + 1):
                low, high = max(j - reach, 0), min(j + reach, n)
                moved[2, j] = share * (along[j] - along[low] + (reach - (j - low)) * paid[i, 0])
                moved[3, j] = share * (along[high] - along[j] + (reach - (high - j)) * paid[i, n])
            if best:
                for j in range(n + 1):
                    values[i, j] = max(max(moved[0, j], moved[1, j]), max(moved[2, j], moved[3, j]))
            else:
                for j in range(n + 1):
                    total = chances[0, i, j] * moved[0, j] + chances[1, i, j] * moved[1, j]
                    total += chances[2, i, j] * moved[2, j] + chances[3, i, j] * moved[3, j]
                    values[i, j] = total
    for i in range(n + 1):
        add_up(values[i], along)
        paid[0, i] = along[n] / n
    add_up(paid[0], along)
    return float(along[n] / n)
