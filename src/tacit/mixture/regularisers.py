"""Regularisers: what turns a noisy Gram matrix into one that can be inverted.

The papers' framework: estimates come from (Lambda, u) with Lambda = G + M and u = g + z, where G
and g are true sums of users' inputs and targets and the regulariser M and the shift z may be
random and change from release to release. All that analysis needs of them is three numbers,
smallest I <= M <= largest I and |z| <= shift sqrt(smallest) with the promised probability. A fixed
ridge gives the algorithms without privacy, noise and a shift the private ones; anything else that
keeps to :class:`Regulariser` gives one of your own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit.core.sizes import Floats
from tacit.numerics.ridge import operator_bound, positive_part, rectangle_bound


@dataclass(frozen=True)
class Regularised:
    """A Gram matrix that can be inverted, and what is known of its regulariser."""

    matrix: Floats  # Lambda, (k, k), positive definite
    smallest: float  # no eigenvalue of M is below it, but for the promised probability
    largest: float  # none is above it
    shift: float  # |z| in the norm of Lambda^-1 is at most this


class Regulariser(Protocol):
    """Anything that is called like this."""

    def __call__(
        self, gram: Floats, gram_noise: float, cross_noise: float, failure: float
    ) -> Regularised:
        """Regularises one released Gram matrix.

        Args:
            gram: G with its noise, symmetric, (k, k).
            gram_noise: standard deviation of that noise on the diagonal; 0 without privacy.
            cross_noise: standard deviation of the noise in an entry of the targets' sums.
            failure: with which probability the numbers returned may be wrong.
        """


@dataclass(frozen=True)
class FixedRidge:
    """Lambda = G + ridge I: UCRL-VTR, OPPO and the like, without privacy.

    >>> FixedRidge(2.0)(np.eye(2), 0.0, 0.0, 0.1).matrix.tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """

    ridge: float = 1.0

    def __call__(
        self, gram: Floats, gram_noise: float, cross_noise: float, failure: float
    ) -> Regularised:
        """See :class:`Regulariser`."""
        matrix = positive_part(gram) + self.ridge * np.eye(len(gram))
        return Regularised(matrix, self.ridge, self.ridge, 0.0)


@dataclass(frozen=True)
class NoiseShift:
    """Lambda = G + N + 2 l I with |N| <= l: the private algorithms, with what is proven.

    Then l I <= N + 2 l I <= 3 l I. Where noise is small l is ``least``.
    """

    least: float = 1.0

    def __call__(
        self, gram: Floats, gram_noise: float, cross_noise: float, failure: float
    ) -> Regularised:
        """See :class:`Regulariser`."""
        k = len(gram)
        level = max(self.least, operator_bound(gram_noise, k, failure / 2.0))
        # In the improbable case that noise is larger, still something that can be inverted.
        matrix = positive_part(gram + level * np.eye(k)) + level * np.eye(k)
        shift = rectangle_bound(cross_noise, k, 1, failure / 2.0) / math.sqrt(level)
        return Regularised(matrix, level, 3.0 * level, shift)


@dataclass(frozen=True)
class NoiseRidge:
    """Lambda = max(G + N, 0) + (ridge + scale s sqrt(k)) I: practical, with s the noise of G."""

    ridge: float = 1.0
    scale: float = 1.0

    def __call__(
        self, gram: Floats, gram_noise: float, cross_noise: float, failure: float
    ) -> Regularised:
        """See :class:`Regulariser`."""
        k = len(gram)
        level = self.ridge + self.scale * gram_noise * math.sqrt(k)
        shift = cross_noise * math.sqrt(k / level)
        return Regularised(positive_part(gram) + level * np.eye(k), level, 3.0 * level, shift)
