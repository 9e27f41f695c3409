"""UCBPO: optimistic policy optimisation on private counts (Private-UCB-PO of Chowdhury, Zhou)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tacit.core.algorithm import BlockInfo, Plan, Progress
from tacit.finite.evidence import CountEstimate
from tacit.finite.mirror import MirrorAlgorithm, MirrorOptions
from tacit.privacy.curator import Release
from tacit.tabular.base import TabularOptions
from tacit.tabular.ucbvi import UCBVI


@dataclass(frozen=True, kw_only=True)
class UCBPOOptions(MirrorOptions, TabularOptions):
    """Options of :class:`UCBPO`: those of tabular algorithms, and of mirror steps."""


class UCBPO(MirrorAlgorithm[CountEstimate], UCBVI):
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

    def plan(
        self, state: CountEstimate, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """Mirror steps in the optimistic world; the greedy policy is that of UCBVI."""
        if not state.reached.any():
            return super().plan(state, last, at, rng)
        # Value iteration gives the optimistic model's bonuses; the policy is improved against it.
        along = last is not None and self.on_policy(last)
        _, world, (_, greedy) = self.value_iteration(state, along, rng)
        policy, memory = self.improved(world, last, rng)
        return Plan(policy, greedy, replace(memory, expected=self.expected_visits(world, policy)))

    def update(
        self,
        state: CountEstimate,
        plans: Mapping[int, Plan],
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> CountEstimate:
        """As that of UCBVI, whose plans leave expected visits and nothing else."""
        plans = {
            version: replace(plan, memory=plan.memory and plan.memory.expected)
            for version, plan in plans.items()
        }
        return super().update(state, plans, release, block, rng)
