"""How far users' coordinates reach: what features are scaled with, where nobody knows it."""

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
    """How far users' coordinates get from zero, as parts of how far the box lets them.

    One part, ``reaches`` (D, 12): for every coordinate one 1, at the k-th place if the largest
    absolute value in the user's valid steps is within 2^-k of the box's, and no less than half of
    that; the last place is for all that is nearer to zero. A user without valid steps has zeros.

    Sensitivity. Each of D groups holds one 1 at most: two users differ by at most sqrt(2) in each,
    sqrt(2 D) together, as users do who differ in all of them; zero is sqrt(D) away.
    """

    spec: BoxSpec

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "reaches")

    @cached_property
    def layout(self) -> Layout:
        """``reaches``."""
        return Layout((Part("reaches", (self.spec.dimension, _POWERS)),))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return ball(math.sqrt(self.spec.dimension), relation, ACUTE)

    @property
    def most(self) -> Floats:
        """How far from zero the box lets coordinates get, (D,)."""
        found: Floats = np.abs([self.spec.lows, self.spec.highs]).max(axis=0)
        return found

    def vectors(self, block: Block) -> Floats:
        """One-hot rows."""
        D = self.spec.dimension
        hot = np.zeros((block.users, D, _POWERS))
        for rows, part in parts_of(block, (self.spec.horizon + 1) * D):
            steps = steps_of(part, self.spec, inside=True)
            sizes = np.where(steps.valid[..., np.newaxis], np.abs(steps.states[:, :-1]), 0.0)
            parts = np.maximum(sizes.max(axis=1) / self.most, 2.0**-_POWERS)
            places = np.clip(np.floor(-np.log2(parts)), 0, _POWERS - 1)
            known = np.asarray(steps.valid.any(axis=1))[:, np.newaxis, np.newaxis]
            hot[rows] = (places[..., np.newaxis] == np.arange(_POWERS)) & known
        return hot.reshape(block.users, self.layout.size)

    def scales(self, release: Release) -> tuple[float, ...]:
        """What coordinates are divided by: as far as most users get, or the box if none is seen."""
        counts, noise = release["reaches"], float(np.max(release.std["reaches"]))
        places = np.where(counts.max(axis=1) > _SEEN * noise, counts.argmax(axis=1), 0)
        return tuple((self.most * 2.0**-places).tolist())
