"""Base of all algorithms on vectors: their specs, first policies and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.continuous.policy import QPolicy
from tacit.core.algorithm import Algorithm, BlockSizes, S
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec
    from tacit.core.problem import Problem

NO_CLIP = 1e9
"""A clip beyond any user, for runs without privacy: it would only bias."""


class BoxAlgorithm(Algorithm[S]):
    """An algorithm that learns values on vectors, of users who are asked one by one.

    A subclass sets ``spec`` (:func:`box_spec`) and ``features``, if it has any, first of all.
    """

    spec: BoxSpec
    features: FeatureMap | None = None
    """The map that values are linear on, where there is one."""

    def behaviour(self) -> QPolicy:
        """Every action with the same chance."""
        return QPolicy.uniform(self.spec.dimension, self.spec.actions)

    def check_gaussian(self, statistic: str) -> None:
        """Refuses budgets that need sensitivities in the 1-norm, which a statistic has not."""
        if self.privacy.needs_l1:
            raise InvalidArgument(
                f"privacy must have delta > 0 and the Gaussian mechanism, got {self.privacy!r}: "
                f"{statistic} have no sensitivity in the 1-norm"
            )

    def _block_sizes(self) -> BlockSizes:
        """All users in one block."""
        return BlockSizes(f"fixed:size={self.users}", size=self.users)

    @property
    def code(self) -> tuple[Any, ...]:
        """Its feature map, which may be a function."""
        return () if self.features is None else (self.features,)


def box_spec(problem: Problem) -> BoxSpec:
    """The spec of a problem, if its states are vectors.

    Raises:
        InvalidArgument: It is of another family.
    """
    spec: BoxSpec = problem.spec
    if not hasattr(spec, "bounded"):
        raise InvalidArgument(f"spec must be a BoxSpec, got {type(spec).__name__}")
    return spec
