"""Values that are fitted to one user alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tacit.continuous.feature_map import FeatureMap
from tacit.continuous.fitted_q import fitted_q
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.steps import steps_of
from tacit.privacy.bounds.balls import ball, scaled_back
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic


@dataclass(frozen=True)
class OwnValues(Statistic):
    """The weights of a Q that is fitted to a user's episode alone, clipped to norm ``radius``.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. Steps with invalid values are
    dropped; a user without any other has zero weights. The mean over actions, which no policy
    depends on, is subtracted before the clip.

    Sensitivity. Two points of a ball are at most 2 radius apart, and opposite points are.
    """

    spec: BoxSpec
    features: FeatureMap
    discount: float
    ridge: float
    radius: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius > 0 and self.ridge > 0):
            raise InvalidArgument(
                f"radius and ridge must be > 0, got {self.radius!r} and {self.ridge!r}"
            )
        object.__setattr__(self, "name", "users' own values")

    @cached_property
    def layout(self) -> Layout:
        """``weights``, one row for each action."""
        return Layout((Part("weights", (self.spec.actions, self.features.size)),))

    def l2(self, relation: Relation) -> float:
        """2 radius, or radius."""
        return ball(self.radius, relation)

    def vectors(self, block: Block) -> Floats:
        """One fit for each user."""
        states, actions, rewards, valid, over = steps_of(block, self.spec, inside=True)
        features = self.features(states)
        given = actions, rewards, valid, over, self.spec, self.discount, self.ridge
        weights = fitted_q(features[:, :-1], features[:, 1:], *given)
        weights -= weights.mean(axis=1, keepdims=True)
        return scaled_back(weights.reshape(block.users, self.layout.size), self.radius)
