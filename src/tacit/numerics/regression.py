"""Ridge regression on noisy sums, whose noise is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True, eq=False)
class BlockSums:
    """Weighted sums of the parts of releases, and the variances of their noise.

    A block of n users has signal n and noise s, so the best linear combination weights it by
    n / s^2. Without noise all weigh the same, and if ``plain``.
    """

    plain: bool = False
    top: float = 0.0  # the largest weight
    parts: Mapping[str, Floats] = field(default_factory=dict)
    variances: Mapping[str, Floats] = field(default_factory=dict)

    def added(
        self,
        parts: Mapping[str, Floats],
        noise: Mapping[str, float | Floats],
        unit: float,
        users: int,
    ) -> BlockSums:
        """Sums with one more block.

        Args:
            parts: its released sums, by name.
            noise: standard deviations of their noise, by part or row.
            unit: standard deviation of the noise of a part with weight 1.
            users: of the block.
        """
        weight = users / unit**2 if unit > 0.0 and not self.plain else 1.0
        sums, variances = dict(self.parts), dict(self.variances)
        for name, part in parts.items():
            sums[name] = sums.get(name, np.zeros(1)) + weight * part
            variance = (weight * np.asarray(noise[name], dtype=np.float64)) ** 2
            variances[name] = np.asarray(variances.get(name, 0.0) + variance)
        return BlockSums(self.plain, max(self.top, weight), sums, variances)

    def scaled(self, name: str) -> Floats:
        """A part on the scale on which the block that weighs most counts in full."""
        return self.parts[name] / self.top

    def noise(self, name: str) -> Floats:
        """The standard deviation of its noise, on that scale."""
        spread: Floats = np.sqrt(self.variances[name]) / self.top
        return spread


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
