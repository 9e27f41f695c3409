"""Users' vectors in a ball: how they are scaled back to it, and how far apart two of them are."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np

from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Layout, Part, Statistic

ACUTE = math.sqrt(2.0)
"""How many radii apart two points of a ball are at most, if they are at no obtuse angle."""


def scaled_back(vectors: Floats, radius: float) -> Floats:
    """Rows in the ball of a radius; rows that are not finite are zero.

    >>> scaled_back(np.array([[3.0, 4.0], [0.0, 0.5], [np.nan, 1.0]]), 1.0).tolist()
    [[0.6000000000000001, 0.8], [0.0, 0.5], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    good = np.isfinite(lengths)
    scaled: Floats = np.where(good, vectors, 0.0) * (
        radius / np.maximum(np.where(good, lengths, radius), radius)
    )
    return scaled


def ball(radius: float, relation: Relation, apart: float = 2.0) -> float:
    """Two points of a ball are at most 2 radius apart, as opposite ones are; zero is a radius away.

    ``apart`` replaces the 2 where no two can be opposite.

    >>> ball(1.5, Relation.REPLACE_ONE), ball(1.5, Relation.ZERO_OUT)
    (3.0, 1.5)
    """
    return radius * (apart if checked_relation(relation) is Relation.REPLACE_ONE else 1.0)


class InBall(Statistic):
    """One part, which gives the statistic its name, of users scaled back to length ``clip``.

    Two of them are at most ``apart`` times that apart; see :func:`ball`.
    """

    clip: float
    part: Part
    apart: ClassVar[float] = 2.0

    def _sums_to(self, part: Part) -> None:
        """Bound that ``__post_init__`` of a subclass declares."""
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise InvalidArgument(f"clip must be finite and > 0, got {self.clip!r}")
        object.__setattr__(self, "part", part)
        object.__setattr__(self, "name", part.name)

    @cached_property
    def layout(self) -> Layout:
        """The one part."""
        return Layout((self.part,))

    def l2(self, relation: Relation) -> float:
        """The distance of two users, or one's length."""
        return ball(self.clip, relation, self.apart)
