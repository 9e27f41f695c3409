"""Policies on states that are vectors: the best action by published values, with exploration."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.continuous.features import FeatureMap, Polynomial
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints
from tacit.privacy.validation import checked_number, numbers, whole_number

# Numbers of features that are in memory at a time.
_CHUNK = 1 << 22


@dataclass(frozen=True, eq=False, repr=False)
class QPolicy:
    """The action with the largest value weights[a] @ features(state), at every step.

    With probability ``epsilon`` the action is uniform instead; ``epsilon=1`` is the uniform
    policy. Where several values are exactly equal, the one that comes first in ``preference``
    wins. An agent draws that order once, when it publishes (:meth:`draw`), so that no label is
    favoured by its number. The arrays are copies and read-only: what was published cannot change.

    With ``explorers`` or ``bursts`` random actions are held for a while: single random steps
    explore little (:func:`tacit.continuous.world.exploration`). :meth:`act`, and readers of a
    published file, which hold nothing, try as many actions, but each for one step: ``epsilon`` is
    then how often a user explores on average.

    >>> from tacit.continuous import Grid
    >>> policy = QPolicy(Grid((0.0,), (1.0,), (2,)), [[1.0, 0.0], [0.0, 1.0]])
    >>> policy.greedy([[0.2], [0.9]]).tolist()
    [0, 1]
    """

    features: FeatureMap
    weights: Floats  # (actions, features.size)
    epsilon: float = 0.0  # follows from the last two, where any is given
    version: int = 0  # which policy of its agent it is
    # All actions, the one that wins ties first; None stands for the order of labels, until made.
    preference: tuple[int, ...] = None  # type: ignore[assignment]
    explorers: float = 0.0  # part of users who hold random actions all the time
    bursts: float = 0.0  # how often others begin to
    kind: ClassVar[str] = "q"  # of its public file

    def __post_init__(self) -> None:
        if not isinstance(self.features, FeatureMap):
            raise InvalidArgument(f"features must be a feature map, got {self.features!r}")
        weights = np.array(numbers("weights", self.weights), dtype=np.float64, order="C")
        if weights.ndim != 2 or not len(weights) or weights.shape[1] != self.features.size:
            raise InvalidArgument(
                f"weights must have shape (actions, {self.features.size}), got {weights.shape}"
            )
        if not np.isfinite(weights).all():
            raise InvalidArgument("weights must be finite")
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)
        for name in ("epsilon", "explorers", "bursts"):
            part = checked_number(name, getattr(self, name), "in [0, 1]", lambda x: 0.0 <= x <= 1.0)
            object.__setattr__(self, name, part)
        if self.explorers or self.bursts:
            # A burst of n steps on average follows n / bursts greedy ones.
            resting = (1.0 - self.explorers) * self.bursts / (1.0 + self.bursts)
            object.__setattr__(self, "epsilon", self.explorers + resting)
        if whole_number("version", self.version, least=0) >= 2**63:
            raise InvalidArgument(f"version must be of 63 bits, got {self.version!r}")
        object.__setattr__(self, "version", int(self.version))
        order = range(len(weights)) if self.preference is None else self.preference
        object.__setattr__(self, "preference", _order("preference", order, len(weights)))

    @classmethod
    def draw(
        cls,
        features: FeatureMap,
        weights: ArrayLike,
        rng: np.random.Generator,
        epsilon: float = 0.0,
    ) -> Self:
        """A policy whose preference among equal values is drawn.

        Args:
            features: The map that values are linear on.
            weights: Of shape (actions, features.size).
            rng: Draws the preference.
            epsilon: The probability of a uniform action.
        """
        table = numbers("weights", weights)
        order = rng.permutation(len(table) if table.ndim else 0)
        return cls(features, table, epsilon, preference=tuple(order.tolist()))

    @classmethod
    def uniform(cls, dimension: int, actions: int, version: int = 0) -> QPolicy:
        """Every action with the same probability, in all states of so many coordinates.

        >>> QPolicy.uniform(dimension=2, actions=4).probabilities([0.3, 0.1]).tolist()
        [0.25, 0.25, 0.25, 0.25]
        """
        dimension, actions = whole_number("dimension", dimension), whole_number("actions", actions)
        constant = Polynomial((1.0,) * dimension, 1.0, 0)
        return cls(constant, np.zeros((actions, 1)), 1.0, version)

    @property
    def n_actions(self) -> int:
        """How many actions there are."""
        return len(self.weights)

    def values(self, states: ArrayLike) -> Floats:
        """The values of all actions, (..., A), in states, (..., D)."""
        points = np.asarray(states, dtype=np.float64)
        if points.ndim == 0:
            raise InvalidArgument("states must have the coordinates of a state as their last axis")
        rows = points.reshape(-1, points.shape[-1])
        size = max(1, _CHUNK // self.features.size)
        # Not a matrix product: that may round the same sum differently from column to column, and
        # equal weights must have equal values.
        parts = [
            np.einsum("nm,am->na", self.features(rows[at : at + size]), self.weights)
            for at in range(0, max(len(rows), 1), size)
        ]
        return np.concatenate(parts).reshape(*points.shape[:-1], len(self.weights))

    def greedy(self, states: ArrayLike) -> Ints:
        """The action with the largest value, (...,), in states, (..., D)."""
        order = np.array(self.preference, dtype=np.int64)
        actions: Ints = order[self.values(states)[..., order].argmax(axis=-1)]
        return actions

    def probabilities(self, states: ArrayLike) -> Floats:
        """The probabilities of all actions, (..., A), in states, (..., D)."""
        greedy = self.greedy(states)
        table = np.full((*greedy.shape, self.n_actions), self.epsilon / self.n_actions)
        best = np.take_along_axis(table, greedy[..., np.newaxis], axis=-1)
        np.put_along_axis(table, greedy[..., np.newaxis], best + (1.0 - self.epsilon), axis=-1)
        return table

    def act(self, step: int, state: ArrayLike, rng: np.random.Generator | None = None) -> int:
        """The action in a state; ``rng`` is used if ``epsilon`` > 0. The step does not matter."""
        return int(self.act_many(step, np.asarray(state, dtype=np.float64)[np.newaxis], rng)[0])

    def act_many(
        self, step: int, states: ArrayLike, rng: np.random.Generator | None = None
    ) -> Ints:
        """The actions, (n,), in states, (n, D), drawn independently."""
        greedy = self.greedy(states)
        if self.epsilon == 0.0:
            return greedy
        drawn = self.random_actions(uniforms(rng, greedy.shape))
        return np.where(drawn < 0, greedy, drawn)

    def random_actions(self, coins: Floats) -> Ints:
        """Uniform actions by uniform numbers of [0, 1), or -1 where the greedy one is taken.

        A number below ``epsilon`` means a uniform action, and how far below says which one.
        """
        A = self.n_actions
        # Rounding of a quotient just below 1 must not lead to an action that does not exist.
        drawn = np.minimum((coins / self.epsilon * A).astype(np.int64), A - 1)
        return np.where(coins < self.epsilon, drawn, -1)

    def relabelled(self, permutation: Sequence[int]) -> Self:
        """The same policy where action ``a`` is called ``permutation[a]``.

        >>> from tacit.continuous import Grid
        >>> policy = QPolicy(Grid((0.0,), (1.0,), (2,)), [[1.0, 0.0], [0.0, 1.0]])
        >>> policy.relabelled([1, 0]).greedy([[0.2], [0.9]]).tolist()
        [1, 0]
        """
        names = _order("permutation", permutation, self.n_actions)
        weights = np.empty_like(self.weights)
        weights[list(names)] = self.weights
        order = tuple(names[a] for a in self.preference)
        return replace(self, weights=weights, preference=order)

    def as_version(self, version: int) -> Self:
        """The same policy by another number."""
        return replace(self, version=version)

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, atomically (mode 0644), unless the features are code."""
        from tacit.core.public_file import write_published

        if self.features.published_as is None:
            raise InvalidArgument(
                f"features are {self.features!r}, which are code and cannot be published as "
                "numbers; take a Grid, a Polynomial or Quadrature, or distribute the code and the "
                "weights yourself"
            )
        kind = {"features": np.array(self.features.published_as)}
        stored = self._published() | kind | self.features.parameters()
        write_published(path, self.version, stored, kind=self.kind)

    def _published(self) -> dict[str, NDArray[Any]]:
        order = np.array(self.preference, dtype=np.int64)
        return {"weights": self.weights, "epsilon": np.array(self.epsilon), "preference": order}

    def __repr__(self) -> str:
        drawn = f", uniform with {self.epsilon:g}" if self.epsilon else ""
        return (
            f"<QPolicy version {self.version}: {self.n_actions} actions, "
            f"{self.features.describe()}{drawn}>"
        )


def uniforms(rng: np.random.Generator | None, size: int | tuple[int, ...]) -> Floats:
    """Uniform numbers of [0, 1) by which a policy draws its actions."""
    if rng is None:
        raise InvalidArgument("this policy draws its actions: give rng, np.random.default_rng()")
    return rng.random(size)


def _order(name: str, values: Any, actions: int) -> tuple[int, ...]:
    try:
        order = [int(a) for a in values]
    except (TypeError, ValueError):
        order = []
    if sorted(order) != list(range(actions)):
        raise InvalidArgument(
            f"{name} must hold each of the {actions} actions once, got {values!r}"
        )
    return tuple(order)
