"""What all algorithms on vectors share: their policies, and how saves hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.continuous.policy import QPolicy
from tacit.core.algorithm import Algorithm, Pace
from tacit.core.asks import Arrays
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.continuous.feature_map import FeatureMap
    from tacit.continuous.spec import BoxSpec
    from tacit.core.setting import Setting


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

    def _pace(self) -> Pace:
        """All users in one block."""
        return Pace(f"fixed:size={self.users}", size=self.users)

    # Save and resume.

    def policy_arrays(self, policy: QPolicy) -> Arrays:
        """See :meth:`QPolicy.arrays`."""
        return policy.arrays()

    def policy_of(self, arrays: Arrays, version: int) -> QPolicy:
        """The inverse, to the bit."""
        return QPolicy.from_arrays(arrays, version, self.features)


def box_spec(setting: Setting) -> BoxSpec:
    """The spec that an algorithm was told, if it is of vectors."""
    spec: BoxSpec = setting.spec
    if not hasattr(spec, "bounded"):
        raise InvalidArgument(f"spec must be a BoxSpec, got {type(spec).__name__}")
    return spec
