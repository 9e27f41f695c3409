"""Policy improvement from sums of what followed a state or an action."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.asks import Arrays, Ask, Asks, State
from tacit.finite.return_sums import ReturnSums
from tacit.finite.spec import FiniteSpec
from tacit.privacy.sizing import release_noise
from tacit.tabular.beliefs import Beliefs

if TYPE_CHECKING:
    from tacit.finite.visits import Ints
    from tacit.privacy.models import Privacy
    from tacit.tabular.policy_improvement import ImprovementConstants


class ReturnWay:
    """One number per state and one per decision, whatever may follow them.

    A block is asked twice. First by state: the return from a user's first visit on, and a visit,
    for her first states. Then by state and action, where a state allows several: residuals against
    the values just released, whose squares add up to about the variance of one return however
    long an episode is.
    """

    def __init__(
        self, spec: FiniteSpec, allowed: Any, privacy: Privacy, constants: ImprovementConstants
    ) -> None:
        self.spec, self.allowed, self.privacy, self.constants = spec, allowed, privacy, constants
        self.largest = spec.most_return
        self.beliefs = Beliefs(allowed, self.largest, constants)
        # Actions' probabilities under the policy that serves the block, (F, S, A).
        self.behaviour: Floats = (allowed / allowed.sum(axis=1, keepdims=True))[np.newaxis]
        self.smallest_block = self._smallest_block()

    # What is asked.

    @property
    def phases(self) -> int:
        """F: into how many parts of a horizon steps fall."""
        return len(self.behaviour)

    @property
    def _phase(self) -> Ints:
        """The phase of every step, (H,)."""
        return np.arange(self.spec.horizon) * self.phases // self.spec.horizon

    def value_sums(self) -> ReturnSums:
        """Returns less half of the largest one, and visits, by phase and state.

        A visit costs nothing: two users are farthest apart where they visit the same states.
        """
        R, H, S = self.largest, self.spec.horizon, self.spec.states
        cells = np.arange(self.phases * S).reshape(self.phases, S, 1)[self._phase]
        return ReturnSums(
            cells=np.where(self.allowed, cells, -1),
            centre=np.full((H, S), R / 2.0),
            first=min(self.constants.first, H),
            most=R / 2.0,
            weight=R / 2.0,
        )

    def advantage_sums(self, values: Floats) -> ReturnSums:
        """What followed an action, less ``values`` (F, S), where there is something to decide."""
        longest = self.constants.length * self.largest
        return ReturnSums(
            cells=self._decisions[self._phase],
            centre=values[self._phase],
            trace=self.constants.trace,
            first=self.spec.horizon,
            most=longest,
            length=longest,
        )

    @property
    def _decisions(self) -> Ints:
        """The number of a cell, (F, S, A), where a state allows several actions, else -1."""
        several = self.allowed & (self.allowed.sum(axis=1, keepdims=True) > 1)
        if not several.any():
            # Nothing is to be decided anywhere: the question has a cell all the same.
            several = self.allowed & (np.cumsum(self.allowed).reshape(self.allowed.shape) == 1)
        shape = (self.phases, *several.shape)
        numbers = np.cumsum(np.broadcast_to(several, shape)).reshape(shape) - 1
        found: Ints = np.where(several, numbers, -1)
        return found

    def asks(self) -> Asks:
        """Values of the policy that serves the block, then advantages over them."""
        share, shape = self.constants.share, (self.phases, self.spec.states)
        of_values = yield Ask(self.value_sums(), share=share)
        learnt = Beliefs(self.allowed, self.largest, self.constants)
        learnt.restore(self.beliefs.dump())
        returns, visits = (of_values.parts[name].reshape(shape) for name in ("returns", "visits"))
        learnt.hear_values(returns, visits, float(np.max(of_values.std["returns"])))
        of_actions = yield Ask(self.advantage_sums(learnt.values), share=1.0 - share)
        cells = self._decisions
        sums = np.where(cells >= 0, of_actions.parts["returns"][np.maximum(cells, 0)], 0.0)
        noise = float(np.max(of_actions.std["returns"]))
        learnt.hear_advantages(sums, self.behaviour, noise)
        self.beliefs = learnt

    # How it plans.

    def best(self, rng: np.random.Generator) -> Ints:
        """The best actions, (H, S), the same at every step of a phase."""
        return self.beliefs.greedy(rng.random(self.behaviour.shape))[self._phase]

    def exploring(self, users: int) -> Floats:
        """Actions that may be the best, (H, S, A): what serves the next block, of so many users."""
        beliefs = self.beliefs
        new = beliefs.exploring(beliefs.greedy(np.zeros(self.behaviour.shape)))
        beliefs.follow(self.behaviour, new)
        # Twice as many phases need more than twice as many users.
        many = math.sqrt(users / (self.constants.phased * self.smallest_block))
        finest = min(self.constants.phases, max(1, self.spec.horizon // 2))
        times = min(1 << max(0, int(math.log2(max(many, 1.0)))), finest) // self.phases
        if times > 1:
            beliefs.split(times)
            new = np.repeat(new, times, axis=0)
        self.behaviour = new
        return new[self._phase]

    def _smallest_block(self) -> int:
        """How many users it takes for decisions to stand out of their noise."""
        constants, R = self.constants, self.largest
        statistic = self.advantage_sums(np.full((1, self.spec.states), R / 2.0))
        noise = release_noise(statistic, self.privacy, 1) / math.sqrt(1.0 - constants.share) / R
        return math.ceil(constants.block * max(noise, 0.1) * statistic.size / self.spec.horizon)

    # Save and resume.

    def state(self) -> State:
        """What is believed, and what serves the block."""
        return {}, self.beliefs.dump() | {"behaviour": np.array(self.behaviour)}

    def restore(self, arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.beliefs.restore(arrays)
        self.behaviour = np.array(arrays["behaviour"], dtype=np.float64)
