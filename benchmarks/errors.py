"""Counters: worst-case error over time at equal budget, relative to the binary tree's."""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.row import Row, at_most, noted
from research.counter_errors import OLDER
from tacit.privacy.counters import Counter, NormalisedSquareRoot, SmoothTree

# Releases, the square root's limit, the smooth tree's under Laplace noise.
LIMITS = ((2**10, 0.312, 0.532), (2**14, 0.287, 0.481), (2**17, 0.275, 0.426))
WHAT = "largest std / binary tree's, {:,} releases"


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    for releases, root_limit, _ in LIMITS:
        what = WHAT.format(releases)
        tree, root = (OLDER[kind](releases, False) for kind in ("binary tree", "square root"))
        smooth = _worst(SmoothTree, releases, mu=1.0)
        # The limit has three decimals, and so has what is compared with it.
        yield at_most("square root", what, round(root / tree, 3), root_limit, digits=".3f")
        yield noted("smooth tree", what, smooth / tree, digits=".3f")
    root = OLDER["square root"](1024, False)
    normalised = _worst(NormalisedSquareRoot, 1024, mu=1.0)
    what = "largest std / square root's, 1,024 releases"
    yield at_most("normalised square root", what, normalised / root, 0.95, digits=".4f")
    for releases, _, smooth_limit in LIMITS:
        smooth = _worst(SmoothTree, releases, epsilon=1.0)
        tree = math.sqrt(2.0) * OLDER["binary tree"](releases, True)
        what = WHAT.format(releases)
        yield at_most("smooth tree, Laplace", what, smooth / tree, smooth_limit, digits=".3f")


def _worst(kind: type[Counter], releases: int, **cost: float) -> float:
    return float(kind(releases=releases, **cost).std.max())
