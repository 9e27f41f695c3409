"""UCBVI: optimistic value iteration on private counts (Private-UCB-VI of Chowdhury and Zhou)."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from tacit.core.algorithm import Floats
from tacit.core.asks import Ask, Asks
from tacit.finite.evidence import Counts
from tacit.finite.mirror import Optimistic
from tacit.finite.policy import Policy
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
        """The best policies of the optimistic world and of the estimated one."""
        counts = self.evidence.counts()
        if self.options.bonus == "theory":
            return self._plan_in_theory(counts)
        return self._plan_in_practice(counts)

    def _plan_in_theory(self, counts: Counts) -> tuple[Policy, Policy]:
        """The paper's optimistic values, with widths from the noise that was really drawn."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        self._world = self._theory_world(counts)
        P, r, b = self._world
        q_values, greedy = np.empty((H, S, A)), np.empty((H, S, A))
        value, plain = np.zeros(S), np.zeros(S)
        for h in range(H - 1, -1, -1):
            q_values[h] = np.clip(r[h] + P[h] @ value + b[h], 0.0, H - h)
            greedy[h] = np.clip(r[h] + P[h] @ plain, 0.0, H - h)
            value, plain = q_values[h].max(axis=1), greedy[h].max(axis=1)
        self.q_values = q_values
        return self.best(q_values), self.best(greedy)

    def _theory_world(self, counts: Counts) -> Optimistic:
        """The paper's estimates, and its bonus with the width E of all noise.

        With n = max(1, visits + E): b = L / sqrt(n) + 3 E / n + H L' / sqrt(n) + H (S + 2) E / n.
        """
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        E = self.count_width(float(counts.noise.max()))
        n = np.maximum(1.0, counts.visits + E)
        log_term = math.sqrt(2.0 * math.log(4 * S * A * self.users * H / self.options.failure))
        of_reward = log_term / np.sqrt(n) + 3.0 * E / n
        of_next = H * self._next_term() / np.sqrt(n) + H * (S * E + 2.0 * E) / n
        bonus = self.options.scale * (of_reward + of_next)
        # A negative count times an optimistic value would take optimism away; cutting it at zero
        # brings it no farther from the true count.
        transitions = np.maximum(counts.transitions, 0.0) / n[..., np.newaxis]
        return Optimistic(transitions, counts.rewards / n, bonus)

    def _next_term(self) -> float:
        """L': how far an estimated next value may be off, times the root of the count."""
        sizes = self.spec.states * self.spec.actions * self.users * self.spec.horizon
        return math.sqrt(2.0 * math.log(4 * sizes / self.options.failure))

    def _plan_in_practice(self, counts: Counts) -> tuple[Policy, Policy]:
        """Estimates on the simplex, Bernstein bonuses, and both best policies in one loop."""
        from tacit.numerics.projection import project
        from tacit.tabular.plan_loops import plan

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
        if not self.masked or actions is None or self.options.bonus == "theory":
            return None
        P, S = self._world.transitions, self.spec.states
        last = len(P) - 1
        here = np.full(S, 1.0 / S) if self.spec.start is None else np.array(self.spec.start)
        expected, everywhere = np.zeros(P.shape[:3]), np.arange(S)
        for h in range(self.spec.horizon):
            at = min(h, last)
            expected[at, everywhere, actions[h]] += here
            here = here @ P[at, everywhere, actions[h]]
        return np.minimum(expected, self.cap or self.spec.horizon)

    def count_width(self, noise: float) -> float:
        """E: a bound on the noise of every count at every release, but for a third of ``failure``.

        Gaussian: the normal quantile at failure / (3 cells releases). Laplace: a sum of independent
        Laplace variables of scales b_i has variance 2 B^2 with B^2 = sum b_i^2, and for c < 1 / B
        P(|sum| > t) <= 2 exp(-c t) / prod (1 - c^2 b_i^2) <= 2 exp(-c t) / (1 - c^2 B^2). With
        c^2 B^2 = 1 - 1 / l and l = ln(2 / p) this is p at t = B (l + ln l) / sqrt(1 - 1 / l).
        Discrete noise on a fine grid has the tails of the continuous one.
        """
        if noise == 0.0:
            return 0.0
        cells = self.evidence.transitions.size + 2 * self.evidence.rewards.size
        p = self.options.failure / (3.0 * cells * self.schedule.releases)
        if self.privacy.needs_l1:
            log_term = math.log(2.0 / p)
            width = (log_term + math.log(log_term)) / math.sqrt(1.0 - 1.0 / log_term)
            return noise / math.sqrt(2.0) * width
        return noise * -float(ndtri(p / 2.0))
