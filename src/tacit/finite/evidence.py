"""What all releases together say about every cell, weighted by how much each block can know.

A block measures the visits of a cell with noise of standard deviation s. If m visits are expected
of it, the best linear combination of such measurements weights each by w = m / s^2. What is
expected comes from the policy and the model that were public before the block, so a large block
that hardly visits a cell does not drown what is known about it. A model can be wrong, so every
block counts as if it had a few visits more: five standard deviations of a cell's noise. Kept are
the weighted sums and their variances, sum w^2 s^2, over the blocks in which the cell could be
reached. Under local DP s^2 grows with the users of a block, and without privacy s is 0: there all
weights are the same, and the sums are plain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tacit.finite.visits import VisitCounts
    from tacit.privacy.curator import Release

Floats = NDArray[np.float64]

# Standard deviations of a cell's noise that every block is taken to have as visits.
_FLOOR = 5.0


@dataclass(frozen=True)
class Counts:
    """Noisy counts and the standard deviations of their noise, with L = 1 or H."""

    transitions: Floats  # (L, S, A, S)
    rewards: Floats  # (L, S, A)
    reached: NDArray[np.bool_]  # (L, S, A), whether any policy so far could reach the cell
    noise: Floats  # (L, S, A), standard deviation of the noise in each entry of ``transitions``
    reward_noise: Floats  # the same for ``rewards``


@dataclass(frozen=True, eq=False)
class CountEstimate:
    """The weighted sum of everything released so far; see the module.

    Attributes:
        plain: Whether all blocks weigh the same.
        transitions, rewards: Weighted sums, (L, S, A, S) and (L, S, A).
        variance: Of the noise in each entry of a cell.
        reached: Whether any policy so far could reach a cell.
        noise, reward_noise: Standard deviations of the last release's.
    """

    plain: bool
    transitions: Floats
    rewards: Floats
    variance: Floats
    reached: NDArray[np.bool_]
    noise: float = 0.0
    reward_noise: float = 0.0

    @classmethod
    def empty(cls, shape: tuple[int, ...], plain: bool) -> CountEstimate:
        """Before any release, for ``shape`` = (L, S, A)."""
        sums = np.zeros((*shape, shape[1])), np.zeros(shape), np.zeros(shape)
        return cls(plain, *sums, np.zeros(shape, dtype=bool))

    def added(
        self, release: Release, statistic: VisitCounts, users: int, expected: Floats | None = None
    ) -> CountEstimate:
        """With a block of users; ``expected`` (L, S, A) are visits of one, else all the same."""
        at = statistic.where
        noise = float(np.max(release.std["transitions"]))
        weight = np.ones(statistic.size)
        if not self.plain:
            visits = users * (weight if expected is None else expected[at])
            # Visits that every block is taken to have in a cell.
            few = float(_FLOOR * noise * np.sqrt(self.transitions.shape[-1]))
            weight = (visits + few) / noise**2
        transitions, rewards = self.transitions.copy(), self.rewards.copy()
        variance, reached = self.variance.copy(), self.reached.copy()
        transitions[at] += weight[:, np.newaxis] * release["transitions"]
        rewards[at] += weight * release["rewards"]
        variance[at] += (weight * noise) ** 2
        reached[at] = True
        reward_noise = float(np.max(release.std["rewards"]))
        sums = transitions, rewards, variance, reached
        return CountEstimate(self.plain, *sums, noise, reward_noise)

    def counts(self) -> Counts:
        """Plain sums, or sums on the scale on which each entry has the last block's noise."""
        std = np.sqrt(self.variance)
        if self.plain:
            factor = np.ones(std.shape)
        else:
            factor = self.noise / np.where(self.reached, std, np.inf)
        noise = std * factor
        ratio = self.reward_noise / self.noise if self.noise > 0.0 else 0.0
        return Counts(
            self.transitions * factor[..., np.newaxis],
            self.rewards * factor,
            self.reached,
            noise,
            noise * ratio,
        )
