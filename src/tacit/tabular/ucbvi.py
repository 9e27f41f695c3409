"""UCBVI: optimistic value iteration on private counts (Private-UCB-VI of Chowdhury and Zhou)."""

from __future__ import annotations

import math

import numpy as np

from tacit.core.algorithm import Floats, Plan, Progress
from tacit.finite.evidence import CountEstimate
from tacit.finite.mirror import Optimistic
from tacit.finite.policy import Policy
from tacit.finite.visits import row_of
from tacit.tabular.base import Memory, TabularAlgorithm


class UCBVI(TabularAlgorithm):
    """Optimistic value iteration.

    Idea: keep noisy counts of what happened, estimate transitions and rewards, add a bonus for
    what is uncertain, by sampling or by privacy noise, and follow the best policy of that
    optimistic world.

    Private statistics: :class:`~tacit.finite.visits.VisitCounts` of every block.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "ucbvi"

    # How it plans; queries and updates are those of counts.

    def plan(
        self, state: CountEstimate, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """Estimates on the simplex, Bernstein bonuses, and both best policies in one loop."""
        if not state.reached.any():
            first = self.first_policy(rng)
            return Plan(first, first)
        along = last is not None and self.on_policy(last)
        _, world, policies = self.value_iteration(state, along, rng)
        return Plan(*policies, Memory(self.expected_visits(world, policies[0])))

    def value_iteration(
        self, state: CountEstimate, along: bool, rng: np.random.Generator
    ) -> tuple[Floats, Optimistic, tuple[Policy, Policy]]:
        """Optimistic action values (H, S, A), their world, and its policy and the greedy one.

        Args:
            state: All counts so far.
            along: Whether they are along the policies that served, so that empty cells are known.
            rng: Of ties.
        """
        from tacit.numerics.projection import project
        from tacit.tabular.loops import plan

        counts = state.counts()
        constants, scale = self.options.constants, self.options.scale
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        totals = counts.transitions.sum(axis=-1)
        spread = counts.noise * math.sqrt(S)
        # Where the policy cannot tell which cells are empty, noise alone must not pass for visits.
        threshold = constants.known if along else constants.known_unmasked
        known = counts.reached & (totals > threshold * spread)
        lowered = np.maximum(totals - constants.lowering * spread, 1e-3)
        probabilities = np.empty_like(counts.transitions)
        project(counts.transitions.reshape(-1, S), known.reshape(-1), probabilities.reshape(-1, S))
        safe = np.where(known, totals, 1.0)
        rewards = np.where(known, np.clip(counts.rewards / safe, 0.0, 1.0), 0.0)
        sampling = scale * constants.sampling * math.sqrt(2.0 * math.log(totals.size / 0.05))
        model = probabilities, rewards, lowered, known, counts.noise, counts.reward_noise
        (q_values, bonuses), tables = np.empty((2, H, S, A)), np.empty((2, H, S), dtype=np.int64)
        widths = sampling, constants.privacy, scale * constants.range_term
        plan(*model, H, *widths, rng.random((H, S, A)), q_values, bonuses, *tables)
        best, greedy = (self.named(Policy.deterministic(table, A)) for table in tables)
        return q_values, Optimistic(probabilities, rewards, bonuses), (best, greedy)

    def expected_visits(self, world: Optimistic, policy: Policy) -> Floats | None:
        """The policy's occupancy in the model that it was planned in, which weighs its counts."""
        actions = policy.actions
        if actions is None:
            return None
        P, S = world.transitions, self.spec.states
        here = np.full(S, 1.0 / S) if self.spec.start is None else np.array(self.spec.start)
        expected, everywhere = np.zeros(P.shape[:3]), np.arange(S)
        for h in range(self.spec.horizon):
            at = row_of(h, self.spec.horizon, len(P))
            expected[at, everywhere, actions[h]] += here
            here = here @ P[at, everywhere, actions[h]]
        return expected
