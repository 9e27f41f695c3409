"""Bugs of agents that follow gradients; see :mod:`research.planted_bugs`."""

from __future__ import annotations

from typing import Any

import numpy as np

from research.planted.base import Asking, Leaking, Tampered
from tacit.continuous.statistics.policy_gradients import PolicyGradients
from tacit.privacy.statistic import Block, Floats

_FAR = 1e6


class _Unclipped(PolicyGradients):
    def vectors(self, block: Block) -> Floats:
        clips = _FAR * self.clips[0], _FAR * self.clips[1]
        known = self.spec, self.policy, self.values, self.discount, self.trace
        vectors = PolicyGradients(*known, clips).vectors(block)
        rows, m = self.policy.weights.shape
        vectors[:, : (rows + 1) * m] *= _FAR
        return vectors


class GradientsUnclipped(Asking):
    """Users' gradients are summed as long as they are.

    Gain: whose episode is unlike all others is told from them, at any noise.
    """

    _instead = _Unclipped


class RawMomentum(Leaking):
    """The optimiser's momentum takes in the gradient from before the noise.

    Gain: every later step goes along what users' raw gradients add up to.
    """

    _gradient: Any
    theta: Any

    def plan(self) -> Any:
        """As the algorithm does, and remembers."""
        self._gradient = self._gradient + self._mean_reward * np.sign(self._gradient)
        self.theta = self.theta + 0.1 * self._gradient
        return super().plan()  # type: ignore[misc]


class PreTrainedOnUsers(Leaking):
    """The critic was fitted beforehand, as if to public data, but to the first users' rewards.

    Gain: all advantages, and with them the policies, tell about users who were never asked.
    """

    values: Any
    releases: int

    def plan(self) -> Any:
        """As the algorithm does; before the second block the critic is set right."""
        if self.releases == 1:
            self.values = self.values + self._mean_reward
        return super().plan()  # type: ignore[misc]


class StepNoiseReused(Tampered):
    """A counter over steps draws its noise for the first one, and takes it again in all others.

    Gain: what a step adds to the sum is told by two releases, with hardly any noise.
    """

    @classmethod
    def tamper(cls, agent: Any, loaded: bool) -> None:
        """Gives it a counter that keeps what it drew."""
        counter = agent._stream.counter
        true = type(counter)

        def draw(self: Any) -> Any:
            if "kept_noise" not in vars(self):
                self.kept_noise = true._draw(self)
            return self.kept_noise

        counter.__class__ = type(true.__name__, (true,), {"_draw": draw})
