"""LinOptPO: optimistic policy optimisation for linear mixtures (Private-LinOpt-PO of Zhou).

The paper's Algorithm 2: the policy is evaluated optimistically (lines 4 to 12, as in
:mod:`tacit.mixture.linopt_vi`), then improved by a mirror step (its last line).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.finite.policy import Policy, softmax
from tacit.mixture.base import MixtureOptions
from tacit.mixture.linopt_vi import LinOptVI
from tacit.privacy.arguments import positive, whole_number


@dataclass(frozen=True, kw_only=True)
class LinOptPOOptions(MixtureOptions):
    """Options of :class:`LinOptPO`, besides those of all mixture algorithms.

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


class LinOptPO(LinOptVI):
    """Optimistic policy optimisation on a regularised regression: mirror steps to better actions.

    Idea: evaluate the current stochastic policy with the optimistic model of
    :class:`~tacit.mixture.linopt_vi.LinOptVI`, then multiply each action's probability by
    exp(eta Q). The paper makes one such step per episode; here a release is followed by ``steps``
    of them, which is post-processing and costs nothing.

    Private statistics: ``"model"`` or ``"values"``; a stochastic policy cannot mask counts.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "linopt_po"
    deterministic = False
    Options = LinOptPOOptions
    options: LinOptPOOptions

    @property
    def steps(self) -> int:
        """Mirror steps per release."""
        return self.options.steps or (1 if self.papers else 15)

    @property
    def eta(self) -> float:
        """The step size."""
        if self.options.eta is not None:
            return self.options.eta
        A, H = self.spec.actions, self.spec.horizon
        if self.papers:
            return math.sqrt(2.0 * math.log(A) / (H**2 * self.schedule.releases * self.steps))
        return math.log(A) / 2.0

    def plan(self) -> tuple[Policy, Policy]:
        """Mirror steps, policy exp(eta Q) up to a factor; the greedy policy is that of LinOptVI."""
        model = self.model()
        # In practice nothing that was learnt from less is held against an action for ever.
        logits = np.log(np.maximum(self.policy.table(), 1e-30 if self.papers else 1e-3))
        greedy = np.zeros(logits.shape)
        for _ in range(self.steps):
            optimistic, greedy = self.optimistic_values(model, softmax(logits))
            logits = logits + self.eta * optimistic
        return Policy.stochastic(softmax(logits), version=self.releases), self.best(greedy)

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().identity() | {"eta": self.eta, "steps": self.steps}
