"""Worlds whose states are vectors: simulated users, values of policies, and moves in a box."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.features import FeatureMap, Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.core.world import Form
from tacit.data.episodes import VectorEpisodes
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools, Floats, Ints, StreamedBlock
from tacit.privacy.validation import check_bytes, check_users, one_of

Advance: TypeAlias = Callable[[int, Ints, Floats, Ints], tuple[Floats, Bools]]
"""One step of some users: (step, indices, states, actions) to next states and which ended."""

_PART = 4096  # users that are simulated at a time
_HOLDS = 6  # an action is held for about 2^0 to 2^5 steps, by the user
# Cells in which values are computed, and states in a cell at which a policy is asked.
_CELLS, _ASKED = 4000, 8
_BESIDE = 1e-9  # how far from a point its two sides are


class VectorWorld(ABC):
    """Simulated users whose states are vectors; the base of all worlds of this family.

    Users are made in parts, each with a random stream of its own, so that a block can be made
    again part by part (``form="streamed"``) and is the same as when it is made at once.
    """

    exchangeable_actions = True  # the labels of actions mean nothing to an agent

    def __init__(self, spec: BoxSpec, name: str) -> None:
        self.spec = spec  # what an agent may know
        self.name = name  # a text that rebuilds the world, for those that are built in
        self._values: dict[Any, float] = {}

    @property
    @abstractmethod
    def optimal_value(self) -> float:
        """The largest value that any policy has."""

    @cached_property
    def baseline_value(self) -> float:
        """The value of acting uniformly at random."""
        return self.value(QPolicy.uniform(self.spec.dimension, self.spec.actions))

    @property
    def reference_value(self) -> float:
        """The zero point of losses: the baseline."""
        return self.baseline_value

    def simulate(
        self, policy: QPolicy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> VectorEpisodes | Block:
        """A block of users who follow a policy, alike in both forms. Args: see World.simulate."""
        one_of("form", form, ("episodes", "streamed"))
        self.check_policy(policy)
        users = check_users(users)
        entropy = rng.integers(2**63, size=2).tolist()

        def parts() -> Iterator[VectorEpisodes]:
            for part, first in enumerate(range(0, max(users, 1), _PART)):
                own = np.random.default_rng(np.random.SeedSequence([*entropy, part]))
                yield self._users(policy, min(_PART, users - first), own)

        if form == "streamed":
            return StreamedBlock(users, lambda: (part.block() for part in parts()))
        H, D = self.spec.horizon, self.spec.dimension
        check_bytes("episodes of a block", (users, (H + 1) * D + 2 * H + 2))
        blocks, joined = [part.block().arrays for part in parts()], dict[str, Any]()
        joined |= {name: np.concatenate([arrays[name] for arrays in blocks]) for name in blocks[0]}
        return VectorEpisodes(**joined)

    def value(self, policy: QPolicy) -> float:
        """The expected sum of rewards of an episode under a policy; see the world for how exact."""
        self.check_policy(policy)
        key: Any = "uniform"
        if policy.epsilon < 1.0:
            known = policy.kind, policy.features, policy.weights.tobytes(), policy.preference
            drawn = policy.epsilon, policy.explorers, policy.bursts
            key = *known, *drawn
        if key not in self._values:
            self._values[key] = self._value(policy)
        return self._values[key]

    def check_policy(self, policy: QPolicy) -> None:
        """Refuses a policy for another world."""
        D, A = self.spec.dimension, self.spec.actions
        good = isinstance(policy, QPolicy) and policy.n_actions == A
        if not good or policy.features.dimension not in (None, D):
            raise InvalidArgument(
                f"policy must be a QPolicy for {D} coordinates and {A} actions, got {policy!r}"
            )

    @abstractmethod
    def _users(self, policy: QPolicy, users: int, rng: np.random.Generator) -> VectorEpisodes:
        """So many users, one by one."""

    @abstractmethod
    def _value(self, policy: QPolicy) -> float:
        """The value, when it is not known yet."""

    def __repr__(self) -> str:
        sizes = f"{self.spec.dimension} coordinates, {self.spec.actions} actions"
        return f"<{type(self).__name__} {self.name!r}: {sizes}, {self.spec.horizon} steps>"


def roll_out(
    policy: QPolicy, starts: Floats, coins: Floats, advance: Advance
) -> tuple[Floats, Ints, Ints]:
    """Simulates users step by step, all at once.

    Args:
        policy: That they follow.
        starts: Their first states, (n, D).
        coins: Uniform numbers, (H, n), by which the policy draws. They are spent whether it draws
            or not, so that users are the same under every policy.
        advance: One step of the world; it may overwrite the states that it gets.

    Returns:
        States (n, H + 1, D), actions (n, H) and lengths (n,), H + 1 where there was no end; after
        an end, states are NaN and actions -1.
    """
    horizon, users = coins.shape
    # By step first, so that what is written at a time lies together.
    states = np.full((horizon + 1, users, starts.shape[1]), np.nan)
    actions = np.full((horizon, users), -1, dtype=np.int64)
    lengths = np.full(users, horizon + 1, dtype=np.int64)
    states[0] = here = np.array(starts)
    going, greedy = np.arange(users), chooser(policy)
    drawn = exploration(policy, coins)
    for step in range(horizon):
        if not len(going):
            break
        at = (step,) if len(going) == users else (step, going)
        taken = greedy(here)
        if drawn is not None:
            taken = np.where(drawn[at] < 0, taken, drawn[at])
        actions[at] = taken
        here, over = advance(step, going, here, taken)
        states[(step + 1, *at[1:])] = here
        if over.any():
            lengths[going[over]] = step + 1
            going, here = going[~over], here[~over]
    by_user = np.ascontiguousarray(states.swapaxes(0, 1)), np.ascontiguousarray(actions.T)
    return *by_user, lengths


def exploration(policy: QPolicy, coins: Floats) -> Ints | None:
    """Actions that users try whatever their states, (H, n), by uniform numbers of [0, 1), (H, n).

    They are -1 where users act greedily; ``None`` if all always do. A part ``explorers`` of users
    try one random action after the other. Each other user is greedy, but for bursts of a random
    action, which begin with the chance ``bursts`` over how long she holds one: geometric, with a
    mean of 2^0 to 2^5 steps that is drawn once for each user.
    """
    if policy.epsilon == 0.0 or not coins.size:
        return None
    if not (policy.explorers or policy.bursts):
        return policy.random_actions(coins)
    from tacit.continuous.world_loops import hold

    tries = np.full(coins.shape, -1, dtype=np.int64)
    known = policy.n_actions, policy.explorers, policy.bursts, _HOLDS
    hold(np.ascontiguousarray(coins), *known, tries)
    return tries


def chooser(policy: QPolicy) -> Callable[[Floats], Ints]:
    """The policy's greedy actions as a function of states, (n, D), compiled on grids."""
    if type(policy.features) is not Grid:
        return policy.greedy
    from tacit.continuous.world_loops import best_on_grid

    weights = np.ascontiguousarray(policy.weights.T)
    known = *policy.features.for_loops(), weights, np.array(policy.preference, dtype=np.int64)

    def choose(states: Floats) -> Ints:
        actions = np.empty(len(states), dtype=np.int64)
        best_on_grid(*known, np.ascontiguousarray(states), actions)
        return actions

    return choose


class BoxWorld(VectorWorld):
    """Moves in [0, 1]: action 0 leads down and action 1 leads up, by U[0, .25].

    The start is uniform, states are clipped, and the reward is a function of the new state.

    Values are computed by dynamic programming on a fine grid of points, linear between them; where
    a policy changes its mind between two, each action counts for its part of the way. With smooth
    policies the error is below .0001, with those that change their mind everywhere about .001.

    Args:
        reward: maps new states, (..., D), to rewards, (...,).
        name: what it is called.
        horizon: steps of an episode.
        reward_range: the smallest and the largest reward.
        discount: see :class:`~tacit.continuous.spec.BoxSpec`.
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
    """States at which policies are asked, (.., D): around each point, half a cell to each side.

    The ends stand for themselves: clipped moves gather exactly there.
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
    return np.asarray(0.5 - np.abs(states - 0.5).mean(axis=-1))


WORLDS = ("line",)
"""The names of worlds that a command line knows."""
