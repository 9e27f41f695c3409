"""What feature maps are made with, and interpolation on a grid: the map with values at points."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.feature_map import FeatureMap, made_of_numbers, sequence, set_corners
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints

# Features of a state; more are a mistake in a degree or a shape.
_MOST_FEATURES = 1 << 20
# A cell of a grid has 2^D corners.
_MOST_GRID_COORDINATES = 12


class LoopParameters(NamedTuple):
    """A map as the compiled loops take it."""

    kind: str  # "grid" or "polynomial"
    # (3, D), lows, highs and points per unit of a grid; (2, D), a polynomial's scales and clip.
    numbers: Floats
    # (D, 2), points along each coordinate and their stride; (m, 2), a polynomial's chain.
    table: Ints


def whole(name: str, value: Any, least: int) -> int:
    """An integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InvalidArgument(f"{name} must be integers >= {least}, got {value!r}")
    return int(value)


def check_count(name: str, count: int) -> None:
    """Refuses more features than anybody means."""
    if count > _MOST_FEATURES:
        raise InvalidArgument(
            f"{name} makes {count:,} features, but at most {_MOST_FEATURES:,} are allowed"
        )


class SafeMap(ABC):
    """A map that takes all states: those that are not finite have zeros for features."""

    @property
    @abstractmethod
    def dimension(self) -> int | None:
        """How many coordinates a state has; ``None`` if the map takes any number."""

    @abstractmethod
    def _evaluate(self, states: Floats) -> Floats:
        """The features, (n, m), of finite states, (n, D)."""

    def __call__(self, states: ArrayLike) -> Floats:
        """The features, (..., m), of states, (..., D)."""
        points, dimension = np.asarray(states, dtype=np.float64), self.dimension
        if points.ndim == 0 or (dimension is not None and points.shape[-1] != dimension):
            wanted = "the coordinates" if dimension is None else f"{dimension} coordinates"
            raise InvalidArgument(
                f"states must have {wanted} of a state along the last axis, got shape "
                f"{points.shape}"
            )
        rows, size = points.reshape(-1, points.shape[-1]), cast(FeatureMap, self).size
        good = np.isfinite(rows).all(axis=1)
        # Nobody may be left: a function need not take an empty array.
        if len(rows) and good.all():
            features = self._evaluate(rows)
        else:
            features = np.zeros((len(rows), size))
            if good.any():
                features[good] = self._evaluate(rows[good])
        return features.reshape(*points.shape[:-1], size)

    def publishable(self) -> bool:
        """Whether a file of plain numbers can hold the map."""
        return True


@dataclass(frozen=True)
class BoxMap(SafeMap):
    """A map on a box; states outside are clipped to it."""

    lows: tuple[float, ...]  # the lower corner of the box
    highs: tuple[float, ...]  # its upper corner

    def __post_init__(self) -> None:
        set_corners(self, finite=True)

    @property
    def dimension(self) -> int:
        """How many coordinates a state has."""
        return len(self.lows)


@made_of_numbers("grid", "lows", "highs", "shape")
@dataclass(frozen=True)
class Grid(BoxMap):
    """Multilinear interpolation on a regular grid of points that includes the corners of a box.

    The features of a state are the weights of the 2^D points around it: non-negative, with sum 1.
    Weights of a value function are its values at the points. At a point of the grid one weight is
    1, so the bound is 1.

    >>> Grid((0.0,), (1.0,), (3,))([[0.5], [0.75], [9.0]]).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    """

    on_points: ClassVar[bool] = True
    shape: tuple[int, ...]  # how many points there are along each coordinate, at least 2

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = tuple(whole("shape", n, 2) for n in sequence("shape", self.shape))
        if len(shape) != len(self.lows):
            raise InvalidArgument(
                f"shape must have {len(self.lows)} numbers as lows has, got {self.shape!r}"
            )
        if len(shape) > _MOST_GRID_COORDINATES:
            raise InvalidArgument(
                f"a grid must have at most {_MOST_GRID_COORDINATES} coordinates, got {len(shape)}"
            )
        check_count("shape", math.prod(shape))
        object.__setattr__(self, "shape", shape)

    @cached_property
    def size(self) -> int:
        """How many points the grid has."""
        return math.prod(self.shape)

    @property
    def bound(self) -> float:
        """1, the norm at every point of the grid."""
        return 1.0

    @property
    def points(self) -> Floats:
        """The points, (m, D), in the order of the features: the last coordinate runs fastest."""
        axes = [
            np.linspace(low, high, n)
            for low, high, n in zip(self.lows, self.highs, self.shape, strict=True)
        ]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))

    def describe(self) -> str:
        """The map in a few words."""
        return f"interpolation on a grid of {' x '.join(map(str, self.shape))} points"

    def for_loops(self) -> LoopParameters:
        """The box and the strides; see :func:`~tacit.continuous.feature_map.loop_parameters`."""
        box = list(zip(self.lows, self.highs, self.shape, strict=True))
        scales = [_grid_scale(low, high, n) for low, high, n in box]
        strides = [math.prod(self.shape[i + 1 :]) for i in range(len(box))]
        table = np.array([self.shape, strides], dtype=np.int64).T.copy()
        return LoopParameters("grid", np.array([self.lows, self.highs, scales]), table)

    @cached_property
    def corners(self) -> Ints:
        """How far the 2^D points around a state are from its lower corner, in points."""
        strides = [math.prod(self.shape[i + 1 :]) for i in range(self.dimension)]
        found = [0]
        for stride in strides:
            found += [c + stride for c in found]
        return np.array(found, dtype=np.int64)

    def _evaluate(self, states: Floats) -> Floats:
        weights = np.ones((len(states), 1))
        for i, (low, high, n) in enumerate(zip(self.lows, self.highs, self.shape, strict=True)):
            position = (np.clip(states[:, i], low, high) - low) * _grid_scale(low, high, n)
            # Rounding must not lead past the last point.
            cell = np.minimum(position.astype(np.int64), n - 2)
            part = np.minimum(position - cell, 1.0)
            along = np.zeros((len(states), n))
            rows = np.arange(len(states))
            along[rows, cell] = 1.0 - part
            along[rows, cell + 1] = part
            weights = (weights[:, :, np.newaxis] * along[:, np.newaxis, :]).reshape(len(states), -1)
        return weights


def _grid_scale(low: float, high: float, points: int) -> float:
    """Points per unit of a coordinate."""
    return (points - 1) / (high - low)
