"""What all releases say about first visits, in standard deviations of their noise.

A block measures the visits x of a cell with noise. If m are expected of it, the best combination of
blocks weighs each by m over the variance of its noise. A counter releases running sums, whose noise
is correlated, but public numbers undo that: a counter with the factor C has noise B z with
B C = A, A the running sum and z white, so the sums S of its first t releases give
C A^-1 S = C x + z. Its t-th entry is one more measurement with white noise, of sum_j C_tj x_j
visits, and if m_j are expected of block j it is weighed by sum_j C_tj m_j. So what many blocks
visit adds up as in a running sum, and what one of them visits stands out as in a block of its own.
Released block by block, C is the identity. Without noise counts are counts, with an error as if it
were one visit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tacit.core.algorithm import Floats
from tacit.privacy.counters.dense import NormalisedSquareRoot, Optimal

# Visits, in noise, that every block is taken to have in a cell.
_FLOOR = 1.0
# By which what blocks said of first rewards fades from block to block: at first nobody knows how
# many came there.
_FADING = 0.8
ADDED = (
    *("moves", "paid", "variance"),
    *("first_paid", "first_variance", "at_risk", "visits_at_risk"),
)
"""What adds up over blocks, and over steps where they are alike."""
_RELEASED = ("transitions", "rewards", "first_paid")
FACTORS = {kind.kind: kind for kind in (Optimal, NormalisedSquareRoot)}
"""Counters whose running sums can be told apart again."""


@cache
def _undoing(kind: str, releases: int) -> tuple[Floats, Floats]:
    """C A^-1 of a counter, and the norms of the rows of B."""
    factor = FACTORS[kind](releases=releases, mu=1.0).factor
    C = np.ldexp(factor.whole.astype(np.float64), -factor.places)
    return C - np.pad(C[:, 1:], ((0, 0), (0, 1))), factor.row_norms


@dataclass(frozen=True, eq=False)
class VisitEstimate:
    """Weighted sums of all blocks; those of L = 1 or H steps, S states and A actions.

    Attributes:
        noisy: Whether releases have noise.
        counter: Kind and releases of the counter that blocks go through; ("", 0) if none.
        moves: Next states, (L, S, A, S).
        paid, variance: Rewards, and the variance of the noise, (L, S, A).
        first_paid, first_variance, at_risk, visits_at_risk: Of first rewards.
        sums: Of a counter: all of its releases, beside sums of what was expected.
    """

    noisy: bool
    counter: tuple[str, int]
    moves: Floats
    paid: Floats
    variance: Floats
    first_paid: Floats
    first_variance: Floats
    at_risk: Floats
    visits_at_risk: Floats
    sums: Floats

    @classmethod
    def empty(
        cls, shape: tuple[int, ...], noisy: bool = True, counter: tuple[str, int] = ("", 0)
    ) -> VisitEstimate:
        """Before any release."""
        cells = [np.zeros(shape) for _ in range(6)]
        moves = np.zeros((*shape, shape[1]))
        sums = np.zeros((0, moves.size + 5 * cells[0].size))
        return cls(noisy, counter, *[moves, *cells, sums])

    def added(
        self, parts: Mapping[str, Floats], std: Mapping[str, Any], visits: tuple[Floats, ...]
    ) -> VisitEstimate:
        """With a release, of a block of which so many ``visits`` are expected.

        They are those that count, users who came at all, and all visits, of each cell.
        """
        noise, first_noise = (float(np.max(std[name])) for name in ("transitions", "first_paid"))
        released = [parts[name] for name in _RELEASED]
        row = np.concatenate([array.ravel() for array in (*released, *visits)])
        sums = self.sums
        if self.counter[0]:
            undone, norms = _undoing(*self.counter)
            at = len(sums)
            if at:
                row[-3 * self.paid.size :] += sums[-1, -3 * self.paid.size :]
            sums = np.vstack([sums, row])
            row = undone[at, : at + 1] @ sums
            noise, first_noise = noise / norms[at], first_noise / norms[at]
        moves = row[: self.moves.size].reshape(self.moves.shape)
        cells = row[self.moves.size :].reshape(5, *self.paid.shape)
        paid, first, expected, came, often = cells
        weight = self._weight(expected, noise)
        new = replace(
            self,
            sums=sums,
            moves=self.moves + weight[..., np.newaxis] * moves,
            paid=self.paid + weight * paid,
            variance=self.variance + (weight * noise) ** 2 if noise else np.ones(paid.shape),
        )
        if not visits[1].any():
            return new
        weight = self._weight(came, first_noise)
        fresh = (weight * first_noise) ** 2 if first_noise else 1.0
        return replace(
            new,
            first_paid=_FADING * self.first_paid + weight * first,
            first_variance=_FADING**2 * self.first_variance + fresh,
            at_risk=_FADING * self.at_risk + weight * came,
            visits_at_risk=_FADING * self.visits_at_risk + weight * often,
        )

    def _weight(self, expected: Floats, noise: float) -> Floats:
        weight: Floats = np.ones(expected.shape)
        return (expected + _FLOOR * noise) / noise**2 if self.noisy else weight

    def pooled(self, steps: slice) -> VisitEstimate:
        """The same of a world in which these steps are alike."""
        sums = {name: getattr(self, name)[steps].sum(axis=0, keepdims=True) for name in ADDED}
        if not self.noisy:
            sums["variance"] = np.ones(sums["variance"].shape)
        return replace(self, counter=("", 0), sums=self.sums[:0], **sums)

    # In standard deviations of the noise.

    @property
    def entries(self) -> Floats:
        """Next states (L, S, A, S)."""
        entries: Floats = self.moves / _root(self.variance)[..., np.newaxis]
        return entries

    @property
    def rewards(self) -> Floats:
        """Rewards, in the deviations of next states."""
        return self.paid / _root(self.variance)

    @property
    def first_scores(self) -> Floats:
        """Users paid first in a cell."""
        return self.first_paid / _root(self.first_variance)


def _root(variance: Floats) -> Floats:
    root: Floats = np.sqrt(np.where(variance > 0, variance, 1.0))
    return root
