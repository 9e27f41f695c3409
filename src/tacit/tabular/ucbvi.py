"""UCBVI: optimistic value iteration on private counts (Private-UCB-VI of Chowdhury and Zhou)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.policy import Policy
from tacit.tabular.agent import TabularAgent
from tacit.tabular.evidence import Counts

Floats = NDArray[np.float64]


class UCBVI(TabularAgent):
    """Optimistic value iteration.

    Idea: keep noisy counts of what happened, estimate transitions and rewards, add a bonus for
    what is uncertain, by sampling or by privacy noise, and follow the best policy of that
    optimistic world.

    Private statistics: :class:`~tacit.tabular.statistics.VisitCounts` of every block.

    Guarantee: that of its curator; see ``guarantee``.

    Args:
        spec: sizes and horizon.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        stationary: one model for all steps (the world's own by default), or one per step.
        scale: multiplies the bonus.
        schedule: when a policy is republished; see :mod:`tacit.schedule`.
        counter: ``"blocks"`` (default) or a kind of :func:`tacit.counter` over all releases.
        constants: the practical bonus's constants.
        seed: of ties and of the first, random policy; not of the noise.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent.
        autosave: file that is written before each publication.
    """

    name = "ucbvi"

    def _plan(self, counts: Counts) -> tuple[Policy, Policy]:
        from tacit.tabular.kernels import plan, project

        spec, constants = self.spec, self.constants
        H, S, A = spec.horizon, spec.states, spec.actions
        totals = counts.transitions.sum(axis=-1)
        spread = counts.noise * math.sqrt(S)
        known = counts.reached & (totals > constants.known * spread)
        lowered = np.maximum(totals - constants.lowering * spread, 1e-3)
        probabilities = np.empty_like(counts.transitions)
        project(counts.transitions.reshape(-1, S), known.reshape(-1), probabilities.reshape(-1, S))
        safe = np.where(known, totals, 1.0)
        rewards = np.where(known, np.clip(counts.rewards / safe, 0.0, 1.0), 0.0)
        noise = np.full(totals.shape, counts.noise)
        log_term = math.log(totals.size / 0.05)
        q_values = np.empty((H, S, A))
        actions, greedy = np.empty((H, S), dtype=np.int64), np.empty((H, S), dtype=np.int64)
        plan(
            probabilities,
            rewards,
            lowered,
            known,
            noise,
            np.full(totals.shape, counts.reward_noise),
            H,
            self.scale * constants.sampling * math.sqrt(2.0 * log_term),
            constants.privacy,
            self.scale * constants.range_term,
            self._rng.random((H, S, A)),
            q_values,
            actions,
            greedy,
        )
        self.q_values = q_values
        version = self.releases
        return (
            Policy.deterministic(actions, A, version=version),
            Policy.deterministic(greedy, A, version=version),
        )
