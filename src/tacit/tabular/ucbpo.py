"""UCBPO: optimistic policy optimisation on private counts (Private-UCB-PO of Chowdhury, Zhou)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.core.algorithm import Plan, Progress
from tacit.tabular.count_estimate import CountEstimate
from tacit.tabular.mirror import MirrorOptions, Optimistic, drawn, improved
from tacit.tabular.policy import Policy, uniform_policy
from tacit.tabular.ucbvi import UCBVI, ServedPolicy, UCBVIOptions


@dataclass(frozen=True, kw_only=True)
class UCBPOOptions(MirrorOptions, UCBVIOptions):
    """Options of :class:`UCBPO`: those of UCBVI, and of mirror steps."""


class UCBPO(UCBVI):
    """Optimistic policy optimisation: mirror steps towards better actions.

    Idea: evaluate the current stochastic policy in the optimistic world of :class:`UCBVI`, then
    multiply each action's probability by exp(eta Q), until the policy is worth what the best one
    is in that world, but for a share of the release's statistical width. The paper makes one step
    per episode; steps after a release are post-processing and cost nothing.

    Private statistics: those of UCBVI, along a draw of the policy that serves the block; see
    :func:`~tacit.tabular.mirror.drawn`.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "ucbpo"
    Options = UCBPOOptions
    options: UCBPOOptions

    # State, query and update are those of UCBVI.

    def first_policy(self, rng: np.random.Generator) -> Policy:
        """Random actions, drawn once; uniform ones without privacy, where that saves nothing."""
        if self.privacy.private:
            return super().first_policy(rng)
        return self.named(uniform_policy(self.spec))

    def plan(
        self, state: CountEstimate, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """Mirror steps in the optimistic world; the greedy policy is that of UCBVI.

        Args:
            state: all counts so far.
            last: the plan before, whose stochastic policy is improved.
            at: where the run stands.
            rng: decides ties, and draws the policy that serves.
        """
        if not state.reached.any():
            return super().plan(state, last, at, rng)
        along = last is not None and self.on_policy(last)
        model = self.model(state, along)
        _, bonuses, _, greedy = self.value_iteration(model, rng)
        known = None if last is None else last.memory
        before = uniform_policy(self.spec).table() if known is None else known.table
        table = improved(before, Optimistic(model.P, model.r, bonuses), self.spec, self.options)
        serving = drawn(table, rng) if self.privacy.private else Policy.stochastic(table)
        memory = ServedPolicy(self.expected_visits(model, serving), table)
        return Plan(self.named(serving), greedy, memory)
