"""Policy improvement from counts of transitions, where users are many enough to know them all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.asks import Arrays, Ask, Asks, State
from tacit.finite.policy import softmax
from tacit.finite.spec import FiniteSpec
from tacit.finite.visits import VisitCounts, counts_of, row_of
from tacit.privacy.sizing import users_above_noise

if TYPE_CHECKING:
    from tacit.finite.visits import Ints
    from tacit.privacy.models import Privacy
    from tacit.tabular.policy_improvement import ImprovementConstants

# A cell is known once its visits exceed so many standard deviations of their noise.
_KNOWN = 2.0


class CountWay:
    """A model of the world, and its best policy, step by step.

    A block is asked once: where a user's first two steps in a cell led, and what they paid. Counts
    of all blocks are added up. In the model a cell that is not known yet pays nothing; for those
    who explore it pays all that is left.
    """

    def __init__(
        self, spec: FiniteSpec, allowed: Any, privacy: Privacy, constants: ImprovementConstants
    ) -> None:
        self.spec, self.allowed, self.privacy, self.constants = spec, allowed, privacy, constants
        shape = (self.statistic().rows, spec.states, spec.actions)
        self.transitions, self.rewards = np.zeros((*shape, spec.states)), np.zeros(shape)
        self.variance = np.zeros(2)  # of the noise in one count, and in one sum of rewards

    # What is asked.

    def statistic(self) -> VisitCounts:
        """See the class."""
        spec, cap = self.spec, min(2, self.spec.horizon)
        weight = math.sqrt(0.2)
        return counts_of(spec)(
            spec.states, spec.actions, spec.horizon, pooled=True, cap=cap, weight=weight
        )

    def asks(self) -> Asks:
        """Counts, with the whole budget."""
        release = yield Ask(self.statistic())
        shape = self.transitions.shape
        noise = [float(np.max(release.std[name])) for name in ("transitions", "rewards")]
        self.transitions = self.transitions + release["transitions"].reshape(shape)
        self.rewards = self.rewards + release["rewards"].reshape(shape[:3])
        self.variance = self.variance + np.square(noise)

    # How it plans.

    def best(self, rng: np.random.Generator) -> Ints:
        """The best actions of the model, (H, S), equals decided at random."""
        values, _ = self._plan(unknown=0.0)
        top = values == values.max(axis=2, keepdims=True)
        best: Ints = np.where(top, rng.random(values.shape), -1.0).argmax(axis=2)
        return best

    def exploring(self, users: int) -> Floats:
        """Actions with probabilities that fall with how surely they are worse, (H, S, A)."""
        values, deviations = self._plan(unknown=1.0)
        top = values.argmax(axis=2)[..., np.newaxis]
        lead = values - np.take_along_axis(values, top, axis=2)
        spread = np.hypot(deviations, np.take_along_axis(deviations, top, axis=2))
        scaled = self.constants.sharpness * lead / np.maximum(spread, 1e-9)
        return softmax(np.where(self.allowed, scaled, -np.inf))

    def _plan(self, unknown: float) -> tuple[Floats, Floats]:
        """Action values (H, S, A) of the model and their standard deviations.

        ``unknown`` is what a step in a cell that is not known pays, as a share of what is left.
        """
        from tacit.numerics.projection import project

        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        noise, of_rewards = np.sqrt(self.variance)
        n = self.transitions.sum(axis=3)
        known = self.allowed & (n > max(_KNOWN * noise * math.sqrt(S), 0.5))
        P = np.zeros(self.transitions.shape)
        project(self.transitions.reshape(-1, S), known.reshape(-1), P.reshape(-1, S))
        n = np.where(known, n, 1.0)
        r = np.clip(self.rewards / n, 0.0, 1.0)
        values, deviations = np.empty((H, S, A)), np.empty((H, S, A))
        after = np.zeros(S)
        for h in range(H - 1, -1, -1):
            left, f = min(self.spec.most_return, float(H - h)), row_of(h, H, len(P))
            mean, possible = P[f] @ after, P[f] > 0
            # Counts that are 0 in the model were projected: their noise is gone.
            square = possible @ after**2 - 2 * mean * (possible @ after) + possible.sum(2) * mean**2
            sampling = n[f] * np.maximum(P[f] @ after**2 - mean**2, 0.0)
            deviation = np.sqrt(noise**2 * np.maximum(square, 0.0) + of_rewards**2 + sampling)
            values[h] = np.where(known[f], np.minimum(r[f] + mean, left), unknown * left)
            values[h] = np.where(self.allowed, values[h], -np.inf)
            deviations[h] = np.where(known[f], deviation / n[f], left)
            after = values[h].max(axis=1)
        return values, deviations

    @property
    def smallest_block(self) -> int:
        """How many users stand out of the noise of a row of counts."""
        cells = int(self.allowed.sum()) / self.spec.horizon
        multiple = _KNOWN * math.sqrt(self.spec.states) * max(cells, 1.0)
        return max(users_above_noise(self.statistic(), self.privacy, multiple), 20)

    # Save and resume.

    def state(self) -> State:
        """All counts."""
        names = ("transitions", "rewards", "variance")
        return {}, {name: np.array(getattr(self, name)) for name in names}

    def restore(self, arrays: Arrays) -> None:
        """See :meth:`state`."""
        shape = self.transitions.shape
        self.transitions = arrays["transitions"].reshape(shape)  # earlier versions had no rows
        self.rewards = arrays["rewards"].reshape(shape[:3])
        self.variance = arrays["variance"]
