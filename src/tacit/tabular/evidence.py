"""What all releases together say about every cell, weighted by how much each block can know.

A block of n users measures the visits of a cell, about n times a rate, with noise of standard
deviation s. The best linear combination of such measurements weights each by n / s^2. Kept are
Y = sum (n / s^2) y and I = sum n^2 / s^2 over the blocks in which the cell could be reached: then
Y / sqrt(I) has noise of standard deviation 1. Without noise it is a plain sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.gate import Release
from tacit.tabular.statistics import VisitCounts

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """Noisy counts and the standard deviations of their noise, with L = 1 or H.

    Attributes:
        transitions: (L, S, A, S).
        rewards: (L, S, A).
        reached: (L, S, A), whether any policy so far could reach the cell.
        noise: standard deviation of the noise in each entry of ``transitions``.
        reward_noise: the same for ``rewards``.
    """

    transitions: Floats
    rewards: Floats
    reached: NDArray[np.bool_]
    noise: float
    reward_noise: float


class Evidence:
    """The sum of everything released so far. Public.

    Args:
        shape: (L, S, A).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.transitions = np.zeros((*shape, shape[1]))
        self.rewards = np.zeros(shape)
        self.information = np.zeros(shape)
        self.noise = 0.0
        self.reward_noise = 0.0

    def add(self, release: Release, statistic: VisitCounts, users: int) -> None:
        """Adds the release of a block of ``users`` users."""
        at = statistic.where
        self.noise = float(np.max(release.std["transitions"]))
        self.reward_noise = float(np.max(release.std["rewards"]))
        weight, gain = 1.0, 1.0
        if self.noise > 0.0:
            weight, gain = users / self.noise**2, (users / self.noise) ** 2
        self.transitions[at] += weight * release["transitions"]
        self.rewards[at] += weight * release["rewards"]
        self.information[at] += gain

    def replace(self, release: Release, statistic: VisitCounts, users: int) -> None:
        """Takes a running sum over all blocks, in place of everything before."""
        for array in (self.transitions, self.rewards, self.information):
            array[:] = 0.0
        self.add(release, statistic, users)

    def counts(self) -> Counts:
        """Counts on the scale of the last block, so that each entry has the last block's noise."""
        reached = self.information > 0
        factor = np.ones(reached.shape)
        if self.noise > 0.0:
            factor = self.noise / np.sqrt(np.where(reached, self.information, np.inf))
        return Counts(
            self.transitions * factor[..., np.newaxis],
            self.rewards * factor,
            reached,
            self.noise,
            self.reward_noise,
        )
