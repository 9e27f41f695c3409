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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tacit.core.asks import State
    from tacit.finite.visits import VisitCounts
    from tacit.privacy.curators.gate import Release

Floats = NDArray[np.float64]

# Standard deviations of a cell's noise that every block is taken to have as visits.
_FLOOR = 5.0
# What a save keeps.
_ARRAYS = ("transitions", "rewards", "variance", "reached")


@dataclass(frozen=True)
class Counts:
    """Noisy counts and the standard deviations of their noise, with L = 1 or H."""

    transitions: Floats  # (L, S, A, S)
    rewards: Floats  # (L, S, A)
    reached: NDArray[np.bool_]  # (L, S, A), whether any policy so far could reach the cell
    noise: Floats  # (L, S, A), standard deviation of the noise in each entry of ``transitions``
    reward_noise: Floats  # the same for ``rewards``


class Evidence:
    """The sum of everything released so far, public; ``plain`` if all blocks weigh the same."""

    def __init__(self, shape: tuple[int, ...], plain: bool) -> None:
        self.plain = plain
        self.transitions = np.zeros((*shape, shape[1]))
        self.rewards = np.zeros(shape)
        self.variance = np.zeros(shape)
        self.reached = np.zeros(shape, dtype=bool)
        self.noise = 0.0
        self.reward_noise = 0.0

    def add(
        self, release: Release, statistic: VisitCounts, users: int, expected: Floats | None = None
    ) -> None:
        """Adds a block of users; ``expected`` (L, S, A) are visits of one, else all the same."""
        at = statistic.where
        self.noise = float(np.max(release.std["transitions"]))
        self.reward_noise = float(np.max(release.std["rewards"]))
        weight = np.ones(statistic.size)
        if not self.plain:
            visits = users * (weight if expected is None else expected[at])
            weight = (visits + self._few) / self.noise**2
        parts = release.parts
        self.transitions[at] += weight[:, np.newaxis] * parts["transitions"]
        self.rewards[at] += weight * parts["rewards"]
        self.variance[at] += (weight * self.noise) ** 2
        self.reached[at] = True

    @property
    def _few(self) -> float:
        """Visits that every block is taken to have in a cell."""
        return float(_FLOOR * self.noise * np.sqrt(self.transitions.shape[-1]))

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

    def dump(self) -> State:
        """What a save holds."""
        noise = {"noise": self.noise, "reward_noise": self.reward_noise}
        return noise, {name: getattr(self, name) for name in _ARRAYS}

    def restore(self, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Puts back what :meth:`dump` returned."""
        self.noise, self.reward_noise = meta["noise"], meta["reward_noise"]
        for name in _ARRAYS:
            setattr(self, name, arrays[name])
