"""How large trajectories are: a private histogram, from which the first clip level is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.lq.statistics import read_steps
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic


@dataclass(frozen=True)
class EnergyHistogram(Statistic):
    """How many users have which energy, sum over steps of |x|^2 + |u|^2, in bins of one ratio.

    Bin k holds energies from ``least`` * ratio^k to ``least`` * ratio^(k + 1); the first one takes
    what is smaller too, the last one what is larger. Reads ``states``, ``actions`` and ``lengths``
    as :class:`~tacit.lq.statistics.TrajectorySums` does. Steps with values that are not finite do
    not count; a user without any step that counts is in no bin.

    Sensitivity. A user is in one bin at most. Two users move one count down and another up, by 1
    each: sqrt(2) in the 2-norm and 2 in the 1-norm, attained by users in different bins; against
    zero it is 1.
    """

    states: int
    controls: int
    steps: int
    least: float  # the upper end of what counts as nothing, > 0
    ratio: float = 1.5  # of the ends of a bin, > 1
    bins: int = 20  # how many, at least 2

    def __post_init__(self) -> None:
        if min(self.states, self.controls, self.steps) < 1 or self.bins < 2:
            raise InvalidArgument("states, controls and steps must be >= 1, bins >= 2")
        if not (0.0 < self.least < math.inf and 1.0 < self.ratio < math.inf):
            raise InvalidArgument(
                f"least must be > 0 and ratio > 1, got {self.least!r} and {self.ratio!r}"
            )
        object.__setattr__(self, "name", "energy histogram")

    @cached_property
    def layout(self) -> Layout:
        """``users`` by bin."""
        return Layout((Part("users", (self.bins,)),))

    def l2(self, relation: Relation) -> float:
        """Sqrt(2), or 1."""
        return math.sqrt(self.l1(relation))

    def l1(self, relation: Relation) -> float:
        """2, or 1."""
        return 2.0 if checked_relation(relation) is Relation.REPLACE_ONE else 1.0

    @property
    def one_hots(self) -> int:
        """One."""
        return 1

    @property
    def fractional(self) -> NDArray[np.bool_]:
        """No count is."""
        return np.zeros(self.bins, dtype=bool)

    def vectors(self, block: Block) -> Floats:
        """A one in each user's bin."""
        states, actions, lengths = read_steps(block, self.states, self.controls, self.steps)
        z = np.concatenate([states[:, :-1], actions], axis=-1)
        valid = np.isfinite(z).all(axis=-1) & (np.arange(self.steps) < lengths[:, np.newaxis])
        # Far beyond the last bin, so that no square overflows.
        most = math.sqrt(self.least) * self.ratio ** (0.5 * self.bins + 1.0)
        z = np.clip(np.where(valid[..., np.newaxis], z, 0.0), -most, most)
        energy = np.maximum((z**2).sum(axis=(1, 2)), self.least)
        place = np.floor(np.log(energy / self.least) / math.log(self.ratio)).astype(np.int64)
        dense = np.zeros((block.users, self.bins))
        rows = np.flatnonzero(valid.any(axis=1))
        dense[rows, np.minimum(place[rows], self.bins - 1)] = 1.0
        return dense

    def level(self, counts: Floats, noise: float, share: float) -> float:
        """The energy that a share of users do not exceed, by noisy counts: a bin's upper end.

        Counts that do not stand out of their noise, of this standard deviation, are nobody's.
        """
        cumulative = np.cumsum(np.where(counts > 2.0 * noise, counts, 0.0))
        place = int(np.searchsorted(cumulative, share * cumulative[-1]))
        return self.least * self.ratio ** (min(place, self.bins - 1) + 1)
