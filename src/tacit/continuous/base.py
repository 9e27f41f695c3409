"""What all algorithms on vectors share: how they begin, and what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.continuous.policy import QPolicy
from tacit.core.algorithm import Algorithm, BlockSizes, S
from tacit.privacy.arguments import checked_number
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec
    from tacit.core.problem import Problem

NO_CLIP = 1e9
"""A clip that clips nobody: without privacy it would only bias."""


class BoxAlgorithm(Algorithm[S]):
    """An algorithm that learns Q on vectors, of users who are asked one by one."""

    spec: BoxSpec
    features: FeatureMap | None = None
    """The map that values are linear on, where there is one."""

    def behaviour(self) -> QPolicy:
        """Every action with the same chance."""
        return QPolicy.uniform(self.spec.dimension, self.spec.actions)

    def _block_sizes(self) -> BlockSizes:
        """All users in one block."""
        return BlockSizes(f"fixed:size={self.users}", size=self.users)

    @property
    def code(self) -> tuple[Any, ...]:
        """Its feature map, which may be a function."""
        return () if self.features is None else (self.features,)


def box_spec(problem: Problem) -> BoxSpec:
    """The spec that an algorithm was told, if it is of vectors."""
    spec: BoxSpec = problem.spec
    if not hasattr(spec, "bounded"):
        raise InvalidArgument(f"spec must be a BoxSpec, got {type(spec).__name__}")
    return spec


def discount_of(discount: Any, spec: BoxSpec) -> float:
    """A discount in [0, 1), the spec's if none is given."""
    if discount is None:
        return spec.discount
    return checked_number("discount", discount, "in [0, 1)", lambda number: 0.0 <= number < 1.0)
