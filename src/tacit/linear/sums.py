"""Feature sums over all blocks. Public: only releases come in here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.learner import Arrays
from tacit.linear.models import Sums
from tacit.linear.statistics import FeatureSums
from tacit.privacy.gate import Release
from tacit.privacy.statistic import Statistic


class SumEvidence:
    """Feature sums of all blocks, each weighted by what it knows. Public.

    A block of n users has signal n and noise s, so the best linear combination weights it by
    n / s^2; without noise all weigh the same.

    Args:
        plain: whether all blocks weigh the same anyway: the theory is for weights that are known
            when their users come, which a share of all blocks so far is not.
    """

    def __init__(self, plain: bool = False) -> None:
        self.plain = plain
        self.arrays: Arrays = {}
        self.variance = 0.0
        self.top = 0.0
        self.shares = (1.0, 1.0)

    def add(self, release: Release, statistic: Statistic, users: int) -> None:
        """Adds the release of a block of ``users`` users."""
        assert isinstance(statistic, FeatureSums)  # noqa: S101
        noise = float(np.max(release.std["gram"])) * math.sqrt(statistic.gram)
        weight = users / noise**2 if noise > 0.0 and not self.plain else 1.0
        d, L = statistic.dimension, statistic.rows
        parts = {
            "gram": statistic.gram_of(release["gram"]),
            "next": release["next"] if statistic.following else np.zeros((L, d, 1)),
            "rewards": release["rewards"] if statistic.reward > 0.0 else np.zeros((L, d)),
        }
        for name, part in parts.items():
            self.arrays[name] = self.arrays.get(name, 0.0) + weight * part
        self.variance += (weight * noise) ** 2
        self.top = max(self.top, weight)
        self.shares = (statistic.gram, statistic.reward)

    def sums(self) -> Sums:
        """On the scale on which the block that weighs most counts in full."""
        noise = math.sqrt(self.variance) / self.top
        gram, reward = self.shares
        return Sums(
            self.arrays["gram"] / self.top,
            self.arrays["next"] / self.top,
            self.arrays["rewards"] / self.top,
            noise,
            noise / math.sqrt(gram),
            noise / math.sqrt(reward) if reward > 0.0 else 0.0,
        )

    def meta(self) -> dict[str, Any]:
        """What a save holds beside the arrays."""
        return {"variance": self.variance, "top": self.top, "shares": list(self.shares)}

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """Puts back what a save holds."""
        self.arrays = arrays
        self.variance, self.top = meta["variance"], meta["top"]
        self.shares = (meta["shares"][0], meta["shares"][1])
