"""Disjoint blocks: the counter without a factorisation to speak of."""

from __future__ import annotations

import numpy as np

from tacit.privacy.counters.base import Counter, Floats
from tacit.privacy.counters.grid import Ints


class Blocks(Counter):
    """Disjoint blocks: every item gets its own noise once, sums are post-processing.

    C is the identity, B is lower-triangular ones: column norm 1, the t-th row norm sqrt(t).
    Needs no horizon, and a single item is as precise as it can be. Best for few releases, or
    where the noisy blocks are used one by one.

    >>> round(Blocks(mu=1.0).std_at(4), 3)
    2.0
    """

    kind = "blocks"
    distributions = ("gaussian", "laplace")
    horizon_free = True
    kept = ("noise",)
    column_norm = 1.0  # each user is in one block, noised once
    memory = 2  # the running sum and its noise

    def row_norms(self, upto: int) -> Floats:
        """Independent noises of the blocks so far add up."""
        return np.sqrt(np.arange(1, upto + 1, dtype=np.float64))

    def _start(self) -> None:
        self._noise: Ints = np.zeros(self.size, np.int64)

    def _advance(self, fresh: Ints) -> Ints:
        self._noise += fresh
        return self._noise
