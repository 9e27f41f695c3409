"""How far users' coordinates and rewards reach: what both are scaled with, if nobody knows it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.statistics.steps import parts_of, steps_of
from tacit.privacy.bounds.balls import ACUTE, ball
from tacit.privacy.budget import Relation
from tacit.privacy.curators.gate import Release
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

# Powers of two that are told apart, below the power of the box.
_POWERS = 12
# A count below so many standard deviations of its noise says nothing.
_SEEN = 3.0


@dataclass(frozen=True)
class Reaches(Statistic):
    """How far users' coordinates and rewards get, as parts of how far they can.

    Parts are ``reaches`` (D, 12) and ``rewards`` (12,). For every coordinate there is one 1, at the
    k-th place if the largest absolute value in the user's valid steps is within 2^-k of the box's,
    and no less than half of that; the last place is for all that is nearer to zero. Rewards
    likewise, by how far the farthest one is from zero, or from what is nearest to zero in their
    range. A user without valid steps has zeros.

    Sensitivity. Each of D + 1 groups holds one 1 at most: two users differ by at most sqrt(2) in
    each, sqrt(2 (D + 1)) together, as users do who differ in all of them; zero is sqrt(D + 1) away.
    """

    spec: BoxSpec

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "reaches")

    @cached_property
    def layout(self) -> Layout:
        """``reaches`` and ``rewards``."""
        return Layout(
            (Part("reaches", (self.spec.dimension, _POWERS)), Part("rewards", (_POWERS,)))
        )

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return ball(math.sqrt(self.spec.dimension + 1), relation, ACUTE)

    @property
    def most(self) -> Floats:
        """How far from zero the box lets coordinates get, (D,)."""
        found: Floats = np.abs([self.spec.lows, self.spec.highs]).max(axis=0)
        return found

    def vectors(self, block: Block) -> Floats:
        """One-hot rows."""
        D, (centre, most) = self.spec.dimension, self._rewards
        hot = np.zeros((block.users, D + 1, _POWERS))
        for rows, part in parts_of(block, (self.spec.horizon + 1) * (D + 1)):
            steps = steps_of(part, self.spec, inside=True)
            paid = np.abs(steps.rewards - centre) / most
            parts = np.append(np.abs(steps.states[:, :-1]) / self.most, paid[..., np.newaxis], -1)
            largest = np.where(steps.valid[..., np.newaxis], parts, 0.0).max(axis=1)
            places = np.floor(-np.log2(np.maximum(largest, 2.0**-_POWERS)))
            known = np.asarray(steps.valid.any(axis=1))[:, np.newaxis, np.newaxis]
            places = np.clip(places, 0, _POWERS - 1)[..., np.newaxis]
            hot[rows] = (places == np.arange(_POWERS)) & known
        return hot.reshape(block.users, self.layout.size)

    def scales(self, release: Release) -> tuple[float, ...]:
        """What coordinates are divided by: as far as most users get, or the box if none is seen."""
        counts, noise = release["reaches"], float(np.max(release.std["reaches"]))
        places = np.where(counts.max(axis=1) > _SEEN * noise, counts.argmax(axis=1), 0)
        return tuple((self.most * 2.0**-places).tolist())

    @property
    def _rewards(self) -> tuple[float, float]:
        """What is nearest to zero in the range of rewards, and how far from it they can be."""
        low, high = self.spec.reward_range
        centre = min(max(0.0, low), high)
        return centre, max(high - centre, centre - low)

    def reward_range(self, release: Release) -> tuple[float, float]:
        """The part of the range of rewards in which any users are seen; all of it if none is.

        Not as far as most get, as for coordinates: a rare reward may be what all is about.
        """
        counts, noise = release["rewards"], float(np.max(release.std["rewards"]))
        seen = np.flatnonzero(counts > _SEEN * noise)
        (low, high), (centre, most) = self.spec.reward_range, self._rewards
        far = most * 2.0 ** -float(seen[0] if len(seen) else 0)
        return max(low, centre - far), min(high, centre + far)
