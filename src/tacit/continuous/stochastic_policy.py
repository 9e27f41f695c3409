"""Policies that draw their actions: softmax over numbered ones, Gaussian in a box of vectors.

Actions that are vectors are numbers of a fine public mesh: all else goes on counting actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.continuous.features import set_corners
from tacit.continuous.policy import QPolicy, uniforms
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints
from tacit.privacy.validation import instance_of, whole_number

_LEVELS = {1: 1001, 2: 201, 3: 41}  # points of a mesh along each coordinate, by their number


@dataclass(frozen=True)
class ActionBox:
    """A box of actions, and a mesh on which every action has a number.

    In units of the box its corners are -1 and 1, and the mesh goes from -2 to 2, so that what a
    policy aims at beyond the box has a number too; :meth:`actions` cuts it to the box.

    >>> box = ActionBox((-2.0,), (2.0,), levels=5)
    >>> box.actions(np.arange(5)).ravel().tolist()
    [-2.0, -2.0, 0.0, 2.0, 2.0]
    >>> box.numbers([[0.4], [0.6], [9.0]]).tolist()
    [2, 3, 4]
    """

    lows: tuple[float, ...]  # the lower corner, one to three numbers
    highs: tuple[float, ...]  # its upper corner
    levels: int = 0  # points of the mesh along each coordinate; 1001, 201 or 41 by default

    def __post_init__(self) -> None:
        set_corners(self, finite=True)
        if self.dimension not in _LEVELS:
            raise InvalidArgument(
                f"actions must have 1 to {max(_LEVELS)} coordinates, got {self.dimension}"
            )
        levels = self.levels or _LEVELS[self.dimension]
        object.__setattr__(self, "levels", whole_number("levels", levels, least=2))

    @property
    def dimension(self) -> int:
        """How many coordinates an action has."""
        return len(self.lows)

    @property
    def size(self) -> int:
        """How many points the mesh has."""
        return int(self.levels**self.dimension)

    def aims(self, numbers: ArrayLike) -> Floats:
        """Points, (..., k), that actions of these numbers, (...,), aim at, in units of the box."""
        whole = np.clip(np.asarray(numbers, dtype=np.int64), 0, self.size - 1)
        places = np.stack(np.unravel_index(whole, (self.levels,) * self.dimension), axis=-1)
        return np.asarray(4.0 * places / (self.levels - 1) - 2.0)

    def numbers(self, aims: ArrayLike) -> Ints:
        """The numbers, (...,), of the points of the mesh that are nearest to aims, (..., k)."""
        at = np.clip(np.nan_to_num(np.asarray(aims, dtype=np.float64)), -2.0, 2.0)
        places = np.rint((at + 2.0) * (self.levels - 1) / 4.0).astype(np.int64)
        weights = self.levels ** np.arange(self.dimension - 1, -1, -1)
        return np.asarray((places * weights).sum(axis=-1))

    def actions(self, numbers: ArrayLike) -> Floats:
        """The actions, (..., k), of these numbers, in the box."""
        low, high = np.array(self.lows), np.array(self.highs)
        inside = np.clip(self.aims(numbers), -1.0, 1.0)
        return np.asarray(low + (inside + 1.0) / 2.0 * (high - low))


@dataclass(frozen=True, eq=False, repr=False)
class SoftmaxPolicy(QPolicy):
    """Every action with a chance proportional to exp(weights[a] @ features(state))."""

    kind: ClassVar[str] = "softmax"

    def probabilities(self, states: ArrayLike) -> Floats:
        """The probabilities of all actions, (..., A), in states, (..., D)."""
        values = self.values(states)
        chances = np.exp(values - values.max(axis=-1, keepdims=True))
        return np.asarray(chances / chances.sum(axis=-1, keepdims=True))

    def by_coins(self, states: ArrayLike, coins: Floats) -> Ints:
        """Actions, (n,), in states, (n, D), by a uniform number of [0, 1) for each of them."""
        below = np.cumsum(self.probabilities(states), axis=-1) <= coins[..., np.newaxis]
        return np.asarray(np.minimum(below.sum(axis=-1), self.n_actions - 1))

    def act_many(
        self, step: int, states: ArrayLike, rng: np.random.Generator | None = None
    ) -> Ints:
        """The actions, (n,), in states, (n, D), drawn independently."""
        return self.by_coins(states, uniforms(rng, len(np.asarray(states))))

    def scores(self, states: Floats, actions: Ints) -> Floats:
        """Derivatives, (..., A), of the logarithm of an action's chance by weights @ features."""
        taken = actions[..., np.newaxis] == np.arange(self.n_actions)
        return np.asarray(taken - self.probabilities(states))

    def _published(self) -> dict[str, NDArray[Any]]:
        return {"weights": self.weights}


@dataclass(frozen=True, eq=False, repr=False)
class GaussianPolicy(SoftmaxPolicy):
    """Actions in a box: normal around weights @ features(state), which is kept in the box.

    Means and ``sigma`` are in units of the box, whose corners are -1 and 1. Actions are numbers of
    the mesh of ``box``; :meth:`action` is the vector itself. ``sigma=0`` takes the mean.

    >>> from tacit.continuous import Grid
    >>> box = ActionBox((-2.0,), (2.0,))
    >>> policy = GaussianPolicy(Grid((0.0,), (1.0,), (2,)), [[0.0, 1.0]], box=box)
    >>> policy.action([0.5]).tolist()
    [1.0]
    """

    kind: ClassVar[str] = "gaussian"
    box: ActionBox = None  # type: ignore[assignment]
    sigma: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        instance_of("box", self.box, ActionBox)
        good = len(self.weights) == self.box.dimension and 0.0 <= self.sigma < np.inf
        if not good or self.epsilon:
            raise InvalidArgument(
                f"weights must have {self.box.dimension} rows, sigma be >= 0 and epsilon 0"
            )

    @property
    def n_actions(self) -> int:
        """Points of the mesh."""
        return self.box.size

    def means(self, states: ArrayLike) -> Floats:
        """Mean actions, (..., k), in units of the box."""
        return np.clip(self.values(states), -1.0, 1.0)

    def greedy(self, states: ArrayLike) -> Ints:
        """The number of the mean action."""
        return self.box.numbers(self.means(states))

    def probabilities(self, states: ArrayLike) -> Floats:
        """Refused: a mesh has too many points."""
        raise InvalidArgument("actions are vectors: ask for means and sigma")

    def by_coins(self, states: ArrayLike, coins: Floats) -> Ints:
        """Numbers of the mesh, by a uniform number of [0, 1) for each state."""
        aims = self.means(states)
        if self.sigma > 0.0:
            aims = aims + self.sigma * normals(coins, self.box.dimension)
        return self.box.numbers(aims)

    def act_many(
        self, step: int, states: ArrayLike, rng: np.random.Generator | None = None
    ) -> Ints:
        """The numbers of actions, (n,), in states, (n, D), drawn independently."""
        users = len(np.asarray(states))
        return self.by_coins(states, np.zeros(users) if self.sigma == 0.0 else uniforms(rng, users))

    def action(self, state: ArrayLike, rng: np.random.Generator | None = None) -> Floats:
        """The action itself in a state, in the box."""
        return self.box.actions(self.act(0, state, rng))

    def scores(self, states: Floats, actions: Ints) -> Floats:
        """Derivatives, (..., k), of the log density by means, in standard deviations."""
        scale = self.sigma if self.sigma > 0.0 else 1.0
        return (self.box.aims(actions) - self.means(states)) / scale

    def _published(self) -> dict[str, NDArray[Any]]:
        box = {"action_lows": self.box.lows, "action_highs": self.box.highs}
        numbers: dict[str, Any] = {**box, "levels": self.box.levels, "sigma": self.sigma}
        return super()._published() | {name: np.array(value) for name, value in numbers.items()}


def normals(coins: Floats, dimension: int) -> Floats:
    """Independent standard normal numbers, (..., k), from uniform ones of [0, 1), (...,).

    The digits of a uniform number are dealt out: each normal one has 53 bits over k.
    """
    from scipy.special import ndtri

    bits = 53 // dimension
    whole = (coins * 2.0**53).astype(np.uint64)
    shifts = np.arange(dimension, dtype=np.uint64) * np.uint64(bits)
    dealt = (whole[..., np.newaxis] >> shifts) & np.uint64(2**bits - 1)
    return np.asarray(ndtri((dealt.astype(np.float64) + 0.5) * math.ldexp(1.0, -bits)))
