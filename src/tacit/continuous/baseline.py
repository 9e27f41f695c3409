"""What the baselines of the continuous family share: features, behaviour, saves.

All of them serve users with one public behaviour and publish a greedy policy in the end. They are
here to be compared with at the same budget, under the same accountant.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.continuous.base import BoxAlgorithm, box_spec, discount_of
from tacit.continuous.feature_map import FeatureMap
from tacit.continuous.features import default_polynomial
from tacit.continuous.grid import Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.core.asks import Arrays, State
from tacit.privacy.arguments import steady_repr
from tacit.privacy.sizing import check_question
from tacit.privacy.statistic import Floats, Statistic

if TYPE_CHECKING:
    from tacit.core.setting import Setting

# Points of a grid along each coordinate, by the number of coordinates; beyond, as for the last.
_POINTS = (11, 6, 4)
# Values of more coordinates are linear on monomials.
_MOST_ON_GRID = 2


@dataclass(frozen=True, kw_only=True)
class BaselineOptions:
    """Options of the baselines.

    Attributes:
        features: a public map on which values are linear; the spec's or a grid by default.
        discount: of future rewards; the spec's by default.
    """

    features: FeatureMap | None = None
    discount: float | None = None


class BaselineAlgorithm(BoxAlgorithm):
    """An algorithm that learns linear values on public features."""

    options: BaselineOptions
    ends_greedy: ClassVar[bool] = True
    features: FeatureMap
    sized_by: ClassVar[str] = "radius"
    """The option that users' sensitivity is made of."""

    def __init__(self, setting: Setting, options: BaselineOptions) -> None:
        spec = box_spec(setting)
        self.features = self._choose_features(spec, options.features)
        spec.check_features(self.features)
        spec.check_weights(self.features.size)
        self.discount = discount_of(options.discount, spec)  # of future rewards
        self.weights: Floats = np.zeros((spec.actions, self.features.size))  # Q, (actions, m)
        super().__init__(setting, options)

    @abstractmethod
    def statistic(self) -> Statistic:
        """What is asked of the current block."""

    @property
    def finished(self) -> bool:
        """Whether all users are served; then nobody is left to explore for."""
        return self.releases >= self.schedule.releases or self.served >= self.users

    def plan(self) -> tuple[QPolicy, QPolicy]:
        """The behaviour, and the best actions by Q; these for all in the end."""
        greedy = QPolicy.draw(self.features, self.weights, self.rng, version=self.releases)
        return (greedy if self.finished else self.behaviour()), greedy

    def _choose_features(self, spec: BoxSpec, given: FeatureMap | None) -> FeatureMap:
        given = spec.features if given is None else given
        if given is None and spec.dimension > _MOST_ON_GRID:
            return default_polynomial(spec.lows, spec.highs)
        return default_features(spec) if given is None else given

    def _check(self) -> None:
        check_question(self.statistic(), self.privacy, self.sized_by)

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        own = {"features": steady_repr(self.features), "discount": self.discount}
        return super().identity() | own

    def state(self) -> State:
        """Q."""
        return {}, {"weights": self.weights}

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.weights = arrays["weights"]


def default_features(spec: BoxSpec) -> Grid:
    """A coarse grid: every number that is learnt about users costs noise."""
    points = _POINTS[min(spec.dimension, len(_POINTS)) - 1]
    return Grid(spec.lows, spec.highs, (points,) * spec.dimension)
