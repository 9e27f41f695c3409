"""Interpolation on a grid of points: the map that values are a table on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.feature_map import Floats, made_of_numbers
from tacit.continuous.map_tools import (
    LoopParameters,
    check_count,
    evaluated,
    sequence,
    set_box,
    whole,
)
from tacit.privacy.errors import InvalidArgument

# A cell of a grid has 2^D corners.
_MOST_GRID_COORDINATES = 12


@made_of_numbers("grid", "lows", "highs", "shape")
@dataclass(frozen=True)
class Grid:
    """Multilinear interpolation on a regular grid of points that includes the corners of a box.

    The features of a state are the weights of the 2^D points around it: non-negative, with sum 1.
    Weights of a value function are its values at the points. States outside of the box are
    clipped to it. At a point of the grid one weight is 1, so the bound is 1.

    Attributes:
        lows: the lower corner of the box.
        highs: its upper corner.
        shape: how many points there are along each coordinate, at least 2.

    >>> Grid((0.0,), (1.0,), (3,))([[0.5], [0.75], [9.0]]).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    """

    on_points: ClassVar[bool] = True
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        set_box(self)
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
    def dimension(self) -> int:
        """How many coordinates a state has."""
        return len(self.lows)

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

    def __call__(self, states: ArrayLike) -> Floats:
        """The weights of the points, (..., m)."""
        return evaluated(states, self.dimension, self.size, self._weights)

    def publishable(self) -> bool:
        """It is."""
        return True

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

    def _weights(self, states: Floats) -> Floats:
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
