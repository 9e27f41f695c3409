"""Policies on vectors: the best action by published values; and the base of their algorithms."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from tacit.continuous.features import FeatureMap, Polynomial, finite_array
from tacit.core.algorithm import Algorithm, BlockSizes, S
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints
from tacit.privacy.validation import checked_number, instance_of, whole_number

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec
    from tacit.core.problem import Problem

_CHUNK = 1 << 22  # numbers of features that are in memory at a time
NO_CLIP = 1e9
"""A clip beyond any user, for runs without privacy: it would only bias."""


@dataclass(frozen=True, eq=False, repr=False)
class QPolicy:
    """The action with the largest value weights[a] @ features(state), at every step.

    With probability ``epsilon`` the action is uniform instead; ``epsilon=1`` is the uniform
    policy. Among equal values the first of ``preference`` wins: an agent draws that order when it
    publishes (:meth:`draw`), so that no label is favoured by its number. Arrays are read-only.

    With ``explorers`` or ``bursts`` random actions are held for a while: single random steps
    explore little (:func:`tacit.continuous.worlds.exploration`). :meth:`act`, and readers of a
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
        instance_of("features", self.features, FeatureMap)
        weights = finite_array("weights", self.weights, None, self.features.size)
        object.__setattr__(self, "weights", weights)
        for name in ("epsilon", "explorers", "bursts"):
            part = checked_number(name, getattr(self, name), "in [0, 1]", lambda x: 0.0 <= x <= 1.0)
            object.__setattr__(self, name, part)
        if self.explorers or self.bursts:
            # A burst of n steps on average follows n / bursts greedy ones.
            resting = (1.0 - self.explorers) * self.bursts / (1.0 + self.bursts)
            object.__setattr__(self, "epsilon", self.explorers + resting)
        version = whole_number("version", self.version, 0, 2**63 - 1)
        object.__setattr__(self, "version", version)
        order = range(len(weights)) if self.preference is None else self.preference
        object.__setattr__(self, "preference", _order("preference", order, len(weights)))

    @classmethod
    def draw(
        cls, features: FeatureMap, weights: ArrayLike, rng: Generator, epsilon: float = 0.0
    ) -> Self:
        """A policy whose preference among equal values is drawn.

        Args:
            features: The map that values are linear on.
            weights: Of shape (actions, features.size).
            rng: Draws the preference.
            epsilon: The probability of a uniform action.
        """
        table = finite_array("weights", weights, None, features.size)
        order = tuple(rng.permutation(len(table)).tolist())
        return cls(features, table, epsilon, preference=order)

    @classmethod
    def uniform(cls, dimension: int, actions: int, version: int = 0) -> QPolicy:
        """Every action with the same probability, in all states of so many coordinates."""
        constant = Polynomial((1.0,) * whole_number("dimension", dimension), 1.0, 0)
        return cls(constant, np.zeros((whole_number("actions", actions), 1)), 1.0, version)

    @property
    def n_actions(self) -> int:
        """How many actions there are."""
        return len(self.weights)

    def values(self, states: ArrayLike) -> Floats:
        """The values of all actions, (..., A), in states, (..., D)."""
        points = np.atleast_1d(np.asarray(states, dtype=np.float64))
        rows = points.reshape(-1, points.shape[-1])
        size = max(1, _CHUNK // self.features.size)
        # A matrix product may round the same sum differently from column to column.
        parts = [
            np.einsum("nm,am->na", self.features(rows[at : at + size]), self.weights)
            for at in range(0, max(len(rows), 1), size)
        ]
        return np.concatenate(parts).reshape(*points.shape[:-1], len(self.weights))

    def greedy(self, states: ArrayLike) -> Ints:
        """The action with the largest value, (...,), in states, (..., D)."""
        order = np.array(self.preference, dtype=np.int64)
        return np.asarray(order[self.values(states)[..., order].argmax(axis=-1)])

    def probabilities(self, states: ArrayLike) -> Floats:
        """The probabilities of all actions, (..., A), in states, (..., D)."""
        greedy = self.greedy(states)
        table = np.full((*greedy.shape, self.n_actions), self.epsilon / self.n_actions)
        best = np.take_along_axis(table, greedy[..., np.newaxis], axis=-1)
        np.put_along_axis(table, greedy[..., np.newaxis], best + (1.0 - self.epsilon), axis=-1)
        return table

    def act(self, step: int, state: ArrayLike, rng: Generator | None = None) -> int:
        """The action in a state; ``rng`` is used if ``epsilon`` > 0. The step does not matter."""
        return int(self.act_many(step, np.asarray(state, dtype=np.float64)[np.newaxis], rng)[0])

    def act_many(self, step: int, states: ArrayLike, rng: Generator | None = None) -> Ints:
        """The actions, (n,), in states, (n, D), drawn independently."""
        greedy = self.greedy(states)
        if self.epsilon == 0.0:
            return greedy
        from tacit.core.public_file import drawing

        drawn = self.random_actions(drawing(rng).random(greedy.shape))
        return np.where(drawn < 0, greedy, drawn)

    def random_actions(self, coins: Floats) -> Ints:
        """Uniform actions by how far coins of [0, 1) are below ``epsilon``, else -1 for greedy."""
        A = self.n_actions
        # Rounding of a quotient just below 1 must not lead to an action that does not exist.
        drawn = np.minimum((coins / self.epsilon * A).astype(np.int64), A - 1)
        return np.where(coins < self.epsilon, drawn, -1)

    def relabelled(self, permutation: Sequence[int]) -> Self:
        """The same policy where action ``a`` is called ``permutation[a]``."""
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
                f"features are {self.features!r}, which are code and cannot be published as numbers"
            )
        stored: dict[str, Any] = {"weights": self.weights, "epsilon": np.array(self.epsilon)}
        stored["preference"] = np.array(self.preference, dtype=np.int64)
        stored["features"] = np.array(self.features.published_as)
        write_published(path, self.version, stored | self.features.parameters(), kind=self.kind)

    def __repr__(self) -> str:
        drawn = f", uniform with {self.epsilon:g}" if self.epsilon else ""
        map_of = f"{self.features.size} features of a {type(self.features).__name__}"
        return f"<QPolicy version {self.version}: {self.n_actions} actions, {map_of}{drawn}>"


def _order(name: str, values: Any, actions: int) -> tuple[int, ...]:
    try:
        order = tuple(int(a) for a in values)
    except (TypeError, ValueError, OverflowError):
        order = ()
    if sorted(order) != list(range(actions)):
        raise InvalidArgument(f"{name} must hold each of {actions} actions once, got {values!r}")
    return order


class BoxAlgorithm(Algorithm[S]):
    """An algorithm on vectors; a subclass first sets ``spec``, and ``features`` if it has any."""

    spec: BoxSpec
    features: FeatureMap | None = None

    def uniform(self) -> QPolicy:
        """Every action with the same chance."""
        return QPolicy.uniform(self.spec.dimension, self.spec.actions)

    def _block_sizes(self) -> BlockSizes:
        """All users in one block."""
        return BlockSizes(f"fixed:size={self.users}", size=self.users)

    @property
    def code(self) -> tuple[Any, ...]:
        """Its feature map, which may be a function."""
        return () if self.features is None else (self.features,)


def box_spec(problem: Problem) -> BoxSpec:
    """The spec of a problem, if its states are vectors; others are refused."""
    spec: BoxSpec = problem.spec
    if not hasattr(spec, "bounded"):
        raise InvalidArgument(f"spec must be a BoxSpec, got {type(spec).__name__}")
    return spec
