"""Policies for actions that are vectors: around points of trajectories, each with gains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.continuous.action_box import ActionBox
from tacit.continuous.drawn_policy import GaussianPolicy
from tacit.continuous.feature_map import FeatureMap, made_of_numbers, sequence
from tacit.continuous.grid import BoxMap, check_count, whole
from tacit.continuous.held_policy import held, share_of
from tacit.continuous.policy import QPolicy
from tacit.core.public_file import drawing
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints


@made_of_numbers("nearest", "lows", "highs", "points", "turns")
@dataclass(frozen=True)
class Nearest(BoxMap):
    """A function that is linear around each of some points: 1, and how far a state is from it.

    Each point has D + 1 features, which are zero but for the nearest point's: 1, and the difference
    of the state to it along each coordinate, in half widths of the box. Distances are Euclidean in
    the same units. States are cut to the box first, but for coordinates that are angles.

    >>> Nearest((-1.0,), (1.0,), ((0.0,), (1.0,)))([[0.4], [0.9]]).round(6).tolist()
    [[1.0, 0.4, 0.0, 0.0], [0.0, 0.0, 1.0, -0.1]]
    """

    points: tuple[tuple[float, ...], ...]  # finite, in the coordinates of states
    turns: tuple[int, ...] = ()  # for every coordinate 1 if it is an angle; none by default

    def __post_init__(self) -> None:
        super().__post_init__()
        D = len(self.lows)
        points = np.array(sequence("points", self.points), dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != D or not np.isfinite(points).all():
            raise InvalidArgument(f"points must be finite, with {D} coordinates each")
        object.__setattr__(self, "points", tuple(map(tuple, points.tolist())))
        turns = tuple(whole("turns", turn, 0) for turn in self.turns) or (0,) * D
        if len(turns) != D or max(turns) > 1:
            raise InvalidArgument(f"turns must be 0 or 1 for each of {D} coordinates")
        object.__setattr__(self, "turns", turns)
        check_count("points", self.size)

    @property
    def size(self) -> int:
        """D + 1 for every point."""
        return len(self.points) * (len(self.lows) + 1)

    @property
    def bound(self) -> float:
        """That of a state at the other end of the box."""
        return math.sqrt(1.0 + 4.0 * len(self.lows))

    def describe(self) -> str:
        """The map in a few words."""
        return f"linear around the nearest of {len(self.points)} points"

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, Ints]:
        half = 0.5 * (np.array(self.highs) - np.array(self.lows))
        return np.array(self.points), half, np.array(self.turns, dtype=np.int64)

    def around(self, states: Floats) -> tuple[Ints, Floats]:
        """The nearest points, (n,), and the nonzero features, (n, D + 1), of states (n, D)."""
        from tacit.continuous.model_loops import nearest

        points, half, turns = self._tables
        cut = np.where(turns == 1, states, np.clip(states, self.lows, self.highs))
        chosen = np.zeros(len(states), dtype=np.int64)
        nearest(points, half, turns, np.ascontiguousarray(cut), chosen)
        off = cut - points[chosen]
        off = np.where(turns == 1, (off + math.pi) % (2.0 * math.pi) - math.pi, off) / half
        return chosen, np.concatenate([np.ones((len(states), 1)), off], axis=1)

    def _evaluate(self, states: Floats) -> Floats:
        chosen, own = self.around(states)
        found = np.zeros((len(states), len(self.points), own.shape[1]))
        found[np.arange(len(states)), chosen] = own
        return found.reshape(len(states), -1)


@dataclass(frozen=True, eq=False, repr=False)
class PathPolicy(GaussianPolicy):
    """Controls of the nearest point of a trajectory, and its gains times the distance to it.

    Users explore as in :class:`~tacit.continuous.held_policy.HeldPolicy`: a part ``explorers`` of
    them hold one random action after the other, and each other user does now and then.
    """

    explorers: float = 0.0
    bursts: float = 0.0

    @classmethod
    def around(
        cls,
        features: Nearest,
        controls: Floats,
        gains: Floats,
        box: ActionBox,
        version: int = 0,
    ) -> Self:
        """Of controls, (m, k), and gains, (m, k, D), at its points; nobody explores."""
        half = 0.5 * (np.array(features.highs) - np.array(features.lows))
        table = np.concatenate([controls[..., np.newaxis], gains * half], axis=2)
        return cls.of(features, table.swapaxes(0, 1).reshape(box.dimension, -1), box, 0.0, version)

    def exploring_with(self, explorers: float, bursts: float) -> Self:
        """The same, whose users explore."""
        order, chance = tuple(range(len(self.weights))), share_of(explorers, bursts)
        own = self.features, self.weights, chance, self.version, order, self.box, 0.0
        return type(self)(*own, explorers, bursts)

    @property
    def is_deterministic(self) -> bool:
        """Whether it never draws an action."""
        return self.epsilon == 0.0

    @property
    def exploring(self) -> tuple[float, ...]:
        """What its exploration is made of."""
        return 4.0, self.explorers, self.bursts

    def values(self, states: ArrayLike) -> Floats:
        """What actions aim at, (..., k), in states, (..., D), before they are cut to the box."""
        points = np.asarray(states, dtype=np.float64)
        features: Any = self.features
        rows = np.nan_to_num(points.reshape(-1, points.shape[-1]))
        chosen, own = features.around(rows)
        table = self.weights.reshape(len(self.weights), -1, own.shape[1])
        found: Floats = np.einsum("knd,nd->nk", table[:, chosen], own)
        return found.reshape(*points.shape[:-1], len(self.weights))

    def exploration(self, coins: Floats) -> Ints | None:
        """See :meth:`QPolicy.exploration`: numbers of the mesh, held for a while."""
        if self.epsilon == 0.0 or not coins.size:
            return None
        return held(coins, self.n_actions, self.explorers, self.bursts)

    def act_many(
        self, step: int, states: ArrayLike, rng: np.random.Generator | None = None
    ) -> Ints:
        """The numbers of actions, (n,), in states, (n, D); each is random with one chance."""
        greedy = self.greedy(states)
        if self.epsilon == 0.0:
            return greedy
        return self.explored(greedy, drawing(rng).random(greedy.shape))

    def _own(self) -> dict[str, NDArray[Any]]:
        explores = {"epsilon": np.array(self.epsilon)} if self.epsilon else {}
        return super()._own() | explores

    def arrays(self) -> dict[str, NDArray[Any]]:
        """See :meth:`QPolicy.arrays`."""
        return super().arrays() | {"held": np.array([self.explorers, self.bursts])}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], version: int, features: FeatureMap | None = None
    ) -> Self:
        """The inverse, to the bit."""
        plain = QPolicy.from_arrays({**arrays, "epsilon": np.array(0.0)}, version, features)
        lows, highs = (tuple(arrays[name].tolist()) for name in ("action_lows", "action_highs"))
        box = ActionBox(lows, highs, int(arrays["levels"]))
        explorers, bursts = (float(chance) for chance in arrays["held"])
        found = cls.of(plain.features, plain.weights, box, 0.0, version)
        return found.exploring_with(explorers, bursts)
