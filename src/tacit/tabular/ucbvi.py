"""UCBVI: optimistic value iteration on private counts (Private-UCB-VI of Chowdhury and Zhou)."""

from __future__ import annotations

import math

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.asks import Ask, Asks
from tacit.finite.mirror import Optimistic
from tacit.finite.policy import Policy
from tacit.finite.visits import row_of
from tacit.tabular.base import TabularAlgorithm


class UCBVI(TabularAlgorithm):
    """Optimistic value iteration.

    Idea: keep noisy counts of what happened, estimate transitions and rewards, add a bonus for
    what is uncertain, by sampling or by privacy noise, and follow the best policy of that
    optimistic world.

    Private statistics: :class:`~tacit.finite.visits.VisitCounts` of every block.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "ucbvi"

    q_values: Floats  # optimistic action values (H, S, A) of the last plan
    _world: Optimistic

    # What is asked: the counts of each block, once, with its whole budget.

    def asks(self) -> Asks:
        """Counts along the block's policy; see :meth:`TabularAlgorithm.statistic`."""
        statistic = self.statistic()
        release = yield Ask(statistic)
        self.take_in(release, statistic)

    # How it plans.

    def plan(self) -> tuple[Policy, Policy]:
        """Estimates on the simplex, Bernstein bonuses, and both best policies in one loop.

        They are the best of the optimistic world and of the estimated one.
        """
        from tacit.numerics.projection import project
        from tacit.tabular.plan_loops import plan

        counts = self.evidence.counts()
        constants, scale = self.options.constants, self.options.scale
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        totals = counts.transitions.sum(axis=-1)
        spread = counts.noise * math.sqrt(S)
        # Where the policy cannot tell which cells are empty, noise alone must not pass for visits.
        threshold = constants.known if self.masked else constants.known_unmasked
        known = counts.reached & (totals > threshold * spread)
        lowered = np.maximum(totals - constants.lowering * spread, 1e-3)
        probabilities = np.empty_like(counts.transitions)
        project(counts.transitions.reshape(-1, S), known.reshape(-1), probabilities.reshape(-1, S))
        safe = np.where(known, totals, 1.0)
        rewards = np.where(known, np.clip(counts.rewards / safe, 0.0, 1.0), 0.0)
        log_term = math.log(totals.size / 0.05)
        q_values, bonuses = np.empty((H, S, A)), np.empty((H, S, A))
        actions, greedy = np.empty((H, S), dtype=np.int64), np.empty((H, S), dtype=np.int64)
        plan(
            probabilities,
            rewards,
            lowered,
            known,
            counts.noise,
            counts.reward_noise,
            H,
            scale * constants.sampling * math.sqrt(2.0 * log_term),
            constants.privacy,
            scale * constants.range_term,
            self.rng.random((H, S, A)),
            q_values,
            bonuses,
            actions,
            greedy,
        )
        self.q_values, self._world = q_values, Optimistic(probabilities, rewards, bonuses)
        return (
            Policy.deterministic(actions, A, version=self.releases),
            Policy.deterministic(greedy, A, version=self.releases),
        )

    # What the next block can be expected to show, which weighs its counts.

    def advance(self, users: int) -> None:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        super().advance(users)
        self._expected = self._expected_visits()

    def _expected_visits(self) -> Floats | None:
        """The policy's occupancy in the model that it was planned in; post-processing."""
        actions = self.policy.actions
        if not self.masked or actions is None:
            return None
        P, S = self._world.transitions, self.spec.states
        here = np.full(S, 1.0 / S) if self.spec.start is None else np.array(self.spec.start)
        expected, everywhere = np.zeros(P.shape[:3]), np.arange(S)
        for h in range(self.spec.horizon):
            at = row_of(h, self.spec.horizon, len(P))
            expected[at, everywhere, actions[h]] += here
            here = here @ P[at, everywhere, actions[h]]
        return np.minimum(expected, self.cap or self.spec.horizon)
