"""UCBPO: optimistic policy optimisation on private counts (Private-UCB-PO of Chowdhury, Zhou)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.finite.policy import Policy, softmax
from tacit.privacy.arguments import positive, whole_number
from tacit.tabular.ucbvi import UCBVI

Floats = NDArray[np.float64]


class UCBPO(UCBVI):
    """Optimistic policy optimisation: mirror steps towards better actions.

    Idea: evaluate the current stochastic policy in the optimistic world of :class:`UCBVI`, then
    multiply each action's probability by exp(eta Q). The paper makes one such step per episode;
    here a release is followed by ``steps`` of them, which is post-processing and costs nothing.

    Private statistics: those of UCBVI. The policy is stochastic, so counts cannot be masked by it.

    Guarantee: that of its curator; see ``guarantee``.

    Args:
        args: as for :class:`UCBVI`.
        eta: step size; by default the paper's sqrt(2 ln A / (H^2 R)) for R steps in all with
            ``bonus="theory"``, and ln(A) / 2 otherwise.
        steps: mirror steps per release; 1 by default in theory, else 15.
        options: as for :class:`UCBVI`.
    """

    name = "ucbpo"
    deterministic = False

    def __init__(
        self, *args: Any, eta: float | None = None, steps: int | None = None, **options: Any
    ) -> None:
        self._eta = None if eta is None else positive("eta", eta)
        self._steps = None if steps is None else whole_number("steps", steps)
        super().__init__(*args, **options)

    @property
    def steps(self) -> int:
        """Mirror steps per release."""
        return self._steps or (1 if self.bonus == "theory" else 15)

    @property
    def eta(self) -> float:
        """The step size."""
        if self._eta is not None:
            return self._eta
        A, H = self.spec.actions, self.spec.horizon
        if self.bonus == "theory":
            return math.sqrt(2.0 * math.log(A) / (H**2 * self.schedule.releases * self.steps))
        return math.log(A) / 2.0

    def _identity(self) -> dict[str, Any]:
        return super()._identity() | {"eta": self.eta, "steps": self.steps}

    def _plan(self) -> tuple[Policy, Policy]:
        # Value iteration gives the optimistic model's bonuses; the policy is improved against it.
        _, greedy = super()._plan()
        # In practice nothing that was learned from less is held against an action for ever.
        floor = 1e-30 if self.bonus == "theory" else 1e-3
        logits = np.log(np.maximum(self._policy.table(), floor))
        for _ in range(self.steps):
            logits = logits + self.eta * self._evaluate(softmax(logits))
        return Policy.stochastic(softmax(logits), version=self.releases), greedy

    def _next_term(self) -> float:
        """The policy is not greedy in its own values: a bound over all values costs sqrt(S)."""
        sizes = self.spec.states * self.spec.actions * self.users * self.spec.horizon
        return math.sqrt(4.0 * self.spec.states * math.log(6 * sizes / self.failure))

    def _evaluate(self, policy: Floats) -> Floats:
        """Optimistic Q of the policy, in the world that the last plan was made for."""
        probabilities, rewards, bonus = self._world
        horizon, last = self.spec.horizon, len(rewards) - 1
        q_values, value = np.empty(policy.shape), np.zeros(policy.shape[1])
        for h in range(horizon - 1, -1, -1):
            at = min(h, last)
            q = rewards[at] + probabilities[at] @ value + bonus[h]
            q_values[h] = np.clip(q, 0.0, horizon - h)
            value = (policy[h] * q_values[h]).sum(axis=1)
        return q_values
