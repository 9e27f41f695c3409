"""Pessimistic value iteration on counts of a log: for worlds with few states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Floats, Queries, Query
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.offline import OfflineAlgorithm, OfflineOptions, PlannedPolicies
from tacit.tabular.policy import row_of
from tacit.tabular.visits import VisitCounts

if TYPE_CHECKING:
    from tacit.core.problem import Problem

# A cell is known once its visits exceed so many standard deviations of their noise.
_KNOWN = 2.0
# More counts than these are never kept.
_MOST_COUNTS = 1 << 22


@dataclass(frozen=True, eq=False)
class LogCounts:
    """Counts of a log, and the standard deviations of their noise."""

    transitions: Floats  # (F, S, A, S)
    rewards: Floats  # (F, S, A)
    noise: float  # of one count
    reward_noise: float  # of one sum of rewards


class CountPolicies(PlannedPolicies):
    """Policies that are planned in the world of the counts."""

    learnt: LogCounts

    @cached_property
    def model(self) -> tuple[Floats, Floats, Floats, Any]:
        """P and r of what is known, visits, and which cells are known."""
        from tacit.tabular.count_loops import project

        S, moves = self.spec.states, np.array(self.learnt.transitions)
        n = moves.sum(axis=-1)
        known = self.allowed & (n > max(_KNOWN * self.learnt.noise * math.sqrt(S), 0.5))
        P = np.zeros(moves.shape)
        project(moves.reshape(-1, S), known.reshape(-1), P.reshape(-1, S))
        n = np.where(known, n, 1.0)
        return P, np.clip(self.learnt.rewards / n, 0.0, 1.0), n, known

    def lower_values(self, step: int, after: Floats, left: float) -> Floats:
        """Means less their widths; nothing where nothing is known."""
        P, r, n, known = self.model
        f = row_of(step, self.spec.horizon, len(P))
        mean, possible = P[f] @ after, P[f] > 0
        # Counts that are 0 in the model were projected: their noise is gone.
        square = possible @ after**2 - 2 * mean * (possible @ after) + possible.sum(2) * mean**2
        share = 0.25 * left**2 / self.spec.horizon
        sampling = n[f] * np.maximum(P[f] @ after**2 - mean**2 + share, 0.0)
        of_rewards = self.learnt.reward_noise**2
        noise = self.learnt.noise**2 * np.maximum(square, 0.0) + of_rewards
        width = self.caution * np.sqrt(noise + sampling) / n[f]
        lower: Floats = np.where(known[f], np.clip(r[f] + mean - width, 0.0, left), 0.0)
        return lower

    def expected(self, step: int, after: Floats) -> Floats:
        """Of cells that are known; others lead nowhere, and count as 1."""
        P, _, _, known = self.model
        f = row_of(step, self.spec.horizon, len(P))
        ahead: Floats = np.where(known[f], P[f] @ after, 1.0)
        return ahead


class PessimisticVI(OfflineAlgorithm):
    """Plans in the world that the counts surely leave, near what people do, and judges the plan.

    Idea: count where actions led and what they paid. Plan backwards as if every action were worth
    what the counts say less its uncertainty, and nothing where they say nothing; among policies
    at a price for leaving what people do today (relative entropy), since only such can be judged by
    these people's returns. The price is chosen by users who were not learnt from.

    Private statistics: :class:`~tacit.tabular.visits.VisitCounts` of the first block, once, after
    :class:`~tacit.tabular.return_statistics.ActionCounts` where today's behaviour is unknown;
    :class:`~tacit.tabular.return_statistics.WeightedReturns` of the second block.

    Guarantee: that of its curator; see ``guarantee``. Users are in one of the two blocks.

    Deviations from the paper: there is none; the lower confidence bounds are those of Jin, Yang and
    Wang (2021, "Is pessimism provably efficient for offline RL?") with practical widths, and what
    is proven of the result is its interval.

    Cost: O(H S^2 A) per plan. It serves no users: those it
    learns from were served before.
    """

    name = "pessimistic_vi"
    policies = CountPolicies

    def __init__(self, problem: Problem, options: OfflineOptions) -> None:
        super().__init__(problem, options)
        moves = self.counts().rows * self.spec.states**2 * self.spec.actions
        if moves > _MOST_COUNTS:
            raise InvalidArgument(
                f"spec has {moves:,} transitions to count, at most {_MOST_COUNTS:,} make sense: "
                "pessimistic_improvement is for many states"
            )

    def counts(self) -> VisitCounts:
        """Where users' first two steps in a cell led, or each step by itself."""
        spec, pooled = self.spec, self.spec.stationary
        cap, apart = min(2, spec.horizon) if pooled else None, not spec.last_state
        sizes = spec.states, spec.actions, spec.horizon, pooled, cap
        return VisitCounts(*sizes, weight=math.sqrt(0.2), apart=apart)

    def first_queries(self, behaviour: Floats) -> Queries[LogCounts]:
        """Counts, with the whole budget."""
        counts = self.counts()
        release = yield Query(counts)
        shape = (counts.rows, self.spec.states, self.spec.actions)
        return LogCounts(
            release["transitions"].reshape(*shape, self.spec.states),
            release["rewards"].reshape(shape),
            float(np.max(release.std["transitions"])),
            float(np.max(release.std["rewards"])),
        )
