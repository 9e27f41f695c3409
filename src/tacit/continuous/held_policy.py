"""Policies whose users try an action for a while: single random steps explore little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.feature_map import FeatureMap
from tacit.continuous.policy import QPolicy
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints

# An action is held for about 2^0 to 2^5 steps, by the user.
_HOLDS = 6


def share_of(explorers: float, bursts: float) -> float:
    """How often somebody explores on average."""
    for name, chance in (("explorers", explorers), ("bursts", bursts)):
        if not 0.0 <= chance <= 1.0:
            raise InvalidArgument(f"{name} must be in [0, 1], got {chance!r}")
    # A burst of n steps on average follows n / bursts greedy ones.
    return explorers + (1.0 - explorers) * bursts / (1.0 + bursts)


def held(coins: Floats, actions: int, explorers: float, bursts: float) -> Ints:
    """What users (columns) try at steps (rows), by uniform numbers; -1 where they do not."""
    from tacit.continuous.model_loops import hold

    tries = np.full(coins.shape, -1, dtype=np.int64)
    hold(np.ascontiguousarray(coins), actions, explorers, bursts, _HOLDS, tries)
    return tries


@dataclass(frozen=True, eq=False, repr=False)
class HeldPolicy(QPolicy):
    """A :class:`QPolicy` whose random actions are held for a while.

    A part ``explorers`` of users try one random action after the other. Each other user is greedy,
    but for bursts of a random action, which begin with the chance ``bursts`` over how long she
    holds one. How long that is, is geometric, with a mean of 2^0 to 2^5 steps that is drawn once
    for each user. All of it is drawn before the first step, whatever states follow
    (:meth:`exploration`), so that who serves a real user draws a column of it once per episode.
    :meth:`act`, and readers of a published file, which hold nothing, try as many actions, but each
    for one step: ``epsilon`` is how often somebody explores on average.

    >>> from tacit.continuous.features import Grid
    >>> policy = HeldPolicy.of(Grid((0.0,), (1.0,), (2,)), np.zeros((2, 2)), 0.5, 0.1)
    >>> round(policy.epsilon, 3)
    0.545
    """

    explorers: float = 0.0
    bursts: float = 0.0

    @classmethod
    def of(
        cls,
        features: FeatureMap,
        weights: Floats,
        explorers: float,
        bursts: float,
        version: int = 0,
        preference: tuple[int, ...] | None = None,
    ) -> Self:
        """With the ``epsilon`` that belongs to explorers and bursts."""
        order: Any = preference
        chance = share_of(explorers, bursts)
        return cls(features, weights, chance, version, order, explorers, bursts)

    @property
    def exploring(self) -> tuple[float, ...]:
        """What its exploration is made of."""
        return self.epsilon, self.explorers, self.bursts

    def exploration(self, coins: Floats) -> Ints | None:
        """See :meth:`QPolicy.exploration`: what the users of all columns try, held for a while."""
        if self.epsilon == 0.0 or not coins.size:
            return None
        return held(coins, self.n_actions, self.explorers, self.bursts)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """See :meth:`QPolicy.arrays`."""
        return super().arrays() | {"held": np.array([self.explorers, self.bursts])}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], version: int, features: FeatureMap | None = None
    ) -> Self:
        """The inverse, to the bit."""
        plain = QPolicy.from_arrays(arrays, version, features)
        explorers, bursts = (float(chance) for chance in arrays["held"])
        known = plain.features, plain.weights
        return cls.of(*known, explorers, bursts, version, plain.preference)
