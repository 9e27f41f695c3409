"""Released sums of many blocks, each weighted by what it knows. Public: only releases come in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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
        """With a block: its sums by name, their noise (by part or row), and that of weight 1."""
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
