"""Feature sums over all blocks. Public: only releases come in here."""

from __future__ import annotations

import math

import numpy as np

from tacit.linear.models import Sums
from tacit.linear.statistics import FeatureSums
from tacit.numerics.block_sums import BlockSums
from tacit.privacy.curators.gate import Release


def add_features(sums: BlockSums, release: Release, statistic: FeatureSums, users: int) -> None:
    """Adds the release of a block of ``users`` users; what was not asked for is zero."""
    unit = float(np.max(release.std["gram"])) * math.sqrt(statistic.gram)
    d, L = statistic.dimension, statistic.rows
    parts = {
        "gram": statistic.gram_of(release["gram"]),
        "next": release["next"] if statistic.following else np.zeros((L, d, 1)),
        "rewards": release["rewards"] if statistic.reward > 0.0 else np.zeros((L, d)),
    }
    noise = {
        "gram": unit / math.sqrt(statistic.gram),
        "next": unit if statistic.following else 0.0,
        "rewards": unit / math.sqrt(statistic.reward) if statistic.reward > 0.0 else 0.0,
    }
    sums.add(parts, noise, unit, users)


def feature_sums(sums: BlockSums) -> Sums:
    """All blocks together."""
    return Sums(
        sums.scaled("gram"),
        sums.scaled("next"),
        sums.scaled("rewards"),
        float(sums.noise("next")),
        float(sums.noise("gram")),
        float(sums.noise("rewards")),
    )
