"""LinOptPO: optimistic policy optimisation for linear mixtures (Private-LinOpt-PO of Zhou, 2022).

Algorithm 2 evaluates a policy optimistically and improves it by one mirror step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from tacit.core.algorithm import Floats, Plan, Progress
from tacit.mixture.estimate import MixtureModel
from tacit.mixture.linopt_vi import LinOptVI, MixtureOptions
from tacit.numerics.regression import BlockSums
from tacit.tabular.policy import Policy
from tacit.tabular.ucbpo import MirrorOptions, Optimistic, drawn, improved


@dataclass(frozen=True, kw_only=True)
class LinOptPOOptions(MirrorOptions, MixtureOptions):
    """Options of :class:`LinOptPO`: those of mixture algorithms, and of mirror steps."""


class LinOptPO(LinOptVI):
    """Optimistic policy optimisation on a regularised regression: mirror steps to better actions.

    Idea: evaluate the current stochastic policy in the optimistic world of
    :class:`~tacit.mixture.linopt_vi.LinOptVI`, then multiply each action's probability by
    exp(eta Q), until the policy is worth what the best one is there, but for a share of the
    release's statistical width. The paper makes one step per episode.

    Private statistics: those of LinOptVI; counts are along a draw of the policy.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "linopt_po"
    Options = LinOptPOOptions
    options: LinOptPOOptions

    def plan(self, state: BlockSums, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """Mirror steps in the optimistic world; the greedy policy is that of LinOptVI.

        The plan's memory is the stochastic policy; a draw may serve. Args: see Algorithm.plan.
        """
        draws = self.privacy.private or self.statistic_kind == "counts"
        if last is None:
            H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
            table = np.full((H, S, A), 1.0 / A)
            first = self.first_policy(rng) if draws else self.named(Policy.stochastic(table))
            return Plan(first, first, table)
        model = self.estimator.model(state)
        best, greedy = self.optimistic_values(model)
        table = improved(last.memory, self._world(model, best), self.spec, self.options)
        serving = drawn(table, rng) if draws else Policy.stochastic(table)
        return Plan(self.named(serving), self.best(greedy, rng), table)

    def _world(self, model: MixtureModel, best: Floats) -> Optimistic:
        """The estimated model, on the simplex, with the bonuses that make ``best`` its optimum."""
        from tacit.tabular.count_loops import project

        H, S = best.shape[:2]
        estimated = np.array([model.probabilities(h) for h in range(1 if self.stationary else H)])
        P = np.empty(estimated.shape)
        rows = estimated.reshape(-1, S)
        project(rows, np.ones(len(rows), dtype=np.bool_), P.reshape(-1, S))
        r = np.array([np.clip(model.rewards(h)[0], 0.0, 1.0) for h in range(H)])
        after = np.concatenate([best.max(axis=2)[1:], np.zeros((1, S))])
        means = np.array([P[min(h, len(P) - 1)] @ after[h] for h in range(H)])
        return Optimistic(P, r, best - r - means)
