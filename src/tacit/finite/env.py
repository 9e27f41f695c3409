"""Worlds as environments of Gymnasium; finite ones here, others in their families."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces

from tacit.core.sizes import Floats
from tacit.core.targets import load
from tacit.finite.model import FiniteModel
from tacit.finite.world import FiniteWorld
from tacit.privacy.errors import InvalidArgument

State = TypeVar("State")
Action = TypeVar("Action")


class EpisodeEnv(gymnasium.Env[State, Action]):
    """The users of a world, one after the other; an episode is truncated at the horizon."""

    world: Any

    def __init__(self, world: Any, kind: type, wanted: str) -> None:
        if not isinstance(world, kind):
            raise InvalidArgument(f"world must be {wanted}, got {type(world).__name__}")
        self.metadata = {"render_modes": []}
        self.world: Any = world
        self._step = 0

    @abstractmethod
    def _first(self) -> State:
        """Where a new user is."""

    @abstractmethod
    def _next(self, action: Any) -> tuple[State, float]:
        """Where her action leads, and the reward."""

    def _check(self, action: Any) -> None:
        if not self.action_space.contains(action):
            raise InvalidArgument(f"action must be in {self.action_space}, got {action!r}")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[State, dict[str, Any]]:
        """A new user."""
        super().reset(seed=seed)
        self._step = 0
        return self._first(), {}

    def step(self, action: Action) -> tuple[State, float, bool, bool, dict[str, Any]]:
        """One step of the user."""
        self._check(action)
        horizon = self.world.spec.horizon
        if self._step >= horizon:
            raise InvalidArgument(f"the episode is over after {horizon} steps: reset first")
        state, reward = self._next(action)
        self._step += 1
        return state, reward, False, self._step >= horizon, {}


class FiniteEnv(EpisodeEnv[np.int64, np.int64]):
    """A finite world as a Gymnasium environment.

    >>> from tacit.registry import build_world
    >>> state, _ = FiniteEnv(build_world("riverswim")).reset(seed=0)
    >>> int(state)
    0
    """

    def __init__(self, world: FiniteWorld) -> None:
        super().__init__(world, FiniteWorld, "a FiniteWorld")
        self.observation_space = spaces.Discrete(world.spec.states)
        self.action_space = spaces.Discrete(world.spec.actions)
        self._state = 0

    @property
    def initial_state_distrib(self) -> Floats:
        """The distribution of the first state, under Gymnasium's name."""
        start: Floats = self.world.model.start
        return start

    @cached_property
    def P(self) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:  # noqa: N802
        """The table as Gymnasium's toy environments have it; stationary worlds only."""
        model = self.world.model
        if not model.stationary:
            raise AttributeError("P is for stationary worlds")
        return {
            s: {a: _outcomes(model, s, a) for a in range(model.actions)}
            for s in range(model.states)
        }

    def _first(self) -> np.int64:
        model = self.world.model
        self._state = int(self.np_random.choice(model.states, p=model.start))
        return np.int64(self._state)

    def _next(self, action: np.int64) -> tuple[np.int64, float]:
        model = self.world.model
        s, a = self._state, int(action)
        row = model.transitions_at(self._step)[s, a]
        self._state = int(self.np_random.choice(model.states, p=row))
        if model.transition_rewards is not None:
            reward = float(model.transition_rewards[s, a, self._state])
        else:
            level = min(self._step, len(model.reward_probabilities) - 1)
            chances = model.reward_probabilities[level, s, a]
            reward = float(self.np_random.choice(model.reward_values, p=chances))
        return np.int64(self._state), reward


def make_env(kind: str, world: str, **parameters: Any) -> gymnasium.Env[Any, Any]:
    """The environment of a class, of what makes a world; ``gymnasium.make`` calls it with both."""
    made: gymnasium.Env[Any, Any] = load(kind)(load(world)(**parameters))
    return made


def _outcomes(model: FiniteModel, s: int, a: int) -> list[tuple[float, int, float, bool]]:
    row = model.transitions_at(0)[s, a]
    if model.transition_rewards is not None:
        decided = model.transition_rewards[s, a]
        return [(float(row[t]), int(t), float(decided[t]), False) for t in np.flatnonzero(row)]
    rewards = list(zip(model.reward_probabilities[0, s, a], model.reward_values, strict=True))
    return [
        (float(row[t] * q), int(t), float(r), False)
        for t in np.flatnonzero(row)
        for q, r in rewards
        if q > 0
    ]
