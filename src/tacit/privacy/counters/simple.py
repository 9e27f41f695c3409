"""The three counters without a factorisation to speak of: blocks, fresh noise, no noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.counters.base import Counter, Floats


class Blocks(Counter):
    """Disjoint blocks: every item gets its own noise once, sums are post-processing.

    C is the identity, B is lower-triangular ones: column norm 1, the t-th row norm sqrt(t).
    Needs no horizon, and a single item is as precise as it can be. Best for few releases, or
    where the noisy blocks are used one by one.

    >>> Blocks(mu=1.0).std_at(4)
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
        self._noise: NDArray[Any] = np.zeros(self.size, self._number)

    def _advance(self, fresh: NDArray[Any]) -> NDArray[Any]:
        self._noise += fresh
        return self._noise


class Fresh(Counter):
    """Fresh noise on the whole sum at every release: the naive way, for comparison.

    B is the identity and C lower-triangular ones: a user of the first item is in all n releases,
    so the column norm is sqrt(n).

    >>> Fresh(releases=9, mu=1.0).std.tolist()[:2]
    [3.0, 3.0]
    """

    kind = "fresh"
    memory = 1  # the running sum

    @property
    def column_norm(self) -> float:
        """The first user is in every release."""
        return math.sqrt(self.releases or 1)

    def row_norms(self, upto: int) -> Floats:
        """One independent draw per release."""
        return np.ones(upto)


class Noiseless(Counter):
    """No noise and no guarantee: the non-private twin of every other counter.

    >>> Noiseless().release(2.0).item()
    2.0
    """

    kind = "noiseless"
    distributions = ("none",)
    horizon_free = True
    column_norm = 0.0
    memory = 1  # the running sum

    def row_norms(self, upto: int) -> Floats:
        """Nothing is added."""
        return np.zeros(upto)

    def _draw(self) -> NDArray[Any]:
        return np.zeros(self.size)
