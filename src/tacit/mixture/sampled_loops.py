"""Compiled means over drawn next states. Imported only where they are used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, compiled


@compiled
def drawn_means(next_states: NDArray[np.int32], values: Floats, out: Floats) -> None:
    """Of rows of next states (n, m), the mean of their values (S,), into (n,)."""
    rows, samples = next_states.shape
    for row in range(rows):
        total = 0.0
        for j in range(samples):
            total += values[next_states[row, j]]
        out[row] = total / samples
