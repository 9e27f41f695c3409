"""Weights that add up to 1: the directions in which they can differ."""

from __future__ import annotations

import numpy as np

from tacit.privacy.statistic import Floats


def helmert(d: int) -> Floats:
    """An orthonormal basis, (d, d - 1), of the vectors of R^d whose entries add up to 0.

    Helmert's: column j is (1, .., 1, -j, 0, ..), normalised, with j ones.

    >>> (helmert(3).T @ np.ones(3)).round(12).tolist(), helmert(3).shape
    ([0.0, 0.0], (3, 2))
    """
    basis = np.triu(np.ones((d, d - 1)))
    j = np.arange(1, d)
    basis[j, j - 1] = -j
    directions: Floats = basis / np.sqrt(j * (j + 1.0))
    return directions


def halved(d: int, rng: np.random.Generator) -> Floats:
    """D weights of which each is half of the next larger one, in an order that is drawn."""
    weights: Floats = np.exp2(-np.arange(d, dtype=np.float64))
    drawn: Floats = rng.permutation(weights / weights.sum())
    return drawn
