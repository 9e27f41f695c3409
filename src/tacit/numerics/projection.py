"""Compiled projection of noisy rows to distributions. Imported only where it runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, compiled


@compiled
def project(counts: Floats, known: NDArray[np.bool_], out: Floats) -> None:
    """Rows of noisy counts (R, S) to the nearest distributions; uniform where not known.

    The nearest point with the same sum and no negative entry: subtract one number from all, cut
    at zero. Dividing by the sum gives the probabilities.
    """
    rows, states = counts.shape
    for row in range(rows):
        total = 0.0
        for state in range(states):
            total += counts[row, state]
        if not known[row] or total <= 0.0:
            out[row] = 1.0 / states
            continue
        lowest = counts[row].min()
        if lowest >= 0.0:
            out[row] = counts[row] / total
            continue
        ordered = np.sort(counts[row])[::-1]
        running, threshold = 0.0, 0.0
        for k in range(states):
            running += ordered[k]
            level = (running - total) / (k + 1)
            if ordered[k] > level:
                threshold = level
        for state in range(states):
            out[row, state] = max(counts[row, state] - threshold, 0.0) / total
