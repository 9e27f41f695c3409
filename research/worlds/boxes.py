"""Boxes beside the line: a trap for those who look one step ahead, and two doses at a time."""

from __future__ import annotations

import numpy as np

from tacit.continuous.worlds import BoxWorld
from tacit.privacy.statistic import Floats


def trap(horizon: int = 50, discount: float = 0.95) -> BoxWorld:
    """A small comfort nearby and a larger one on the other side, with nothing in between.

    State:
        A place in [0, 1]; uniform at the start.
    Actions:
        0 goes down and 1 goes up, by U[0, .25]; the place stays in [0, 1].
    Reward:
        .5 at new places above .9, .2 at those below .1, else 0.
    Optimum:
        23.5 in 50 steps, by always going up; uniform has 5.3. Who goes down below .2 and settles
        there still scores .87, so read scores from .95.
    Source:
        Invented for this library: a world in which the action that is best right now is not.

    >>> world = trap()
    >>> round(world.optimal_value, 1), round(world.baseline_value, 1)
    (23.5, 5.3)
    """
    name = f"research.worlds.trap:horizon={horizon},discount={discount}"
    return BoxWorld(_comforts, name, horizon, discount=discount)


class PlaneWorld(BoxWorld):
    """Moves in [0, 1]^2: actions 2 i and 2 i + 1 take coordinate i down and up.

    With smooth policies the error of values is below .002. It is largest for policies that change
    their mind everywhere, about .01.
    """

    dimension = 2
    cells, asked = 320, 3

    def _computed(self, chances: Floats, best: bool) -> float:
        values: Floats = np.zeros_like(self._rewards)
        for _ in range(self.spec.horizon):
            paid = self._rewards + values
            (down, up), (left, right) = _moved(paid), _moved(paid.T)
            ahead = np.stack([down, up, left.T, right.T])
            values = ahead.max(axis=0) if best else (chances * ahead).sum(axis=0)
        return float(np.trapezoid(np.trapezoid(values, dx=1.0), dx=1.0) / self.cells**2)


def _moved(paid: Floats) -> tuple[Floats, Floats]:
    """Means of values that are linear between points, over moves by a quarter down and up."""
    n = len(paid) - 1
    reach, at = n // 4, np.arange(n + 1)
    sums = np.zeros_like(paid)
    np.cumsum(0.5 * (paid[:-1] + paid[1:]), axis=0, out=sums[1:])
    low, high = np.maximum(at - reach, 0), np.minimum(at + reach, n)
    down = sums - sums[low] + np.outer(reach - (at - low), paid[0])
    up = sums[high] - sums + np.outer(reach - (high - at), paid[n])
    return down / reach, up / reach


def plane(horizon: int = 50, discount: float = 0.95) -> PlaneWorld:
    """Two doses that should both stay in the middle, of which only one is changed at a time.

    State:
        Two levels, in [0, 1]^2; uniform at the start.
    Actions:
        0 and 1 lower and raise the first level, 2 and 3 the second, by U[0, .25]; both stay in
        [0, 1].
    Reward:
        .5 minus the mean of |s_i - .5| at the new levels.
    Optimum:
        22.38 in 50 steps; uniform has 10.98.
    Source:
        Invented for this library, after the line.

    >>> world = plane()
    >>> round(world.optimal_value, 2), round(world.baseline_value, 2)
    (22.38, 10.98)
    """
    name = "research.worlds.plane"
    name = f"{name}:horizon={horizon},discount={discount}"
    return PlaneWorld(_closeness, name, horizon, discount=discount)


def _closeness(states: Floats) -> Floats:
    """How close all coordinates are to the middle."""
    closeness: Floats = 0.5 - np.abs(states - 0.5).mean(axis=-1)
    return closeness


def _comforts(states: Floats) -> Floats:
    place = states[..., 0]
    return 0.5 * (place > 0.9) + 0.2 * (place < 0.1)
