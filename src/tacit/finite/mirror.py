"""Mirror steps: how policy optimisation improves a stochastic policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.options import OptimismOptions
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.policy import Policy, softmax
from tacit.privacy.arguments import positive, whole_number


@dataclass(frozen=True, kw_only=True)
class MirrorOptions(OptimismOptions):
    """Options of policy optimisation.

    Attributes:
        eta: step size, ln(A) / 2 by default.
        steps: mirror steps per release, 15 by default.
    """

    eta: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eta is not None:
            positive("eta", self.eta)
        if self.steps is not None:
            whole_number("steps", self.steps)


class MirrorAlgorithm(FiniteAlgorithm):
    """An algorithm that multiplies each action's probability by exp(eta Q), again and again."""

    deterministic = False
    options: MirrorOptions

    @property
    def steps(self) -> int:
        """Mirror steps per release."""
        return self.options.steps or 15

    @property
    def eta(self) -> float:
        """The step size."""
        if self.options.eta is not None:
            return self.options.eta
        return math.log(self.spec.actions) / 2.0

    def improved(self, evaluate: Callable[[Floats], Floats]) -> Policy:
        """The current policy after its mirror steps, given what evaluates (H, S, A) tables."""
        # Nothing that was learnt from less is held against an action for ever.
        logits = np.log(np.maximum(self.policy.table(), 1e-3))
        for _ in range(self.steps):
            logits = logits + self.eta * evaluate(softmax(logits))
        return Policy.stochastic(softmax(logits), version=self.releases)

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().identity() | {"eta": self.eta, "steps": self.steps}
