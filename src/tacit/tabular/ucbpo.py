"""UCBPO: optimistic policy optimisation on private counts (Private-UCB-PO of Chowdhury, Zhou)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.algorithm import Floats
from tacit.finite.policy import Policy, softmax
from tacit.privacy.arguments import positive, whole_number
from tacit.tabular.base import TabularOptions
from tacit.tabular.ucbvi import UCBVI


@dataclass(frozen=True, kw_only=True)
class UCBPOOptions(TabularOptions):
    """Options of :class:`UCBPO`, besides those of all tabular algorithms.

    Attributes:
        eta: step size; by default the paper's sqrt(2 ln A / (H^2 R)) for R steps in all with
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


class UCBPO(UCBVI):
    """Optimistic policy optimisation: mirror steps towards better actions.

    Idea: evaluate the current stochastic policy in the optimistic world of :class:`UCBVI`, then
    multiply each action's probability by exp(eta Q). The paper makes one such step per episode;
    here a release is followed by ``steps`` of them, which is post-processing and costs nothing.

    Private statistics: those of UCBVI. The policy is stochastic, so counts cannot be masked by it.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "ucbpo"
    deterministic = False
    Options = UCBPOOptions
    options: UCBPOOptions

    @property
    def steps(self) -> int:
        """Mirror steps per release."""
        return self.options.steps or (1 if self.options.bonus == "theory" else 15)

    @property
    def eta(self) -> float:
        """The step size."""
        if self.options.eta is not None:
            return self.options.eta
        A, H = self.spec.actions, self.spec.horizon
        if self.options.bonus == "theory":
            return math.sqrt(2.0 * math.log(A) / (H**2 * self.schedule.releases * self.steps))
        return math.log(A) / 2.0

    def plan(self) -> tuple[Policy, Policy]:
        """Mirror steps in the optimistic world; the greedy policy is that of UCBVI."""
        # Value iteration gives the optimistic model's bonuses; the policy is improved against it.
        _, greedy = super().plan()
        # In practice nothing that was learned from less is held against an action for ever.
        floor = 1e-30 if self.options.bonus == "theory" else 1e-3
        logits = np.log(np.maximum(self.policy.table(), floor))
        for _ in range(self.steps):
            logits = logits + self.eta * self._evaluate(softmax(logits))
        return Policy.stochastic(softmax(logits), version=self.releases), greedy

    def _next_term(self) -> float:
        """The policy is not greedy in its own values: a bound over all values costs sqrt(S)."""
        sizes = self.spec.states * self.spec.actions * self.users * self.spec.horizon
        return math.sqrt(4.0 * self.spec.states * math.log(6 * sizes / self.options.failure))

    def _evaluate(self, policy: Floats) -> Floats:
        """Optimistic Q of the policy, in the world that the last plan was made for."""
        P, r, b = self._world
        horizon, last = self.spec.horizon, len(r) - 1
        q_values, value = np.empty(policy.shape), np.zeros(policy.shape[1])
        for h in range(horizon - 1, -1, -1):
            at = min(h, last)
            q_values[h] = np.clip(r[at] + P[at] @ value + b[h], 0.0, horizon - h)
            value = (policy[h] * q_values[h]).sum(axis=1)
        return q_values

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().identity() | {"eta": self.eta, "steps": self.steps}
