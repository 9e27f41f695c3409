"""Released sums of many blocks, each weighted by what it knows. Public: only releases come in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class BlockSums:
    """Weighted sums of the parts of releases, and the variances of their noise.

    A block of n users has signal n and noise s, so the best linear combination weights it by
    n / s^2. Without noise all weigh the same, and if ``plain``.
    """

    def __init__(self, plain: bool = False) -> None:
        self.plain = plain
        self.top = 0.0
        self.parts: dict[str, Floats] = {}
        self.variances: dict[str, Floats] = {}

    def add(
        self,
        parts: Mapping[str, Floats],
        noise: Mapping[str, float | Floats],
        unit: float,
        users: int,
    ) -> None:
        """Adds a block: its sums by name, their noise (by part or row), and that of weight 1."""
        weight = users / unit**2 if unit > 0.0 and not self.plain else 1.0
        for name, part in parts.items():
            self.parts[name] = self.parts.get(name, np.zeros(1)) + weight * part
            variance = (weight * np.asarray(noise[name], dtype=np.float64)) ** 2
            self.variances[name] = np.asarray(self.variances.get(name, 0.0) + variance)
        self.top = max(self.top, weight)

    def scaled(self, name: str) -> Floats:
        """A part on the scale on which the block that weighs most counts in full."""
        return self.parts[name] / self.top

    def noise(self, name: str) -> Floats:
        """The standard deviation of its noise, on that scale."""
        spread: Floats = np.sqrt(self.variances[name]) / self.top
        return spread

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a save holds."""
        arrays: dict[str, NDArray[Any]] = {f"parts/{n}": a for n, a in self.parts.items()}
        arrays |= {f"variances/{n}": a for n, a in self.variances.items()}
        return {"top": self.top}, arrays

    def restore(self, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Puts back what :meth:`dump` returned."""
        self.top = meta["top"]
        for kind, kept in (("parts/", self.parts), ("variances/", self.variances)):
            kept.clear()
            kept |= {n.removeprefix(kind): a for n, a in arrays.items() if n.startswith(kind)}
