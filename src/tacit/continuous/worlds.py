"""The built-in worlds of the continuous family."""

from __future__ import annotations

import numpy as np

from tacit.continuous.world import BoxWorld
from tacit.privacy.statistic import Floats


def line(horizon: int = 50, discount: float = 0.95) -> BoxWorld:
    """A dose that should stay in the middle, between too little and too much.

    State:
        The level of the dose in the body, in [0, 1]; uniform at the start.
    Actions:
        0 lowers it and 1 raises it, by U[0, .25]; it stays in [0, 1].
    Reward:
        .5 - |s - .5| at the new level: .5 in the middle, 0 at both ends.
    Optimum:
        20.71 in 50 steps; uniform has 10.86. The best action is the one that is best right now.
    Source:
        The experiment of Wang and Hegde, 2019 (Privacy-preserving Q-learning with functional noise
        in continuous spaces), with the reward at the new state.

    >>> world = line()
    >>> round(world.optimal_value, 2), round(world.baseline_value, 2)
    (20.71, 10.86)
    """
    name = f"line:horizon={horizon},discount={discount}"
    return BoxWorld(_closeness, name, horizon, discount=discount, names=("level",))


def _closeness(states: Floats) -> Floats:
    """How close all coordinates are to the middle."""
    closeness: Floats = 0.5 - np.abs(states - 0.5).mean(axis=-1)
    return closeness


WORLDS = ("line",)
"""The names of worlds that a command line knows."""
