"""LinOptPO: optimistic policy optimisation for linear mixtures (Private-LinOpt-PO of Zhou).

The paper's Algorithm 2: the policy is evaluated optimistically (lines 4 to 12, as in
:mod:`tacit.mixture.linopt_vi`), then improved by a mirror step (its last line); here again and
again, in one world per release.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.core.algorithm import Floats
from tacit.finite.mirror import MirrorAlgorithm, MirrorOptions, Optimistic
from tacit.finite.policy import Policy
from tacit.mixture.base import MixtureOptions
from tacit.mixture.estimate import MixtureModel
from tacit.mixture.linopt_vi import LinOptVI


@dataclass(frozen=True, kw_only=True)
class LinOptPOOptions(MirrorOptions, MixtureOptions):
    """Options of :class:`LinOptPO`: those of mixture algorithms, and of mirror steps."""


class LinOptPO(MirrorAlgorithm, LinOptVI):
    """Optimistic policy optimisation on a regularised regression: mirror steps to better actions.

    Idea: evaluate the current stochastic policy in the optimistic world of
    :class:`~tacit.mixture.linopt_vi.LinOptVI`, then multiply each action's probability by
    exp(eta Q), until the policy is worth what the best one is there, but for a share of the
    release's statistical width. The paper makes one step per episode; steps after a release are
    post-processing and cost nothing.

    Private statistics: those of LinOptVI; counts are along a draw of the policy that serves the
    block, see :class:`~tacit.finite.mirror.MirrorAlgorithm`.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "linopt_po"
    Options = LinOptPOOptions
    options: LinOptPOOptions

    def plan(self) -> tuple[Policy, Policy]:
        """Mirror steps in the optimistic world; the greedy policy is that of LinOptVI."""
        model = self.model()
        best, greedy = self.optimistic_values(model)
        return self.improved(self._world(model, best)), self.best(greedy)

    def _world(self, model: MixtureModel, best: Floats) -> Optimistic:
        """The estimated model, on the simplex, with the bonuses that make ``best`` its optimum."""
        from tacit.numerics.projection import project

        H, S = best.shape[:2]
        estimated = np.array([model.probabilities(h) for h in range(1 if self.stationary else H)])
        P = np.empty(estimated.shape)
        rows = estimated.reshape(-1, S)
        project(rows, np.ones(len(rows), dtype=np.bool_), P.reshape(-1, S))
        r = np.array([np.clip(model.rewards(h)[0], 0.0, 1.0) for h in range(H)])
        after = np.concatenate([best.max(axis=2)[1:], np.zeros((1, S))])
        means = np.array([P[min(h, len(P) - 1)] @ after[h] for h in range(H)])
        return Optimistic(P, r, best - r - means)
