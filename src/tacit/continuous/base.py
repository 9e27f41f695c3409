"""What all algorithms on vectors share: their policies, and how saves hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.feature_map import FeatureMap
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.core.algorithm import Algorithm, Setting
from tacit.core.asks import Arrays
from tacit.core.schedule import Schedule
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]


class BoxAlgorithm(Algorithm[QPolicy]):
    """An algorithm that learns Q on vectors, of users who are asked one by one."""

    spec: BoxSpec
    features: FeatureMap | None = None
    """The map that values are linear on, where there is one."""

    def behaviour(self) -> QPolicy:
        """Every action with the same chance."""
        return QPolicy.uniform(self.spec.dimension, self.spec.actions, version=self.releases)

    def _first_policies(self) -> tuple[QPolicy, QPolicy]:
        first = self.behaviour()
        return first, first

    def _choose_schedule(self, schedule: str | Schedule) -> Schedule:
        """All users in one block by default."""
        if schedule == "auto":
            return Schedule.parse(f"fixed:size={self.users}", self.users)
        return Schedule.of(schedule, self.users)

    # Save and resume.

    def policy_arrays(self, policy: QPolicy) -> Arrays:
        """See :meth:`QPolicy.arrays`."""
        return policy.arrays()

    def policy_of(self, arrays: Arrays, version: int) -> QPolicy:
        """The inverse, to the bit."""
        return QPolicy.from_arrays(arrays, version, self.features)


def box_spec(setting: Setting) -> BoxSpec:
    """The spec that an algorithm was told, if it is of vectors."""
    spec: Any = setting.spec
    if not isinstance(spec, BoxSpec):
        raise InvalidArgument(f"spec must be a BoxSpec, got {type(spec).__name__}")
    return spec
