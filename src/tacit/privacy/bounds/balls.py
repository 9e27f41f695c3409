"""Users' vectors in a ball: how they are scaled back to it, and how far apart two of them are."""

from __future__ import annotations

import math

import numpy as np

from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats


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


def ball(radius: float, relation: Relation) -> float:
    """Two points of a ball are at most 2 radius apart, as opposite ones are; zero is a radius away.

    >>> ball(1.5, Relation.REPLACE_ONE), ball(1.5, Relation.ZERO_OUT)
    (3.0, 1.5)
    """
    return radius * (2.0 if checked_relation(relation) is Relation.REPLACE_ONE else 1.0)


def acute(radius: float, relation: Relation) -> float:
    """Of points of a ball no two of which are at an obtuse angle: at most sqrt(2) radius apart."""
    return radius * (math.sqrt(2.0) if checked_relation(relation) is Relation.REPLACE_ONE else 1.0)


def check_clip(clip: float) -> None:
    """A length that users are scaled back to."""
    if not (math.isfinite(clip) and clip > 0):
        raise InvalidArgument(f"clip must be finite and > 0, got {clip!r}")
