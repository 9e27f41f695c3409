"""UCBVI: optimistic value iteration on private counts (Private-UCB-VI of Chowdhury and Zhou)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.finite.evidence import Counts
from tacit.finite.policy import Policy
from tacit.privacy.models import NonPrivate, needs_l1
from tacit.tabular.agent import TabularAgent

if TYPE_CHECKING:
    from tacit.core.world import World
    from tacit.simulation.closed_loop import ServedUsers

Floats = NDArray[np.float64]


class UCBVI(TabularAgent):
    """Optimistic value iteration.

    Idea: keep noisy counts of what happened, estimate transitions and rewards, add a bonus for
    what is uncertain, by sampling or by privacy noise, and follow the best policy of that
    optimistic world.

    Private statistics: :class:`~tacit.finite.visits.VisitCounts` of every block.

    Guarantee: that of its curator; see ``guarantee``.

    Args:
        spec: sizes and horizon.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        stationary: one model for all steps (the world's own by default), or one per step.
        bonus: ``"practical"``, of Bernstein type with the noise's real standard deviation, or
            ``"theory"``, with the paper's constants, for which its regret bound is proven.
        scale: multiplies the bonus.
        failure: with which probability the theory's confidence bounds may fail.
        calibration: ``"tight"``, or ``"as_printed"`` for the paper's own noise.
        schedule: when a policy is republished; see :mod:`tacit.core.schedule`.
        counter: ``"blocks"`` (default) or a kind of :func:`tacit.counter` over all releases.
        constants: the practical bonus's constants.
        seed: of ties and of the first, random policy; not of the noise.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.
    """

    name = "ucbvi"

    def closed_loop(self, world: World, rng: np.random.Generator) -> Iterator[ServedUsers] | None:
        """Without privacy and with a release per user, a run in one compiled loop.

        See :mod:`tacit.simulation.closed_loop`, and :class:`tacit.core.world.ClosedLoop` for the
        terms.
        """
        if not isinstance(self.privacy, NonPrivate):
            return None
        from tacit.simulation.closed_loop import play

        return play(self, world, rng)

    def _plan(self) -> tuple[Policy, Policy]:
        counts = self.evidence.counts()
        if self.bonus == "theory":
            return self._plan_in_theory(counts)
        return self._plan_in_practice(counts)

    def _plan_in_theory(self, counts: Counts) -> tuple[Policy, Policy]:
        """The paper's optimistic values, with widths from the noise that was really drawn."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        width = count_width(self, float(counts.noise.max()))
        n = np.maximum(1.0, counts.visits + width)
        log_term = math.sqrt(2.0 * math.log(4 * S * A * self.users * H / self.failure))
        of_reward = log_term / np.sqrt(n) + 3.0 * width / n
        of_next = H * self._next_term() / np.sqrt(n) + H * (S * width + 2.0 * width) / n
        bonus = self.scale * (of_reward + of_next)
        # A negative count times an optimistic value would take optimism away; cutting it at zero
        # brings it no farther from the true count.
        rewards = counts.rewards / n
        transitions = np.maximum(counts.transitions, 0.0) / n[..., np.newaxis]
        q_values, greedy = np.empty((H, S, A)), np.empty((H, S, A))
        value, plain = np.zeros(S), np.zeros(S)
        for h in range(H - 1, -1, -1):
            q_values[h] = np.clip(rewards[h] + transitions[h] @ value + bonus[h], 0.0, H - h)
            greedy[h] = np.clip(rewards[h] + transitions[h] @ plain, 0.0, H - h)
            value, plain = q_values[h].max(axis=1), greedy[h].max(axis=1)
        self.q_values = q_values
        self._world = (transitions, rewards, bonus)
        return self._best(q_values), self._best(greedy)

    def _next_term(self) -> float:
        """How far an estimated next value may be off, times the root of the count."""
        sizes = self.spec.states * self.spec.actions * self.users * self.spec.horizon
        return math.sqrt(2.0 * math.log(4 * sizes / self.failure))

    def _expected_visits(self) -> Floats | None:
        """The policy's occupancy in the model that it was planned in; post-processing."""
        actions = self._policy.actions
        if not self._masked or actions is None or self.bonus == "theory":
            return None
        probabilities = self._world[0]
        S, last = self.spec.states, len(probabilities) - 1
        here = np.full(S, 1.0 / S) if self.spec.start is None else np.array(self.spec.start)
        expected, everywhere = np.zeros(probabilities.shape[:3]), np.arange(S)
        for h in range(self.spec.horizon):
            at = min(h, last)
            expected[at, everywhere, actions[h]] += here
            here = here @ probabilities[at, everywhere, actions[h]]
        return np.minimum(expected, self._cap or self.spec.horizon)

    def _plan_in_practice(self, counts: Counts) -> tuple[Policy, Policy]:
        from tacit.numerics.projection import project
        from tacit.tabular.plan_loops import plan

        spec, constants = self.spec, self.constants
        H, S, A = spec.horizon, spec.states, spec.actions
        totals = counts.transitions.sum(axis=-1)
        spread = counts.noise * math.sqrt(S)
        # Where the policy cannot tell which cells are empty, noise alone must not pass for visits.
        threshold = constants.known if self._masked else constants.known_unmasked
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
            self.scale * constants.sampling * math.sqrt(2.0 * log_term),
            constants.privacy,
            self.scale * constants.range_term,
            self._rng.random((H, S, A)),
            q_values,
            bonuses,
            actions,
            greedy,
        )
        self.q_values = q_values
        self._world = (probabilities, rewards, bonuses)
        version = self.releases
        return (
            Policy.deterministic(actions, A, version=version),
            Policy.deterministic(greedy, A, version=version),
        )


def count_width(agent: TabularAgent, noise: float) -> float:
    """A bound on the noise of every count at every release, but for a third of ``failure``.

    Gaussian: the normal quantile at failure / (3 cells releases). Laplace: a sum of independent
    Laplace variables of scales b_i has variance 2 B^2 with B^2 = sum b_i^2, and for c < 1 / B
    P(|sum| > t) <= 2 exp(-c t) / prod (1 - c^2 b_i^2) <= 2 exp(-c t) / (1 - c^2 B^2). With
    c^2 B^2 = 1 - 1 / l and l = ln(2 / p) this is p at t = B (l + ln l) / sqrt(1 - 1 / l).
    Discrete noise on a fine grid has the tails of the continuous one.
    """
    if noise == 0.0:
        return 0.0
    cells = agent.evidence.transitions.size + 2 * agent.evidence.rewards.size
    p = agent.failure / (3.0 * cells * agent.schedule.releases)
    if needs_l1(agent.privacy):
        log_term = math.log(2.0 / p)
        width = (log_term + math.log(log_term)) / math.sqrt(1.0 - 1.0 / log_term)
        return noise / math.sqrt(2.0) * width
    return noise * -float(ndtri(p / 2.0))
