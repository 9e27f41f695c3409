"""What all releases say about first visits, in standard deviations of their noise.

There are three ways to add up. *Running*: a release is the sum over all users so far, and stands
for itself. *Blocks*: a release is of one block; it is weighed by its signal over its noise, see
:mod:`tacit.finite.evidence`. *Plain*: there is no noise, and counts are counts, in the end with an
error as if it were one visit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.asks import Arrays

Adding = Literal["running", "blocks", "plain"]

# Visits, in noise, that every block is taken to have in a cell.
_FLOOR = 1.0
# By which what blocks said of first rewards fades from block to block: at first nobody knows how
# many came there.
_FADING = 0.8
_ARRAYS = (
    *("moves", "paid", "variance"),
    *("first_paid", "first_variance", "at_risk", "visits_at_risk"),
)


class VisitEvidence:
    """Weighted sums; those of L = 1 or H steps, S states and A actions."""

    def __init__(self, shape: tuple[int, int, int], adding: Adding) -> None:
        self.adding = adding
        self.moves = np.zeros((*shape, shape[1]))
        self.paid, self.variance = np.zeros(shape), np.zeros(shape)
        self.first_paid, self.first_variance = np.zeros(shape), np.zeros(shape)
        self.at_risk, self.visits_at_risk = np.zeros(shape), np.zeros(shape)

    def add(self, parts: Mapping[str, Floats], std: Mapping[str, Any], expected: Floats) -> None:
        """Takes in ``transitions`` and ``rewards`` of a release; ``expected`` are its visits."""
        noise = float(np.max(std["transitions"]))
        moves, paid = parts["transitions"], parts["rewards"]
        if self.adding == "running":
            self.moves, self.paid = moves.copy(), paid.copy()
            self.variance = np.full(paid.shape, noise**2)
            return
        weight = np.ones(paid.shape)
        if self.adding == "blocks":
            weight = (expected + _FLOOR * noise) / noise**2
        self.moves += weight[..., np.newaxis] * moves
        self.paid += weight * paid
        self.variance = self.variance + (weight * noise) ** 2 if noise else np.ones(paid.shape)

    def add_first_paid(self, first: Floats, noise: float, at_risk: Floats, visits: Floats) -> None:
        """Takes in where users were paid first, of whom so many came to a cell, so often."""
        weight = np.ones(first.shape)
        if self.adding == "running":
            self.first_paid, self.first_variance = first.copy(), np.full(first.shape, noise**2)
        else:
            if self.adding == "blocks":
                weight = (at_risk + _FLOOR * noise) / noise**2
            for array in (self.first_paid, self.at_risk, self.visits_at_risk):
                array *= _FADING
            self.first_variance *= _FADING**2
            self.first_paid += weight * first
            self.first_variance += (weight * noise) ** 2 if noise else 1.0
        self.at_risk += weight * at_risk
        self.visits_at_risk += weight * visits

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
