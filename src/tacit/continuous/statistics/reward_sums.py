"""Users' rewards alone, where states and actions are public."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.continuous.feature_map import is_grid
from tacit.continuous.statistics.clipped_sums import ResidualSums
from tacit.continuous.statistics.steps import REWARDS_ONLY
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument


@dataclass(frozen=True, eq=False)
class RewardSums(ResidualSums):
    """Residuals without values and predictions, of which only rewards may change.

    Sensitivity. States and actions of two neighbours are the same. With rewards within a range of
    R, residuals differ by at most R / unit, and functions by H (R / unit) times the longest
    K(s, .). Scaling back to a ball brings no two points farther apart, so that bound holds after
    it, too. If the rewards of all n users move by at most ``radius`` together, the sum moves by at
    most n times as much as one of them can, that is n H (radius / unit) times the longest K(s, .),
    and never by more than 2 n clip.

    Attributes:
        radius: of the reward function, where that is what may change.
        group_size: how many users change together, where all do.
    """

    radius: float | None = None
    group_size: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values.any() or self.predictions.any():
            # A reward that is not a number drops its step, and with it what was predicted.
            raise InvalidArgument("values and predictions must be zero where rewards are protected")

    @property
    def protects(self) -> str:
        """A user's rewards, or one reward function that is to look like another nearby."""
        if self.radius is None:
            return REWARDS_ONLY
        return (
            f"the reward function, moved by at most {self.radius:g} in sup norm; "
            "states and actions are public"
        )

    @property
    def private_columns(self) -> frozenset[str]:
        """Rewards only."""
        return frozenset({"rewards"})

    def l2(self, relation: Relation) -> float:
        """See the class."""
        low, high = self.spec.reward_range
        moved = high - low if self.radius is None else min(self.radius, high - low)
        most = self.spec.horizon * moved / self.unit * self._longest
        if checked_relation(relation) is Relation.ZERO_OUT and self.radius is None:
            # Who is left out altogether counts as zero, which is at most clip away.
            return self.clip
        bound = min(2.0 * self.clip, most)
        if self.radius is None:
            # Zero is a neighbour at the gate: nothing is ever declared shorter than that.
            return max(bound, self.clip)
        return self.group_size * bound

    @property
    def _longest(self) -> float:
        """The longest K(s, .)."""
        if is_grid(self.features):
            # Weights of grid points are convex, so a point of the grid is longest.
            return float(np.linalg.norm(self.root, axis=1).max())
        return float(np.linalg.norm(self.root, 2)) * self.features.bound
