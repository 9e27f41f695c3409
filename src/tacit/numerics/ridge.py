"""Ridge regression on noisy sums, whose noise is known."""

from __future__ import annotations

import numpy as np

from tacit.privacy.statistic import Floats


def ridge_inverse(gram: Floats, ridge: float) -> Floats:
    """(max(G, 0) + ridge I)^-1 for symmetric matrices G (..., d, d).

    A noisy Gram matrix can have negative eigenvalues; the true one has none, so cutting them at
    zero brings it no farther from the truth.

    >>> ridge_inverse(np.array([[3.0, 0.0], [0.0, -1.0]]), 1.0).tolist()
    [[0.25, 0.0], [0.0, 1.0]]
    """
    values, vectors = np.linalg.eigh(gram)
    scaled = vectors / (np.maximum(values, 0.0) + ridge)[..., np.newaxis, :]
    inverse: Floats = scaled @ np.swapaxes(vectors, -1, -2)
    return inverse


def positive_part(gram: Floats) -> Floats:
    """Symmetric matrices without their negative eigenvalues."""
    values, vectors = np.linalg.eigh(gram)
    if values.min() >= 0.0:
        return gram
    scaled = vectors * np.maximum(values, 0.0)[..., np.newaxis, :]
    part: Floats = scaled @ np.swapaxes(vectors, -1, -2)
    return part


def always_one(features: Floats) -> Floats | None:
    """The shortest c (d,) with c'phi = 1 in every state and action (S, A, d), if there is one.

    With it sums of what is times phi are sums of that alone.
    """
    table = features.reshape(-1, features.shape[-1])
    solved = np.linalg.lstsq(table, np.ones(len(table)), rcond=None)[0]
    found: Floats = np.asarray(solved, dtype=np.float64)
    return found if np.abs(table @ found - 1.0).max() <= 1e-6 else None
