"""The built-in worlds of the continuous family."""

from __future__ import annotations

import numpy as np

from tacit.continuous.classic import acrobot as acrobot
from tacit.continuous.classic import mountain_car as mountain_car
from tacit.continuous.classic import pendulum as pendulum
from tacit.continuous.classic import poles as poles
from tacit.continuous.glucose import glucose as glucose
from tacit.continuous.gusts import gusts as gusts
from tacit.continuous.world import BoxWorld, CartPoleWorld, RewardFunction
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
    return _box("line", _closeness, ("level",), horizon, discount)


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
    return _box("trap", _comforts, ("place",), horizon, discount)


def plane(horizon: int = 50, discount: float = 0.95) -> BoxWorld:
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
    return _box("plane", _closeness, ("first level", "second level"), horizon, discount)


def cartpole(steps: int = 200, horizon: int = 50, discount: float = 0.97) -> CartPoleWorld:
    """A cart that is to keep a pole from falling over.

    State:
        Position and speed of the cart, angle and spin of the pole; each in [-.05, .05] at the
        start. An episode ends when the cart is farther than 2.4 from the middle or the pole more
        than 12 degrees from upright.
    Actions:
        0 pushes the cart to the left and 1 to the right.
    Reward:
        1 for each step, also for the one at which it ends. Users' episodes have at most
        ``horizon`` steps; a value is the mean number of steps, of at most ``steps``.
    Optimum:
        ``steps``: pushing towards the side to which the pole leans and turns never lets it fall.
        Uniform has about 22. Values are estimates from 2,000 episodes.
    Source:
        Barto, Sutton and Anderson, 1983, with the dynamics of Gymnasium's CartPole-v1. The
        features are of degree two.

    >>> world = cartpole()
    >>> world.optimal_value, world.spec.features.size
    (200.0, 15)
    """
    return CartPoleWorld(steps, horizon, discount)


def _box(
    name: str, reward: RewardFunction, names: tuple[str, ...], horizon: int, discount: float
) -> BoxWorld:
    full, known = f"{name}:horizon={horizon},discount={discount}", (horizon, (0.0, 0.5), discount)
    return BoxWorld(reward, len(names), full, *known, names=names)


def _closeness(states: Floats) -> Floats:
    """How close all coordinates are to the middle."""
    closeness: Floats = 0.5 - np.abs(states - 0.5).mean(axis=-1)
    return closeness


def _comforts(states: Floats) -> Floats:
    place = states[..., 0]
    return 0.5 * (place > 0.9) + 0.2 * (place < 0.1)


WORLDS = (
    "acrobot",
    "cartpole",
    "glucose",
    "gusts",
    "line",
    "mountain_car",
    "pendulum",
    "plane",
    "poles",
    "trap",
)
"""The names of worlds that a command line knows."""
