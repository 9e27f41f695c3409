"""Mirror steps: how policy optimisation improves a stochastic policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.options import TheoryOptions
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.policy import Policy, softmax
from tacit.privacy.arguments import positive, whole_number


@dataclass(frozen=True, kw_only=True)
class MirrorOptions(TheoryOptions):
    """Options of policy optimisation.

    Attributes:
        eta: step size; by default the papers' sqrt(2 ln A / (H^2 R)) for R steps in all with
            ``bonus="theory"``, and ln(A) / 2 otherwise.
        steps: mirror steps per release; 1 by default in theory, else 15.
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
    def one_step(self) -> bool:
        """Whether steps are the papers', of which a release has one."""
        return self.options.bonus == "theory"

    @property
    def steps(self) -> int:
        """Mirror steps per release."""
        return self.options.steps or (1 if self.one_step else 15)

    @property
    def eta(self) -> float:
        """The step size."""
        if self.options.eta is not None:
            return self.options.eta
        A, H = self.spec.actions, self.spec.horizon
        if self.one_step:
            return math.sqrt(2.0 * math.log(A) / (H**2 * self.schedule.releases * self.steps))
        return math.log(A) / 2.0

    def improved(self, evaluate: Callable[[Floats], Floats]) -> Policy:
        """The current policy after its mirror steps, given what evaluates (H, S, A) tables."""
        # In practice nothing that was learnt from less is held against an action for ever.
        logits = np.log(np.maximum(self.policy.table(), 1e-30 if self.one_step else 1e-3))
        for _ in range(self.steps):
            logits = logits + self.eta * evaluate(softmax(logits))
        return Policy.stochastic(softmax(logits), version=self.releases)

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().identity() | {"eta": self.eta, "steps": self.steps}
