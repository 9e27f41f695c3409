"""Disjoint blocks, and a tree: factors of zeros and ones.

In a tree each release is a sum of few noisy nodes, and each user is in few nodes. It draws exactly
one node per release and keeps its noise until the node is no longer part of a prefix. C has a
row per drawn node (1 for the users under it), so its column norm counts the nodes a user is in: the
count itself for Laplace noise, its root for Gaussian noise.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.counters.base import Counter, Distribution, Floats
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
    kept = ("noise",)
    column_norm = 1.0  # each user is in one block, noised once
    memory = 2  # the running sum and its noise

    def _check_releases(self, releases: int | None) -> int | None:
        return None if releases is None else super()._check_releases(releases)

    def row_norms(self, upto: int) -> Floats:
        """Independent noises of the blocks so far add up."""
        return np.sqrt(np.arange(1, upto + 1, dtype=np.float64))

    def _start(self) -> None:
        self._noise: Ints = np.zeros(self.size, np.int64)

    def _advance(self, fresh: Ints) -> Ints:
        self._noise += fresh
        return self._noise


class SmoothTree(Counter):
    """The smooth binary tree (Andersson and Pagh, 2023), with unequal bits and no idle noise.

    Leaves are the h-bit labels with exactly k ones, in increasing order; user t sits at the t-th
    label, and the prefix after user t is the sum over the ones of the next label of the left
    siblings at those bits. Two changes to the published mechanism:

    * The node of a trailing one of a label is empty: under it a leaf would need more ones than it
      has bits. An empty node is zero for all data and needs no noise. Moving to the next label
      turns one 0 into a 1 and packs the ones below it to the end, so exactly one node that is
      not empty is new per release: one draw per release, and B is invertible.
    * The number of zeros z = h - k, which is what a user pays (she is under the left sibling of a
      bit only if her own bit is 0), need not equal the number of ones k, which is what a release
      adds up. Among all k the one with the smallest worst-case error is taken; under Laplace
      noise, where the cost grows like z and the error like sqrt(k), few zeros win.

    h is the smallest with C(h, k) > n, so the label after the last user has its highest bit set
    and the first user, whose label has all its zeros above all its ones, is under exactly z drawn
    nodes: the stated cost is attained.

    >>> SmoothTree(releases=1024, epsilon=1.0).zeros, SmoothTree(releases=1024, epsilon=1.0).ones
    (3, 17)
    >>> SmoothTree(releases=1024, mu=1.0).zeros, SmoothTree(releases=1024, mu=1.0).ones
    (5, 8)
    """

    kind = "smooth tree"
    distributions = ("gaussian", "laplace")
    kept = ("nodes",)
    _nodes: Ints

    @property
    def ones(self) -> int:
        """Ones of every label: nodes in a release, at most."""
        return _smooth_bits(self.releases or 1, self.distribution)[1]

    @property
    def zeros(self) -> int:
        """Zeros of every label: nodes that a user is in, at most."""
        return _smooth_bits(self.releases or 1, self.distribution)[0]

    @property
    def column_norm(self) -> float:
        """Norm of z nodes."""
        return float(self.zeros) if self.distribution == "laplace" else math.sqrt(self.zeros)

    def row_norms(self, upto: int) -> Floats:
        """Root of the number of ones that are not trailing."""
        label, ones = self._first_label, self.ones
        counts: NDArray[np.float64] = np.empty(upto)
        for t in range(upto):
            label = _next_label(label)
            trailing = ((label + 1) & ~label).bit_length() - 1
            counts[t] = ones - trailing
        return np.sqrt(counts)

    @property
    def memory(self) -> int:
        """The running sum and a node per bit."""
        return 1 + self.zeros + self.ones

    @property
    def _first_label(self) -> int:
        return (1 << self.ones) - 1

    def _start(self) -> None:
        self._nodes = np.zeros((self.zeros + self.ones, self.size), np.int64)
        self._label = self._first_label

    def _advance(self, fresh: Ints) -> Ints:
        label = _next_label(self._label)
        level = (label & ~self._label).bit_length() - 1
        self._label = label
        # The node at this level replaces all nodes below it.
        self._nodes[:level] = 0
        self._nodes[level] = fresh
        total: Ints = self._nodes.sum(axis=0)
        return total

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"label": self._label}, {"nodes": self._nodes}

    def _restore(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(values, arrays)
        self._label = int(values["label"])


def _next_label(label: int) -> int:
    """The next larger integer with as many ones.

    >>> bin(_next_label(0b0111)), bin(_next_label(0b1101))
    ('0b1011', '0b1110')
    """
    low = label & -label
    carried = label + low
    return (((carried ^ label) >> 2) // low) | carried


@lru_cache(maxsize=256)
def _smooth_bits(releases: int, distribution: Distribution) -> tuple[int, int]:
    """(zeros, ones) of the labels with the smallest worst-case error for this many releases."""
    best, choice = math.inf, (1, 1)
    zeros = 0
    while True:
        zeros += 1
        # Even a single one per label costs this much with so many zeros.
        if (zeros if distribution == "laplace" else math.sqrt(zeros)) >= best:
            return choice
        ones = _fewest_ones(releases, zeros)
        # With more ones than any label has bits below its top one they are never all at work.
        error = (zeros if distribution == "laplace" else math.sqrt(zeros)) * math.sqrt(ones)
        if error < best and math.comb(zeros + ones - 1, ones) <= releases:
            best, choice = error, (zeros, ones)


def _fewest_ones(releases: int, zeros: int) -> int:
    """The smallest k with C(zeros + k, k) > releases."""
    low, high = 1, releases
    while low < high:
        middle = (low + high) // 2
        if math.comb(zeros + middle, zeros) > releases:
            high = middle
        else:
            low = middle + 1
    return low
