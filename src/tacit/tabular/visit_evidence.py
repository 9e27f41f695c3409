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
from typing import Any

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.asks import Arrays
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
_ARRAYS = (*ADDED, "sums")
_RELEASED = ("transitions", "rewards", "first_paid")
FACTORS = {kind.kind: kind for kind in (Optimal, NormalisedSquareRoot)}
"""Counters whose running sums can be told apart again."""


class VisitEvidence:
    """Weighted sums; those of L = 1 or H steps, S states and A actions."""

    def __init__(self, shape: tuple[int, int, int], noisy: bool = True) -> None:
        self.noisy = noisy
        self.moves = np.zeros((*shape, shape[1]))
        self.paid, self.variance = np.zeros(shape), np.zeros(shape)
        self.first_paid, self.first_variance = np.zeros(shape), np.zeros(shape)
        self.at_risk, self.visits_at_risk = np.zeros(shape), np.zeros(shape)
        # Of a counter: all of its releases, beside sums of what was expected.
        self.sums = np.zeros((0, self.moves.size + 5 * self.paid.size))
        self._undone: Floats | None = None
        self._norms: Floats = np.ones(0)

    def count_by(self, kind: str, releases: int) -> None:
        """Releases will be the running sums of such a counter."""
        factor = FACTORS[kind](releases=releases, mu=1.0).factor
        C = np.ldexp(factor.whole.astype(np.float64), -factor.places)
        self._undone = C - np.pad(C[:, 1:], ((0, 0), (0, 1)))  # C A^-1
        self._norms = factor.row_norms

    def add(
        self, parts: Mapping[str, Floats], std: Mapping[str, Any], visits: tuple[Floats, ...]
    ) -> None:
        """Takes in a release, of a block of which so many ``visits`` are expected.

        They are those that count, users who came at all, and all visits, of each cell.
        """
        noise, first_noise = (float(np.max(std[name])) for name in ("transitions", "first_paid"))
        released = [parts[name] for name in _RELEASED]
        row = np.concatenate([array.ravel() for array in (*released, *visits)])
        if self._undone is not None:
            at = len(self.sums)
            if at:
                row[-3 * self.paid.size :] += self.sums[-1, -3 * self.paid.size :]
            self.sums = np.vstack([self.sums, row])
            row = self._undone[at, : at + 1] @ self.sums
            noise, first_noise = noise / self._norms[at], first_noise / self._norms[at]
        moves = row[: self.moves.size].reshape(self.moves.shape)
        cells = row[self.moves.size :].reshape(5, *self.paid.shape)
        paid, first, expected, came, often = cells
        weight = self._weight(expected, noise)
        self.moves += weight[..., np.newaxis] * moves
        self.paid += weight * paid
        self.variance = self.variance + (weight * noise) ** 2 if noise else np.ones(paid.shape)
        if not visits[1].any():
            return
        weight = self._weight(came, first_noise)
        for array in (self.first_paid, self.at_risk, self.visits_at_risk):
            array *= _FADING
        self.first_variance *= _FADING**2
        self.first_paid += weight * first
        self.first_variance += (weight * first_noise) ** 2 if first_noise else 1.0
        self.at_risk += weight * came
        self.visits_at_risk += weight * often

    def _weight(self, expected: Floats, noise: float) -> Floats:
        weight: Floats = np.ones(expected.shape)
        return (expected + _FLOOR * noise) / noise**2 if self.noisy else weight

    def begin_anew(self) -> None:
        """What is known stays; a counter of its own begins."""
        self.sums = self.sums[:0]

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

    # Save and resume.

    def dump(self) -> Arrays:
        """Everything, to the bit."""
        return {f"evidence/{name}": np.array(getattr(self, name)) for name in _ARRAYS}

    def restore(self, arrays: Arrays) -> None:
        """Puts back what :meth:`dump` returned."""
        for name in _ARRAYS:
            setattr(self, name, np.array(arrays[f"evidence/{name}"]))


def _root(variance: Floats) -> Floats:
    root: Floats = np.sqrt(np.where(variance > 0, variance, 1.0))
    return root
