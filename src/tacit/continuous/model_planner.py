"""Plans with a model of moves: value iteration on a grid, with actions held for a while."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.features import Grid
from tacit.continuous.statistics.move_moments import angles_of
from tacit.privacy.statistic import Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

Step = Callable[[Floats, Ints], tuple[Floats, Floats, Bools]]
"""Next states, rewards and which are at an end, of states (n, D) and actions (n,)."""

# Points of a grid along each coordinate, by the number of coordinates.
_POINTS = {1: 201, 2: 121, 3: 41, 4: 21}
# Angles of four coordinates take fewer, so that others have more.
_ANGLE = 15
MOST_COORDINATES = 4
"""Of a grid that is planned on."""
# An action is held for at most so many steps, until most moves are half a cell long.
_HELD, _MOVED = 2, 0.5
_LOOKED_AT = 300
# Iterations end when a sweep changes values by less than this part of a step's largest reward.
_SWEEPS, _PRECISION = 300, 5e-3
# Points that are moved at a time: their features stay in the cache.
_ROWS = 4096


class GridPlanner:
    """Values of actions at the points of a grid, by a model."""

    def __init__(self, spec: BoxSpec, lows: Floats, highs: Floats, discount: float) -> None:
        shape = _shape(spec.dimension, angles_of(spec))
        self.grid = Grid(tuple(lows.tolist()), tuple(highs.tolist()), shape)
        self.spec, self.discount = spec, discount
        self._box, self._table = self.grid.for_loops()
        self._points = self.grid.points

    def plan(
        self, step: Step, rng: np.random.Generator, values: NDArray[np.float32] | None = None
    ) -> tuple[Floats, NDArray[np.float32]]:
        """Values of actions, (A, m), and of states, (m,), which iterations may begin with."""
        from tacit.continuous.model_loops import iterate, locate

        A, m, D = self.spec.actions, self.grid.size, self.spec.dimension
        held = self._choose_held(step, rng)
        paid, kept = np.empty((2, m, A), dtype=np.float32)
        cells, parts = np.empty((m, A), dtype=np.int32), np.empty((m, A, D), dtype=np.float32)
        one_cell, one_part = np.empty(m, dtype=np.int32), np.empty((m, D), dtype=np.float32)
        for action in range(A):
            ends, paid[:, action], kept[:, action] = self._hold(step, action, held)
            locate(ends, self._box, self._table, one_cell, one_part)
            cells[:, action], parts[:, action] = one_cell, one_part
        best = np.empty((m, A), dtype=np.float32)
        precision = _PRECISION * (self.spec.reward_range[1] - self.spec.reward_range[0]) * held
        strides = np.ascontiguousarray(self._table[:, 1])
        found = np.zeros(m, dtype=np.float32) if values is None else values.copy()
        iterate(paid, kept, cells, parts, strides, _SWEEPS, precision, found, best)
        return best.T.astype(np.float64), found

    def _hold(self, step: Step, action: int, held: int) -> tuple[Floats, Floats, Floats]:
        """An action held: where it leads, what it pays, and how much the values there count."""
        m = len(self._points)
        reached, paid, kept = np.empty_like(self._points), np.zeros(m), np.ones(m)
        for first in range(0, m, _ROWS):
            some = slice(first, first + _ROWS)
            here = self._points[some]
            for _ in range(held):
                here, rewards, over = step(here, np.full(len(here), action))
                paid[some] += kept[some] * rewards
                kept[some] = np.where(over, 0.0, self.discount * kept[some])
            reached[some] = here
        return reached, paid, kept

    def _choose_held(self, step: Step, rng: np.random.Generator) -> int:
        """Steps until the median move is half a cell along every coordinate, if that is soon."""
        lows, highs = np.array(self.grid.lows), np.array(self.grid.highs)
        start = here = rng.uniform(lows, highs, (_LOOKED_AT, len(lows)))
        taken = rng.integers(self.spec.actions, size=_LOOKED_AT)
        cell, turns = (highs - lows) / (np.array(self.grid.shape) - 1), angles_of(self.spec)
        for held in range(1, _HELD + 1):
            here = step(here, taken)[0]
            moved = here - start
            moved[:, turns] = (moved[:, turns] + math.pi) % (2.0 * math.pi) - math.pi
            if np.median(np.abs(moved) / cell, axis=0).min() >= _MOVED:
                return held
        return _HELD


def _shape(dimension: int, angles: Bools) -> tuple[int, ...]:
    """Points along each coordinate, about as many in all whatever is an angle.

    >>> _shape(4, np.array([True, True, False, False]))
    (15, 15, 29, 29)
    """
    points, turns = _POINTS[dimension], int(angles.sum())
    if dimension < MOST_COORDINATES or turns in (0, dimension):
        return (points,) * dimension
    others = (points**dimension / _ANGLE**turns) ** (1.0 / (dimension - turns))
    return tuple(_ANGLE if turn else int(others) for turn in angles.tolist())
