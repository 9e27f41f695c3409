"""LinOptPO: optimistic policy optimisation for linear mixtures (Private-LinOpt-PO of Zhou)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.finite.policy import Policy, softmax
from tacit.mixture.agent import MixtureAgent
from tacit.mixture.spec import MixtureSpec
from tacit.privacy.arguments import positive, whole_number
from tacit.privacy.models import Privacy


class LinOptPO(MixtureAgent):
    """Optimistic policy optimisation on a regularised regression: mirror steps to better actions.

    Idea: evaluate the current stochastic policy with the optimistic model of
    :class:`~tacit.mixture.linopt_vi.LinOptVI`, then multiply each action's probability by
    exp(eta Q). The paper makes one such step per episode; here a release is followed by ``steps``
    of them, which is post-processing and costs nothing.

    Private statistics: ``"model"`` or ``"values"``; a stochastic policy cannot mask counts.

    Guarantee: that of its curator; see ``guarantee``.

    Args:
        spec: sizes, horizon and features.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        eta: step size; by default the paper's sqrt(2 ln A / (H^2 R)) for R steps in all with
            ``bonus="theory"``, and ln(A) / 2 otherwise.
        steps: mirror steps per release; 1 by default in theory, else 15.
        **options: as for :class:`~tacit.mixture.linopt_vi.LinOptVI`.
    """

    name = "linopt_po"
    deterministic = False

    def __init__(
        self,
        spec: MixtureSpec,
        users: int,
        privacy: Privacy,
        *,
        eta: float | None = None,
        steps: int | None = None,
        **options: Any,
    ) -> None:
        self._eta = None if eta is None else positive("eta", eta)
        self._steps = None if steps is None else whole_number("steps", steps)
        super().__init__(spec, users, privacy, **options)

    @property
    def steps(self) -> int:
        """Mirror steps per release."""
        return self._steps or (1 if self._papers else 15)

    @property
    def eta(self) -> float:
        """The step size."""
        if self._eta is not None:
            return self._eta
        A, H = self.spec.actions, self.spec.horizon
        if self._papers:
            return math.sqrt(2.0 * math.log(A) / (H**2 * self.schedule.releases * self.steps))
        return math.log(A) / 2.0

    def _plan(self) -> tuple[Policy, Policy]:
        model = self._model()
        # In practice nothing that was learnt from less is held against an action for ever.
        logits = np.log(np.maximum(self._policy.table(), 1e-30 if self._papers else 1e-3))
        greedy = np.zeros(logits.shape)
        for _ in range(self.steps):
            optimistic, greedy = self._optimistic(model, softmax(logits))
            logits = logits + self.eta * optimistic
        policy = Policy.stochastic(softmax(logits), version=self.releases)
        return policy, self._best(greedy)

    def _identity(self) -> dict[str, Any]:
        return super()._identity() | {"eta": self.eta, "steps": self.steps}
