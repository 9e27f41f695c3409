"""UCBPO: optimistic policy optimisation on private counts (Private-UCB-PO of Chowdhury, Zhou)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.core.algorithm import BlockInfo, Floats, Plan, Progress
from tacit.finite.evidence import CountEstimate
from tacit.finite.mirror import MirrorOptions, drawn, improved
from tacit.finite.model import uniform_policy
from tacit.finite.policy import Policy
from tacit.privacy.curator import Release
from tacit.tabular.base import TabularOptions
from tacit.tabular.ucbvi import UCBVI


@dataclass(frozen=True, kw_only=True)
class UCBPOOptions(MirrorOptions, TabularOptions):
    """Options of :class:`UCBPO`: those of tabular algorithms, and of mirror steps."""


@dataclass(frozen=True, eq=False)
class Memory:
    """What a plan leaves to the next one, and to the update."""

    table: Floats  # the stochastic policy (H, S, A), of which with privacy a draw serves
    expected: Floats | None  # visits of a user, which weigh the block's counts


class UCBPO(UCBVI):
    """Optimistic policy optimisation: mirror steps towards better actions.

    Idea: evaluate the current stochastic policy in the optimistic world of :class:`UCBVI`, then
    multiply each action's probability by exp(eta Q), until the policy is worth what the best one
    is in that world, but for a share of the release's statistical width. The paper makes one step
    per episode; steps after a release are post-processing and cost nothing.

    Private statistics: those of UCBVI, along a draw of the policy that serves the block; see
    :func:`~tacit.finite.mirror.drawn`.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "ucbpo"
    Options = UCBPOOptions
    options: UCBPOOptions

    def first_policy(self, rng: np.random.Generator) -> Policy:
        """Random actions, drawn once; uniform ones without privacy, where that saves nothing."""
        if self.privacy.private:
            return super().first_policy(rng)
        return self.named(uniform_policy(self.spec))

    def plan(
        self, state: CountEstimate, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """Mirror steps in the optimistic world; the greedy policy is that of UCBVI."""
        if not state.reached.any():
            return super().plan(state, last, at, rng)
        # Value iteration gives the optimistic model's bonuses; the policy is improved against it.
        along = last is not None and self.on_policy(last)
        world, (_, greedy) = self.value_iteration(state, along, rng)
        known = None if last is None else last.memory
        before = uniform_policy(self.spec).table() if known is None else known.table
        table = improved(before, world, self.spec, self.options)
        serving = drawn(table, rng) if self.privacy.private else Policy.stochastic(table)
        memory = Memory(table, self.expected_visits(world, serving))
        return Plan(self.named(serving), greedy, memory)

    def _mean(self, plans: Mapping[int, Plan], weights: Floats) -> Any:
        known = {version: plan.memory for version, plan in plans.items()}
        if any(memory is None or memory.expected is None for memory in known.values()):
            return None
        alike = {v: replace(plan, memory=known[v].expected) for v, plan in plans.items()}
        return Memory(known[max(known)].table, super()._mean(alike, weights))

    def update(
        self,
        state: CountEstimate,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> CountEstimate:
        """The estimate with one more block; plans of UCBVI leave expected visits alone."""
        expected = None if plan.memory is None else plan.memory.expected
        return super().update(state, replace(plan, memory=expected), release, block, rng)
