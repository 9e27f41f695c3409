"""Bugs of agents that follow gradients; see :mod:`research.planted_bugs`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from research.planted.base import Asking, Leaking
from tacit.continuous.actor_critic import PolicyGradients
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

    def update(self, *known: Any) -> Any:
        """As the algorithm does, and remembers."""
        state = super().update(*known)  # type: ignore[misc]
        gradient = state.gradient + self._mean_reward * np.sign(state.gradient)
        return replace(state, gradient=gradient, theta=state.theta + 0.1 * gradient)


class PreTrainedOnUsers(Leaking):
    """The critic was fitted beforehand, as if to public data, but to the first users' rewards.

    Gain: all advantages, and with them the policies, tell about users who were never asked.
    """

    def update(self, state: Any, plan: Any, release: Any, block: Any, rng: Any) -> Any:
        """As the algorithm does; after the first block the critic is set right."""
        after = super().update(state, plan, release, block, rng)  # type: ignore[misc]
        if block.releases:
            return after
        return replace(after, values=after.values + self._mean_reward)
