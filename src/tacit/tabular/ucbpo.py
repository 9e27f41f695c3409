"""UCBPO: optimistic policy optimisation on private counts (Private-UCB-PO of Chowdhury, Zhou)."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.finite.mirror import MirrorAlgorithm, MirrorOptions
from tacit.finite.policy import Policy
from tacit.tabular.base import TabularOptions
from tacit.tabular.ucbvi import UCBVI


@dataclass(frozen=True, kw_only=True)
class UCBPOOptions(MirrorOptions, TabularOptions):
    """Options of :class:`UCBPO`: those of tabular algorithms, and of mirror steps."""


class UCBPO(MirrorAlgorithm, UCBVI):
    """Optimistic policy optimisation: mirror steps towards better actions.

    Idea: evaluate the current stochastic policy in the optimistic world of :class:`UCBVI`, then
    multiply each action's probability by exp(eta Q), until the policy is worth what the best one
    is in that world, but for a share of the release's statistical width. The paper makes one step
    per episode; steps after a release are post-processing and cost nothing.

    Private statistics: those of UCBVI, along a draw of the policy that serves the block; see
    :class:`~tacit.finite.mirror.MirrorAlgorithm`.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "ucbpo"
    Options = UCBPOOptions
    options: UCBPOOptions

    def plan(self) -> tuple[Policy, Policy]:
        """Mirror steps in the optimistic world; the greedy policy is that of UCBVI."""
        # Value iteration gives the optimistic model's bonuses; the policy is improved against it.
        _, greedy = super().plan()
        return self.improved(self._world), greedy
