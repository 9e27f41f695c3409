"""Counters: worst-case error over time at equal budget, relative to the binary tree's."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from benchmarks.row import Row, at_most, noted
from tacit.privacy.counters import Counter, NormalisedSquareRoot, SmoothTree
from tacit.privacy.counters.dense import sqrt_coefficients

# Releases, the square root's limit, the smooth tree's under Laplace noise.
LIMITS = ((2**10, 0.312, 0.532), (2**14, 0.287, 0.481), (2**17, 0.275, 0.426))
WHAT = "largest std / binary tree's, {:,} releases"


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    for releases, root_limit, _ in LIMITS:
        what = WHAT.format(releases)
        tree, root = _binary_tree(releases, pure=False), _square_root(releases)
        smooth = _worst(SmoothTree, releases, mu=1.0)
        # The limit has three decimals, and so has what is compared with it.
        yield at_most("square root", what, round(root / tree, 3), root_limit, digits=".3f")
        yield noted("smooth tree", what, smooth / tree, digits=".3f")
    root = _square_root(1024)
    normalised = _worst(NormalisedSquareRoot, 1024, mu=1.0)
    what = "largest std / square root's, 1,024 releases"
    yield at_most("normalised square root", what, normalised / root, 0.95, digits=".4f")
    for releases, _, smooth_limit in LIMITS:
        smooth = _worst(SmoothTree, releases, epsilon=1.0)
        tree = math.sqrt(2.0) * _binary_tree(releases, pure=True)
        what = WHAT.format(releases)
        yield at_most("smooth tree, Laplace", what, smooth / tree, smooth_limit, digits=".3f")


def _binary_tree(releases: int, pure: bool) -> float:
    """A user is in a node of each level; a sum is over the ones of its number, in binary."""
    levels = releases.bit_length()
    # The number below with most ones: 2^(levels - 1) - 1, or what comes after it.
    ones = max(levels - 1, releases.bit_count(), 1)
    ones = max(ones, *(((releases >> k << k) - 1).bit_count() for k in range(levels)))
    return math.sqrt(ones) * (levels if pure else math.sqrt(levels))


def _square_root(releases: int) -> float:
    """The square root, for many releases by Landau's formula, whose error is below 1 / n^2."""
    if releases <= 1024:
        return float((sqrt_coefficients(releases) ** 2).sum())
    return (math.log(releases - 0.25) + np.euler_gamma + 4.0 * math.log(2.0)) / math.pi


def _worst(kind: type[Counter], releases: int, **cost: float) -> float:
    return float(kind(releases=releases, **cost).std.max())
