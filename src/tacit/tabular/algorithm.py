"""Base of algorithms for finite worlds, whose policies are tables of states and actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from tacit.core.algorithm import Algorithm, Floats, S
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import positive

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.tabular.policy import MixedPolicy, Policy

P = TypeVar("P", "Policy", "MixedPolicy")


class FiniteAlgorithm(Algorithm[S]):
    """An algorithm whose policies are tables."""

    knows_admissible: ClassVar[bool] = False
    """Whether it chooses only what states allow; others are for specs that allow everything."""

    def __init__(self, problem: Problem, options: Any) -> None:
        if getattr(problem.spec, "admissible", None) is not None and not self.knows_admissible:
            raise InvalidArgument(
                f"{self.name} counts and plans with all actions, but the spec has admissible ones: "
                "policy_improvement knows of them"
            )
        super().__init__(problem, options)

    def first_policy(self, rng: np.random.Generator) -> Policy:
        """Before anything is known: random actions, drawn once."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        return self._deterministic(rng.integers(0, A, (H, S)))

    def best(self, q_values: Floats, rng: np.random.Generator) -> Policy:
        """The best actions by (H, S, A) values, ties broken at random, once."""
        ties = np.where(
            q_values == q_values.max(axis=-1, keepdims=True), rng.random(q_values.shape), -1.0
        )
        return self._deterministic(ties.argmax(axis=-1))

    def _deterministic(self, actions: Any) -> Policy:
        from tacit.tabular.policy import Policy

        return self.named(Policy.deterministic(actions, self.spec.actions))

    def named(self, policy: P) -> P:
        """The policy with the spec's labels, if it has any."""
        labels = [getattr(self.spec, f"{part}_labels", None) for part in ("state", "action")]
        return policy if labels == [None, None] else policy.labelled(*labels)


@dataclass(frozen=True, kw_only=True)
class OptimismOptions:
    """How optimistic an algorithm is.

    Attributes:
        scale: multiplies the bonus.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive("scale", self.scale)
