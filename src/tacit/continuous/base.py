"""What all algorithms on vectors share: their policies, how saves hold them, what they refuse."""

from __future__ import annotations

import contextlib
import math
import numbers
from typing import TYPE_CHECKING, Any

from tacit.continuous.policy import QPolicy
from tacit.core.algorithm import Algorithm, Pace
from tacit.core.asks import Arrays
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
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


def real(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
            if math.isfinite(number):
                return number
    raise InvalidArgument(f"{name} must be a finite number, got {value!r}")


def discount_of(discount: Any, spec: BoxSpec) -> float:
    """A discount in [0, 1), the spec's if none is given."""
    number = spec.discount if discount is None else real("discount", discount)
    if not 0.0 <= number < 1.0:
        raise InvalidArgument(f"discount must be in [0, 1), got {discount!r}")
    return number
