"""How far two users can be apart in sums over steps of features and of what followed them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.statistic import Floats, Statistic

MOST_PAIRS = 1 << 25
"""The most pairs of steps that are looked at; above, bounds that hold for any features."""
SHORTEST = 1e-100
"""Shorter vectors than this are zero: their squares would be rounded away."""
# Rows of the table of all pairs that are made at a time.
_PAIR_ROWS = 256


def inner_products(table: Floats) -> Iterator[tuple[slice, Floats]]:
    """Some rows of a table at a time, and their inner products with all of them."""
    for start in range(0, len(table), _PAIR_ROWS):
        some = slice(start, start + _PAIR_ROWS)
        yield some, table[some] @ table.T


@dataclass(frozen=True, eq=False)
class BoundedSteps(Statistic):
    """A statistic of weighted steps, each a Gram matrix, a next state and a reward.

    Sensitivity. One step is y = (sqrt(a) phi phi', phi x') with x = (e_{s'}, sqrt(b) r),
    so |x|^2 <= m = 1 + b; with q = |phi|^2 <= 1, |y|^2 = a q^2 + |x|^2 q. Two steps have
    <y, y'> = a t^2 + t c, where t = <phi, phi'> and c = <x, x'>. Let Y = sum w y be a user's vector
    (a dropped step has w = 0). Lengths l_h *add up* to sqrt(sum l_h^2) per step, where steps have
    entries of their own, and to sum l_h when pooled.

    * |Y| <= C: ``clip``, or what the longest steps add up to if that is less.
    * |Y - Y'|^2 = |Y|^2 + |Y'|^2 - 2 <Y, Y'> <= 2 C^2 + 2 g, where g is the least known bound on
      -<Y, Y'>: 0 without negative features; C^2; m^2 W^2 / (4 a), with W what the largest public
      weights add up to, as a t^2 + t c >= -c^2 / (4 a); and rho C^2 per step or rho R^2 pooled,
      where rho is the largest of 0 and -cos(y, y') over pairs of steps and R is what the longest
      steps add up to, as -<Y, Y'> is a sum of -w w' <y, y'> <= rho |w y| |w' y'|.
      <y, y'> < 0 only for t < 0. As c <= |x| |x'|, -cos is then at most
      (-t - a t^2 / (|x| |x'|)) / (k k') with k^2 = a q^2 / |x|^2 + q, which increases with |x| and
      |x'|: it is largest for the same next state and rewards of 1.
    * |Y - Y'| is at most what the distances |w y_h - w' y'_h| of steps add up to; per step it is
      equal. A distance is convex in each weight, so largest for 0 or for the largest weight that a
      clip leaves, C / |y| at most. It depends on the next states only by whether they are the
      same, and they are the states of the step after. So the most over H steps is a dynamic
      programme over two cases (same state or not), after a look at all pairs of the table. Per
      step and without a clip the bound is therefore exact.

    The least is declared. Where pairs are too many to look at, rho and distances are not known.

    Attributes:
        features: phi, (S, A, d).
        horizon: steps of an episode.
        pooled: one sum for all steps, instead of one per step.
        clip: the longest vector a user may have; ``None`` for what steps can add up to.
        gram: squared weight a of the Gram matrix.
        reward: squared weight b of the rewards; 0 leaves them out.
        weights: public weights in [0, 1], (1 or H, S, A); ``None`` for 1.
    """

    features: Floats
    horizon: int
    pooled: bool = False
    clip: float | None = None
    gram: float = 1.0
    reward: float = 1.0
    weights: Floats | None = None

    @property
    def _weights(self) -> Floats:
        assert self.weights is not None  # noqa: S101
        return self.weights

    @property
    def dimension(self) -> int:
        """Of the features, d."""
        return int(self.features.shape[2])

    @property
    def states(self) -> int:
        """S."""
        return int(self.features.shape[0])

    @property
    def _cross(self) -> float:
        """1 + b."""
        return 1.0 + self.reward

    @property
    def rows(self) -> int:
        """L."""
        return 1 if self.pooled else self.horizon

    @cached_property
    def _lengths(self) -> Floats:
        """|phi|^2, (S, A)."""
        return np.asarray((self.features**2).sum(axis=-1))

    @cached_property
    def _longest(self) -> float:
        """Sum of the longest steps."""
        return self._add_up(self._weights * self._step_lengths)

    @cached_property
    def _step_lengths(self) -> Floats:
        """The largest |y|, (S, A)."""
        q = self._lengths
        return np.asarray(np.sqrt(self.gram * q * q + self._cross * q))

    def _add_up(self, lengths: Floats) -> float:
        """Sum of the largest lengths of a table (1 or H, S, A); see the class."""
        tops = np.broadcast_to(lengths.max(axis=(1, 2)), (self.horizon,))
        return float(tops.sum() if self.pooled else np.linalg.norm(tops))

    @property
    def clips(self) -> bool:
        """Whether some user's steps may be weighted down."""
        return self.clip is not None and self.clip < self._longest

    @property
    def bound(self) -> float:
        """C."""
        return float(self.clip) if self.clips and self.clip is not None else self._longest

    @cached_property
    def _replace(self) -> float:
        C, W = self.bound, self._add_up(self._weights)
        reach = self._longest if self.pooled else C
        # The largest -<Y, Y'>.
        against = min(
            self._opposition() * reach**2, (self._cross * W) ** 2 / (4.0 * self.gram), C**2
        )
        best = math.sqrt(2.0 * (C**2 + against))
        if self._lengths.size**2 * len(self._weights) <= MOST_PAIRS:
            best = min(best, self._farthest())
        return max(best, C)

    def _opposition(self) -> float:
        """The rho of the class, or 1 where pairs are too many."""
        if (self.features >= 0).all():
            return 0.0
        if self._lengths.size**2 > MOST_PAIRS:
            return 1.0
        counts = (self._weights * self._step_lengths).max(axis=0) > 0
        length = np.where(counts, self._step_lengths, np.inf).reshape(-1)
        rho = 0.0
        for some, t in inner_products(self.features.reshape(-1, self.dimension)):
            cosine = (self.gram * t * t + self._cross * t) / (length[some, np.newaxis] * length)
            rho = max(rho, -float(cosine.min()))
        return rho

    def _farthest(self) -> float:
        """Largest sum of the distances of two users' steps."""
        power = 1 if self.pooled else 2
        most_weight = self.bound / np.maximum(self._step_lengths, SHORTEST)
        tables = [self._distances(np.minimum(w, most_weight)) ** power for w in self._weights]
        # The most from here on, for two users in the same state and for two in different ones.
        most = np.zeros(2)
        for step in reversed(range(self.horizon)):
            most = (tables[min(step, len(tables) - 1)] + most).max(axis=1)
        return float(most.max() ** (1.0 / power))

    def _distances(self, weights: Floats) -> Floats:
        """The largest distance of two steps, [same state or not][same next state or not].

        It is convex in each reward, so rewards are 0 or 1.
        """
        S, A = weights.shape
        w, q = weights.reshape(-1), self._lengths.reshape(-1)
        own, squares = w * w * q, self.gram * (w * q) ** 2
        # One of the two may be a dropped step.
        most: Floats = np.full((2, 2), (squares + self._cross * own).max())
        for some, t in inner_products(self.features.reshape(S * A, -1)):
            here = np.arange(len(t)), np.arange(S * A)[some] // A
            products = w[some, np.newaxis] * w * t
            both = own[some, np.newaxis] + own
            apart = both - 2.0 * products
            common = squares[some, np.newaxis] + squares - 2.0 * self.gram * products * t
            common += self.reward * np.maximum(apart, np.maximum(own[some, np.newaxis], own))
            for other, of_next in enumerate((apart, both)):
                pairs = common + of_next
                largest = pairs.reshape(-1, S, A).max(axis=2)
                most[0, other] = max(most[0, other], largest[here].max())
                largest[here] = 0.0
                most[1, other] = max(most[1, other], largest.max())
        if S == 1:
            most[1], most[:, 1] = 0.0, 0.0
        return np.asarray(np.sqrt(most))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        if checked_relation(relation) is Relation.ZERO_OUT:
            return self.bound
        return self._replace
