"""LinOptPO: optimistic policy optimisation for linear mixtures (Private-LinOpt-PO of Zhou).

The paper's Algorithm 2: the policy is evaluated optimistically (lines 4 to 12, as in
:mod:`tacit.mixture.linopt_vi`), then improved by a mirror step (its last line).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.core.algorithm import Floats
from tacit.finite.mirror import MirrorAlgorithm, MirrorOptions
from tacit.finite.policy import Policy
from tacit.mixture.base import MixtureOptions
from tacit.mixture.linopt_vi import LinOptVI


@dataclass(frozen=True, kw_only=True)
class LinOptPOOptions(MirrorOptions, MixtureOptions):
    """Options of :class:`LinOptPO`: those of mixture algorithms, and of mirror steps."""


class LinOptPO(MirrorAlgorithm, LinOptVI):
    """Optimistic policy optimisation on a regularised regression: mirror steps to better actions.

    Idea: evaluate the current stochastic policy with the optimistic model of
    :class:`~tacit.mixture.linopt_vi.LinOptVI`, then multiply each action's probability by
    exp(eta Q). The paper makes one such step per episode; here a release is followed by ``steps``
    of them, which is post-processing and costs nothing.

    Private statistics: ``"model"`` or ``"values"``; a stochastic policy cannot mask counts.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "linopt_po"
    Options = LinOptPOOptions
    options: LinOptPOOptions

    def plan(self) -> tuple[Policy, Policy]:
        """Mirror steps, policy exp(eta Q) up to a factor; the greedy policy is that of LinOptVI."""
        model, greedy = self.model(), np.empty(0)

        def evaluate(policy: Floats) -> Floats:
            nonlocal greedy
            optimistic, greedy = self.optimistic_values(model, policy)
            return optimistic

        policy = self.improved(evaluate)
        return policy, self.best(greedy)
