"""Built-in worlds of the continuous family: moves in a box, with exact values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.features import FeatureMap
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.stochastic_policy import SoftmaxPolicy
from tacit.continuous.world import VectorWorld, chooser, roll_out
from tacit.data.episodes import VectorEpisodes
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Bools, Floats, Ints

# Cells in which values are computed, and states in a cell at which a policy is asked.
_CELLS, _ASKED = 4000, 8
# How far from a point its two sides are.
_BESIDE = 1e-9


class BoxWorld(VectorWorld):
    """Moves in [0, 1]: an action leads up or down, by chance how far.

    The start is uniform. Action 0 leads down and action 1 leads up, by U[0, .25], and states are
    clipped to [0, 1]. The reward is a function of the new state.

    Values are computed, not sampled: by dynamic programming on a fine grid of points. The
    expectation over a move is an integral along a line. Between points, values are taken as
    linear; where a policy changes its mind between two, each action counts for its part of the
    way. With smooth policies the error is below .0001. It is largest for policies that change their
    mind everywhere, about .001.

    Args:
        reward: maps new states, (..., D), to rewards, (...,).
        name: what it is called.
        horizon: steps of an episode.
        reward_range: the smallest and the largest reward.
        discount: see :class:`~tacit.continuous.spec.BoxSpec`, as for the following.
        features: a map that suits the world.

    >>> world = BoxWorld(lambda states: states[..., 0], name="up", reward_range=(0, 1))
    >>> world.value(QPolicy.uniform(1, 2)) == world.baseline_value < world.optimal_value
    True
    """

    dimension = 1
    cells, asked = _CELLS, _ASKED

    def __init__(
        self,
        reward: Callable[[Floats], ArrayLike],
        name: str,
        horizon: int = 50,
        reward_range: tuple[float, float] = (0.0, 0.5),
        discount: float = 0.95,
        features: FeatureMap | None = None,
    ) -> None:
        D = self.dimension
        if not callable(reward):
            raise InvalidArgument(f"reward must be a function of states, got {reward!r}")
        known = 2 * D, horizon, reward_range, discount, features
        super().__init__(BoxSpec((0.0,) * D, (1.0,) * D, *known), name)
        self._reward = reward

    @cached_property
    def optimal_value(self) -> float:
        """The largest value that any policy has, also of those that look at the step."""
        return self._computed(np.zeros((2 * self.dimension,) + (1,) * self.dimension), best=True)

    def rewards(self, states: Floats) -> Floats:
        """The rewards, (...,), of new states, (..., D)."""
        rewards = np.asarray(self._reward(states), dtype=np.float64)
        if rewards.shape != states.shape[:-1]:
            raise InvalidArgument(
                f"reward must return an array of shape {states.shape[:-1]}, got {rewards.shape}"
            )
        return rewards

    def _users(self, policy: QPolicy, users: int, rng: np.random.Generator) -> VectorEpisodes:
        from tacit.continuous import world_loops

        H, D = self.spec.horizon, self.spec.dimension
        starts = rng.random((users, D))
        coins, sizes = rng.random((2, H, users))
        never = np.zeros(users, dtype=np.bool_)

        def _advance(step: int, who: Ints, here: Floats, taken: Ints) -> tuple[Floats, Bools]:
            world_loops.move(here, taken, sizes[step])
            return here, never

        states, actions, lengths = roll_out(policy, starts, coins, _advance)
        rewards = self.rewards(states[:, 1:])
        return VectorEpisodes(states, actions, rewards, lengths, np.full(users, policy.version))

    def _value(self, policy: QPolicy) -> float:
        return self._computed(self._chances(policy), best=False)

    def _computed(self, chances: Floats, best: bool) -> float:
        from tacit.continuous import world_loops

        return float(world_loops.line_value(self._rewards, chances, best, self.spec.horizon))

    def _chances(self, policy: QPolicy) -> Floats:
        """The probabilities of actions at the points, (A, n + 1, ..)."""
        A, D = self.spec.actions, self.dimension
        shape, around = (self.cells + 1, self.asked) * D, tuple(range(1, 2 * D, 2))
        states = asked_states(D, self.cells, self.asked)
        if isinstance(policy, SoftmaxPolicy):
            drawn = policy.probabilities(states).reshape(*shape, A)
            return np.moveaxis(drawn.mean(axis=around), -1, 0)
        chances = np.full((A, *(self.cells + 1,) * D), policy.epsilon / A)
        if policy.epsilon < 1.0:
            greedy = chooser(policy)(states).reshape(shape)
            for action in range(A):
                chances[action] += (1.0 - policy.epsilon) * (greedy == action).mean(axis=around)
        return chances

    @cached_property
    def _rewards(self) -> Floats:
        """Rewards at the points; where they jump at one, the mean of both sides."""
        points = _mesh(np.linspace(0.0, 1.0, self.cells + 1), self.dimension)
        # Not across the ends: clipped moves gather exactly there.
        beside = np.where((points > 0.0) & (points < 1.0), _BESIDE, 0.0)
        return 0.5 * (self.rewards(points - beside) + self.rewards(points + beside))


@lru_cache
def asked_states(dimension: int, n: int, asked: int) -> Floats:
    """States at which policies are asked, (.., D), in the order of points and then around each.

    A point stands for the states around it, half a cell to each side. The ends stand for
    themselves: clipped moves gather exactly there.
    """
    around = ((np.arange(asked) + 0.5) / asked - 0.5) / n
    axis = np.arange(n + 1)[:, np.newaxis] / n + around
    axis[0], axis[n] = 0.0, 1.0
    return _mesh(axis.ravel(), dimension).reshape(-1, dimension)


def _mesh(axis: Floats, dimension: int) -> Floats:
    """All points with coordinates on an axis, (len(axis), .., dimension)."""
    return np.stack(np.meshgrid(*[axis] * dimension, indexing="ij"), axis=-1)


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
    return BoxWorld(_closeness, name, horizon, discount=discount)


def _closeness(states: Floats) -> Floats:
    """How close all coordinates are to the middle."""
    closeness: Floats = 0.5 - np.abs(states - 0.5).mean(axis=-1)
    return closeness


WORLDS = ("line",)
"""The names of worlds that a command line knows."""
