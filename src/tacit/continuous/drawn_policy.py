"""Policies that draw their actions: what policy gradients are gradients of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.continuous.action_box import ActionBox, normals
from tacit.continuous.feature_map import FeatureMap, feature_arrays
from tacit.continuous.policy import QPolicy
from tacit.core.public_file import drawing, write_published
from tacit.privacy.arguments import instance_of
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class SoftmaxPolicy(QPolicy):
    """Every action with a chance proportional to exp(weights[a] @ features(state)).

    >>> from tacit.continuous.features import Grid
    >>> policy = SoftmaxPolicy(Grid((0.0,), (1.0,), (2,)), [[0.0, 0.0], [1.0, 1.0]])
    >>> policy.probabilities([0.3]).round(3).tolist()
    [0.269, 0.731]
    """

    @property
    def is_deterministic(self) -> bool:
        """Never."""
        return False

    @property
    def exploring(self) -> tuple[float, ...]:
        """No other policy's."""
        return (2.0,)

    def probabilities(self, states: ArrayLike) -> Floats:
        """The probabilities of all actions, (..., A), in states, (..., D)."""
        values = self.values(states)
        chances: Floats = np.exp(values - values.max(axis=-1, keepdims=True))
        chances /= chances.sum(axis=-1, keepdims=True)
        return chances

    def by_coins(self, states: ArrayLike, coins: Floats) -> Ints:
        """Actions, (n,), in states, (n, D), by a uniform number of [0, 1) for each of them."""
        below = np.cumsum(self.probabilities(states), axis=-1) <= coins[..., np.newaxis]
        drawn: Ints = np.minimum(below.sum(axis=-1), self.n_actions - 1)
        return drawn

    def act_many(
        self, step: int, states: ArrayLike, rng: np.random.Generator | None = None
    ) -> Ints:
        """The actions, (n,), in states, (n, D), drawn independently."""
        return self.by_coins(states, drawing(rng).random(len(np.asarray(states))))

    def scores(self, states: Floats, actions: Ints) -> Floats:
        """Derivatives, (..., A), of the logarithm of an action's chance by weights @ features."""
        taken = actions[..., np.newaxis] == np.arange(self.n_actions)
        scores: Floats = taken - self.probabilities(states)
        return scores

    def arrays(self) -> dict[str, NDArray[Any]]:
        """See :meth:`QPolicy.arrays`."""
        return super().arrays() | {"softmax": np.array(1)}

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, of kind "softmax", atomically (mode 0644)."""
        write_published(path, self.version, self._stored(), kind="softmax")

    def _stored(self) -> dict[str, NDArray[Any]]:
        plain = feature_arrays(self.features)
        if plain is None:
            raise InvalidArgument(f"features are {self.features!r}, which are code, not numbers")
        kind, parameters = plain
        return {"weights": self.weights, "features": np.array(kind)} | parameters


@dataclass(frozen=True, eq=False, repr=False)
class GaussianPolicy(SoftmaxPolicy):
    """Actions in a box: normal around weights @ features(state), which is kept in the box.

    Means and ``sigma`` are in units of the box, whose corners are -1 and 1. Actions are numbers of
    the mesh of ``box``; :meth:`action` is the vector itself. ``sigma=0`` takes the mean.

    >>> from tacit.continuous.features import Grid
    >>> box = ActionBox((-2.0,), (2.0,))
    >>> policy = GaussianPolicy.of(Grid((0.0,), (1.0,), (2,)), [[0.0, 1.0]], box, 0.0)
    >>> policy.action([0.5]).tolist()
    [1.0]
    """

    box: ActionBox = None  # type: ignore[assignment]
    sigma: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        instance_of("box", self.box, ActionBox)
        if len(self.weights) != self.box.dimension or not 0.0 <= self.sigma < np.inf:
            raise InvalidArgument(
                f"weights must have {self.box.dimension} rows and sigma be >= 0, got "
                f"{len(self.weights)} and {self.sigma!r}"
            )

    @classmethod
    def of(
        cls,
        features: FeatureMap,
        weights: ArrayLike,
        box: ActionBox,
        sigma: float,
        version: int = 0,
    ) -> Self:
        """The policy of such weights, (k, features)."""
        table = np.asarray(weights, dtype=np.float64)
        return cls(features, table, 0.0, version, tuple(range(len(table))), box, float(sigma))

    @property
    def n_actions(self) -> int:
        """How many points the mesh has."""
        return self.box.size

    @property
    def is_deterministic(self) -> bool:
        """Whether it never draws an action."""
        return self.sigma == 0.0

    @property
    def exploring(self) -> tuple[float, ...]:
        """No other policy's."""
        return 3.0, self.sigma

    def means(self, states: ArrayLike) -> Floats:
        """What actions aim at on average, (..., k), in units of the box."""
        return np.clip(self.values(states), -1.0, 1.0)

    def greedy(self, states: ArrayLike) -> Ints:
        """The number of the mean action."""
        return self.box.numbers(self.means(states))

    def probabilities(self, states: ArrayLike) -> Floats:
        """Refused: a mesh has too many points."""
        raise InvalidArgument("actions are vectors: ask for means and sigma")

    def by_coins(self, states: ArrayLike, coins: Floats) -> Ints:
        """See :class:`SoftmaxPolicy`: numbers of the mesh."""
        aims = self.means(states)
        if self.sigma > 0.0:
            aims = aims + self.sigma * normals(coins, self.box.dimension)
        return self.box.numbers(aims)

    def act_many(
        self, step: int, states: ArrayLike, rng: np.random.Generator | None = None
    ) -> Ints:
        """The numbers of actions, (n,), in states, (n, D), drawn independently."""
        users = len(np.asarray(states))
        coins = np.zeros(users) if self.sigma == 0.0 else drawing(rng).random(users)
        return self.by_coins(states, coins)

    def action(self, state: ArrayLike, rng: np.random.Generator | None = None) -> Floats:
        """The action itself in a state, in the box."""
        return self.box.actions(self.act(0, state, rng))

    def scores(self, states: Floats, actions: Ints) -> Floats:
        """Derivatives, (..., k), of the log density by means, in standard deviations."""
        scale = self.sigma if self.sigma > 0.0 else 1.0
        return (self.box.aims(actions) - self.means(states)) / scale

    def arrays(self) -> dict[str, NDArray[Any]]:
        """See :meth:`QPolicy.arrays`."""
        return QPolicy.arrays(self) | self._own()

    def _own(self) -> dict[str, NDArray[Any]]:
        return {
            "action_lows": np.array(self.box.lows),
            "action_highs": np.array(self.box.highs),
            "levels": np.array(self.box.levels),
            "sigma": np.array(self.sigma),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], version: int, features: FeatureMap | None = None
    ) -> Self:
        """The inverse, to the bit."""
        plain = QPolicy.from_arrays(arrays, version, features)
        lows, highs = (tuple(arrays[name].tolist()) for name in ("action_lows", "action_highs"))
        box = ActionBox(lows, highs, int(arrays["levels"]))
        return cls.of(plain.features, plain.weights, box, float(arrays["sigma"]), version)

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, of kind "gaussian", atomically (mode 0644)."""
        write_published(path, self.version, self._stored() | self._own(), kind="gaussian")


def policy_from(
    arrays: Mapping[str, NDArray[Any]], version: int, features: FeatureMap | None
) -> QPolicy:
    """A policy of any of these kinds from its arrays, to the bit."""
    kind: type[QPolicy] = GaussianPolicy if "sigma" in arrays else QPolicy
    if "softmax" in arrays:
        kind = SoftmaxPolicy
    return kind.from_arrays(arrays, version, features)
