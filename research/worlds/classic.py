"""Classic control, compiled: a pendulum, a car in a valley, a pole on a cart."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from tacit.continuous.features import Polynomial
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import SmoothSpec
from tacit.continuous.worlds import VectorWorld, roll_out
from tacit.data.episodes import VectorEpisodes
from tacit.privacy.statistic import Bools, Floats, Ints
from tacit.privacy.validation import whole_number

Starts = Callable[[np.random.Generator, int], Floats]
"""First states of so many users."""


class ClassicWorld(VectorWorld):
    """A world of smooth moves without chance, whose rewards and ends its spec knows.

    Values are mean returns of so many episodes of evaluation, whose starts, and whose numbers for a
    policy that draws, are the same for all policies. So values are estimates, and equal policies
    have equal ones. An episode of evaluation has as many steps as one of users, or ``steps``.
    """

    exact = False  # values are estimates
    exchangeable_actions = False  # the spec knows what they push
    spec: SmoothSpec

    def __init__(
        self,
        spec: SmoothSpec,
        name: str,
        loop: str,
        starts: Starts,
        best: float,
        evaluated: int = 200,
        steps: int | None = None,
    ) -> None:
        super().__init__(spec, name)
        self._loop, self._starts, self._best = loop, starts, best
        self.evaluated, self.steps = evaluated, steps or spec.horizon

    @property
    def optimal_value(self) -> float:
        """What the best policies known have, rounded; NaN for episodes of another length."""
        return self._best

    def _users(self, policy: QPolicy, users: int, rng: np.random.Generator) -> VectorEpisodes:
        coins = rng.random((self.spec.horizon, users))
        return self._played(policy, self._starts(rng, users), coins)

    def _value(self, policy: QPolicy) -> float:
        played = self._played(policy, *self._evaluation)
        assert played.rewards is not None  # noqa: S101
        return float(np.nansum(played.rewards, axis=1).mean())

    def _played(self, policy: QPolicy, starts: Floats, coins: Floats) -> VectorEpisodes:
        from research.worlds import classic_loops

        loop: Any = getattr(classic_loops, self._loop)

        def advance(step: int, who: Ints, here: Floats, taken: Ints) -> tuple[Floats, Bools]:
            loop(here, taken)
            return here, self.spec.ended(here)

        states, actions, lengths = roll_out(policy, starts, coins, advance)
        steps = np.arange(len(coins)) < lengths[:, np.newaxis]
        rewards = np.full(actions.shape, np.nan)
        here, there = states[:, :-1][steps], states[:, 1:][steps]
        rewards[steps] = self.spec.rewards(here, actions[steps], there)
        versions = np.full(len(starts), policy.version)
        return VectorEpisodes(states, actions, rewards, lengths, versions)

    @cached_property
    def _evaluation(self) -> tuple[Floats, Floats]:
        rng, n = np.random.default_rng(0), self.evaluated
        return self._starts(rng, n), rng.random((self.steps, n))


class CartPoleWorld(ClassicWorld):
    """Carts: labels of their actions mean nothing to an agent."""

    exchangeable_actions = True

    def _users(self, policy: QPolicy, users: int, rng: np.random.Generator) -> VectorEpisodes:
        starts = self._starts(rng, users)
        return self._played(policy, starts, rng.random((self.spec.horizon, users)))


def pendulum(horizon: int = 200, discount: float = 0.99) -> ClassicWorld:
    """A pendulum that is to be swung up and held upright by a motor too weak to lift it.

    State:
        The angle from upright, in [-pi, pi], and the spin, in [-8, 8]; the start is uniform over
        all angles and spins in [-1, 1].
    Actions:
        Five torques, -2 to 2.
    Reward:
        -(angle^2 + .1 spin^2 + .001 torque^2), of the state before the step; known.
    Optimum:
        About -140 in 200 steps, by dynamic programming on the true moves; uniform has about -1240.
    Source:
        Gymnasium's Pendulum-v1, with five torques, and with the angle as a coordinate.

    >>> world = pendulum()
    >>> world.spec.dimension, world.spec.actions
    (2, 5)
    """
    torques: Floats = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    spec = SmoothSpec(
        (-math.pi, -8.0),
        (math.pi, 8.0),
        len(torques),
        horizon,
        (-16.2736044, 0.0),
        discount,
        angles=(0,),
        reward=_Upright(torques),
        pushes=tuple((torque / 2.0,) for torque in torques.tolist()),
    )
    name = f"research.worlds.pendulum:horizon={spec.horizon},discount={spec.discount}"
    best = -140.0 if spec.horizon == 200 else math.nan
    return ClassicWorld(spec, name, "swing", _hanging_anywhere, best)


def mountain_car(horizon: int = 200, discount: float = 0.99) -> ClassicWorld:
    """A car in a valley that has to swing back and forth to get out of it.

    State:
        The position, in [-1.2, .6], and the speed, in [-.07, .07]; the start is at rest, uniform in
        [-.6, -.4]. An episode ends at positions from .5 on, and has ``horizon`` steps at most.
    Actions:
        Push to the left, not at all, or to the right.
    Reward:
        -1 for each step, also for the last; known, as is where it ends.
    Optimum:
        About -98, by dynamic programming on the true moves; uniform has -200.
    Source:
        Gymnasium's MountainCar-v0 (Moore, 1990).

    >>> world = mountain_car()
    >>> world.spec.dimension, world.spec.actions
    (2, 3)
    """
    spec = SmoothSpec(
        (-1.2, -0.07),
        (0.6, 0.07),
        3,
        horizon,
        (-1.0, 0.0),
        discount,
        pushes=((-1.0,), (0.0,), (1.0,)),
        reward=_each_step,
        ends=_out_of_the_valley,
    )
    name = f"research.worlds.mountain_car:horizon={spec.horizon},discount={spec.discount}"
    return ClassicWorld(
        spec, name, "climb", _in_the_valley, -98.0 if spec.horizon == 200 else math.nan
    )


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
    most = whole_number("steps", steps)
    track, angle = 4.8, 0.418
    spec = SmoothSpec(
        (-track, -math.inf, -angle, -math.inf),
        (track, math.inf, angle, math.inf),
        2,
        horizon,
        discount=discount,
        features=Polynomial(scales=(2.4, 2.0, 0.2095, 2.0), clip=1.5, degree=2),
        reward=_survived,
        ends=_fallen,
    )
    name = f"research.worlds.cartpole:steps={most},horizon={horizon},discount={spec.discount}"
    return CartPoleWorld(spec, name, "push", _upright, float(most), 2000, steps=most)


class _Upright:
    """The reward of a pendulum, by the torques of its actions."""

    def __init__(self, torques: Floats) -> None:
        self.torques = torques

    def __call__(self, states: Floats, actions: Ints, nexts: Floats) -> Floats:
        torque = self.torques[actions]
        cost: Floats = states[:, 0] ** 2 + 0.1 * states[:, 1] ** 2 + 0.001 * torque**2
        return -cost


def _hanging_anywhere(rng: np.random.Generator, users: int) -> Floats:
    return rng.uniform((-math.pi, -1.0), (math.pi, 1.0), (users, 2))


def _each_step(states: Floats, actions: Ints, nexts: Floats) -> Floats:
    return np.full(len(states), -1.0)


def _out_of_the_valley(states: Floats) -> Bools:
    return (states[:, 0] >= 0.5) & (states[:, 1] >= 0.0)


def _in_the_valley(rng: np.random.Generator, users: int) -> Floats:
    return np.stack([rng.uniform(-0.6, -0.4, users), np.zeros(users)], axis=1)


def _survived(states: Floats, actions: Ints, nexts: Floats) -> Floats:
    return np.ones(len(states))


def _fallen(states: Floats) -> Bools:
    out: Bools = np.abs(states[:, 0]) > 2.4
    return out | (np.abs(states[:, 2]) > 12 * 2 * math.pi / 360)


def _upright(rng: np.random.Generator, users: int) -> Floats:
    return rng.uniform(-0.05, 0.05, (users, 4))
