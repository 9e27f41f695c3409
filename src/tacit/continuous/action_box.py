"""Actions that are vectors, as numbers of a fine public mesh: all else goes on counting actions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.features import set_corners
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints
from tacit.privacy.validation import whole_number

_LEVELS = {1: 1001, 2: 201, 3: 41}


@dataclass(frozen=True)
class ActionBox:
    """A box of actions, and a mesh on which every action has a number.

    The mesh is twice as wide as the box along each coordinate, so that what a policy aims at beyond
    the box has a number too; :meth:`actions` cuts it to the box, as a motor does. In units of the
    box its corners are -1 and 1, and the mesh goes from -2 to 2.

    Attributes:
        lows: the lower corner, one to three numbers.
        highs: its upper corner.
        levels: points of the mesh along each coordinate; 1001, 201 or 41 by default.

    >>> box = ActionBox((-2.0,), (2.0,), levels=5)
    >>> box.actions(np.arange(5)).ravel().tolist()
    [-2.0, -2.0, 0.0, 2.0, 2.0]
    >>> box.numbers([[0.4], [0.6], [9.0]]).tolist()
    [2, 3, 4]
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]
    levels: int = 0

    def __post_init__(self) -> None:
        set_corners(self, finite=True)
        if self.dimension not in _LEVELS:
            raise InvalidArgument(
                f"actions must have 1 to {max(_LEVELS)} coordinates, got {self.dimension}"
            )
        levels = self.levels or _LEVELS[self.dimension]
        object.__setattr__(self, "levels", whole_number("levels", levels))
        if self.levels < 2:
            raise InvalidArgument(f"levels must be >= 2, got {self.levels!r}")

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
        aims: Floats = 4.0 * places / (self.levels - 1) - 2.0
        return aims

    def numbers(self, aims: ArrayLike) -> Ints:
        """The numbers, (...,), of the points of the mesh that are nearest to aims, (..., k)."""
        at = np.clip(np.nan_to_num(np.asarray(aims, dtype=np.float64)), -2.0, 2.0)
        places = np.rint((at + 2.0) * (self.levels - 1) / 4.0).astype(np.int64)
        weights = self.levels ** np.arange(self.dimension - 1, -1, -1)
        numbers: Ints = (places * weights).sum(axis=-1)
        return numbers

    def actions(self, numbers: ArrayLike) -> Floats:
        """The actions, (..., k), of these numbers, in the box."""
        low, high = np.array(self.lows), np.array(self.highs)
        inside = np.clip(self.aims(numbers), -1.0, 1.0)
        actions: Floats = low + (inside + 1.0) / 2.0 * (high - low)
        return actions
