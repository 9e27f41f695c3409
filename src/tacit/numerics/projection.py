"""Compiled projection of noisy rows to distributions. Imported only where it runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, compiled, inner


@inner
def _descend(values: Floats) -> None:
    """Sorts in place, the largest first: Shell's way compiles in a tenth of NumPy's time."""
    gap = 1
    while 3 * gap + 1 < len(values):
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, len(values)):
            value, at = values[i], i
            while at >= gap and values[at - gap] < value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
        gap //= 3


@compiled
def project(counts: Floats, known: NDArray[np.bool_], out: Floats) -> None:
    """Rows of noisy counts (R, S) to the nearest distributions; uniform where not known.

    The nearest point with the same sum and no negative entry: subtract one number from all, cut
    at zero. Dividing by the sum gives the probabilities.
    """
    rows, states = counts.shape
    ordered = np.empty(states)
    for row in range(rows):
        total, lowest = 0.0, counts[row, 0]
        for state in range(states):
            total += counts[row, state]
            lowest = min(lowest, counts[row, state])
            ordered[state] = counts[row, state]
        if not known[row] or total <= 0.0:
            for state in range(states):
                out[row, state] = 1.0 / states
            continue
        threshold = 0.0
        if not lowest >= 0.0:
            _descend(ordered)
            running = 0.0
            for k in range(states):
                running += ordered[k]
                level = (running - total) / (k + 1)
                if ordered[k] > level:
                    threshold = level
        for state in range(states):
            out[row, state] = max(counts[row, state] - threshold, 0.0) / total
