"""Policy improvement from sums of what followed a state or an action."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Floats, Queries, Query
from tacit.finite.return_sums import ReturnSums
from tacit.finite.spec import FiniteSpec
from tacit.privacy.sizing import release_noise
from tacit.tabular.return_posterior import ReturnPosterior

if TYPE_CHECKING:
    from tacit.finite.visits import Ints
    from tacit.privacy.models import Privacy
    from tacit.tabular.policy_improvement import ImprovementConstants


class ReturnEstimator:
    """One number per state and one per decision, whatever may follow them.

    A block is asked twice. First by state: the return from a user's first visit on, and a visit,
    for her first states. Then by state and action, where a state allows several: residuals against
    the values just released, whose squares add up to about the variance of one return however
    long an episode is. A behaviour has probabilities (F, S, A), the same at all steps of a phase.
    """

    def __init__(
        self, spec: FiniteSpec, allowed: Any, privacy: Privacy, constants: ImprovementConstants
    ) -> None:
        self.spec, self.allowed, self.privacy, self.constants = spec, allowed, privacy, constants
        self.largest = spec.most_return
        self.smallest_block = self._smallest_block()

    def prior(self) -> ReturnPosterior:
        """What is known before any release."""
        return ReturnPosterior.prior(self.allowed, self.largest, self.constants)

    # What is asked.

    def phase(self, phases: int) -> Ints:
        """The phase of every step, (H,), if there are so many."""
        return np.arange(self.spec.horizon) * phases // self.spec.horizon

    def value_sums(self, phases: int) -> ReturnSums:
        """Returns less half of the largest one, and visits, by phase and state.

        A visit costs nothing: two users are farthest apart where they visit the same states.
        """
        R, H, S = self.largest, self.spec.horizon, self.spec.states
        cells = np.arange(phases * S).reshape(phases, S, 1)[self.phase(phases)]
        return ReturnSums(
            cells=np.where(self.allowed, cells, -1),
            centre=np.full((H, S), R / 2.0),
            first=min(self.constants.first, H),
            most=R / 2.0,
            weight=R / 2.0,
        )

    def advantage_sums(self, values: Floats) -> ReturnSums:
        """What followed an action, less ``values`` (F, S), where there is something to decide."""
        longest, phase = self.constants.length * self.largest, self.phase(len(values))
        return ReturnSums(
            cells=self._decisions(len(values))[phase],
            centre=values[phase],
            trace=self.constants.trace,
            first=self.spec.horizon,
            most=longest,
            length=longest,
        )

    def _decisions(self, phases: int) -> Ints:
        """The number of a cell, (F, S, A), where a state allows several actions, else -1."""
        several = self.allowed & (self.allowed.sum(axis=1, keepdims=True) > 1)
        if not several.any():
            # Nothing is to be decided anywhere: the query has a cell all the same.
            several = self.allowed & (np.cumsum(self.allowed).reshape(self.allowed.shape) == 1)
        shape = (phases, *several.shape)
        numbers = np.cumsum(np.broadcast_to(several, shape)).reshape(shape) - 1
        found: Ints = np.where(several, numbers, -1)
        return found

    def learn(self, known: ReturnPosterior, behaviour: Floats) -> Queries[ReturnPosterior]:
        """Queries for the values of a block's behaviour, then for advantages over them."""
        share, phases = self.constants.share, len(behaviour)
        release = yield Query(self.value_sums(phases), share=share)
        returns, visits = (
            release.parts[name].reshape(behaviour.shape[:2]) for name in ("returns", "visits")
        )
        known = known.with_values(returns, visits, float(np.max(release.std["returns"])))
        release = yield Query(self.advantage_sums(known.values), share=1.0 - share)
        cells = self._decisions(phases)
        sums = np.where(cells >= 0, release.parts["returns"][np.maximum(cells, 0)], 0.0)
        return known.with_advantages(sums, behaviour, float(np.max(release.std["returns"])))

    # How it plans.

    def exploring(self, known: ReturnPosterior, users: int) -> Floats:
        """Actions that may be the best: the behaviour of the next block, of so many users."""
        new = known.exploring()
        # Twice as many phases need more than twice as many users.
        many = math.sqrt(users / (self.constants.phased * self.smallest_block))
        finest = min(self.constants.phases, max(1, self.spec.horizon // 2))
        times = min(1 << max(0, int(math.log2(max(many, 1.0)))), finest) // len(new)
        return np.repeat(new, max(times, 1), axis=0)

    def _smallest_block(self) -> int:
        """How many users it takes for decisions to stand out of their noise."""
        constants, R = self.constants, self.largest
        statistic = self.advantage_sums(np.full((1, self.spec.states), R / 2.0))
        noise = release_noise(statistic, self.privacy, 1) / math.sqrt(1.0 - constants.share) / R
        return math.ceil(constants.block * max(noise, 0.1) * statistic.size / self.spec.horizon)
