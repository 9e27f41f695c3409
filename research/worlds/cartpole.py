"""A pole on a cart, compiled; Gymnasium's own is ``gym:CartPole-v1``."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from tacit.continuous.features import Polynomial
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import SmoothSpec
from tacit.continuous.worlds import VectorWorld, roll_out
from tacit.data.episodes import VectorEpisodes
from tacit.privacy.statistic import Bools, Floats, Ints
from tacit.privacy.validation import whole_number

# Episodes of evaluation.
_EVALUATED = 2000


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


class CartPoleWorld(VectorWorld):
    """A pole on a cart, as in Gymnasium; see :func:`cartpole`.

    Users' episodes have at most ``spec.horizon`` steps. A policy's value is the mean number of
    steps, at most ``steps``, that the pole survives in 2,000 episodes whose starts, and whose
    numbers for a policy that draws, are the same for all policies. So values are estimates, and
    equal policies have equal ones. Their standard error is at most steps / 2 / sqrt(2000), and
    zero for a policy that always survives.
    """

    exact = False  # values are estimates

    def __init__(self, steps: int = 200, horizon: int = 50, discount: float = 0.97) -> None:
        self.steps = whole_number("steps", steps)  # of an episode of evaluation
        track, angle = 4.8, 0.418
        spec = SmoothSpec(
            lows=(-track, -math.inf, -angle, -math.inf),
            highs=(track, math.inf, angle, math.inf),
            actions=2,
            horizon=horizon,
            discount=discount,
            features=Polynomial(scales=(2.4, 2.0, 0.2095, 2.0), clip=1.5, degree=2),
            reward=_survived,
            ends=_fallen,
        )
        known = f"steps={self.steps},horizon={spec.horizon},discount={spec.discount}"
        super().__init__(spec, f"research.worlds.cartpole:{known}")

    @property
    def optimal_value(self) -> float:
        """All steps: there are policies that never let the pole fall."""
        return float(self.steps)

    def _users(self, policy: QPolicy, users: int, rng: np.random.Generator) -> VectorEpisodes:
        H = self.spec.horizon
        starts, coins = rng.uniform(-0.05, 0.05, (users, 4)), rng.random((H, users))
        states, actions, lengths = roll_out(policy, starts, coins, _push)
        rewards = np.where(np.arange(H) < lengths[:, np.newaxis], 1.0, np.nan)
        return VectorEpisodes(states, actions, rewards, lengths, np.full(users, policy.version))

    def _value(self, policy: QPolicy) -> float:
        lengths = roll_out(policy, *self._evaluation, _push)[2]
        return float(np.minimum(lengths, self.steps).mean())

    @cached_property
    def _evaluation(self) -> tuple[Floats, Floats]:
        rng = np.random.default_rng(0)
        return rng.uniform(-0.05, 0.05, (_EVALUATED, 4)), rng.random((self.steps, _EVALUATED))


def _survived(states: Floats, actions: Ints, nexts: Floats) -> Floats:
    return np.ones(len(states))


def _fallen(states: Floats) -> Bools:
    from research.worlds import classic_loops

    out: Bools = np.abs(states[:, 0]) > classic_loops.TRACK_END
    return out | (np.abs(states[:, 2]) > classic_loops.LARGEST_ANGLE)


def _push(step: int, who: Ints, here: Floats, taken: Ints) -> tuple[Floats, Bools]:
    from research.worlds import classic_loops

    over = np.empty(len(here), dtype=np.bool_)
    classic_loops.push(here, taken, over)
    return here, over
