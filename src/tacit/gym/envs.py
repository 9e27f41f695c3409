"""Worlds as environments of Gymnasium; :mod:`tacit.gym` registers them."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from typing import Any, ClassVar, TypeVar, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from tacit.continuous.worlds import BoxWorld
from tacit.data.episodes import VectorEpisodes
from tacit.lq.policy import GainPolicy
from tacit.lq.world import LQWorld
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats
from tacit.tabular.world import FiniteWorld

State = TypeVar("State")
Action = TypeVar("Action")


class EpisodeEnv(gymnasium.Env[State, Action]):
    """The users of a world, one after the other; an episode is truncated at the horizon."""

    kind: ClassVar[type]  # of worlds that it takes
    world: Any

    def __init__(self, world: Any) -> None:
        if not isinstance(world, self.kind):
            raise InvalidArgument(
                f"world must be of type {self.kind.__name__}, got {type(world).__name__}"
            )
        self.metadata = {"render_modes": []}
        self.world = world
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
    """A finite world as a Gymnasium environment."""

    kind = FiniteWorld

    def __init__(self, world: FiniteWorld) -> None:
        super().__init__(world)
        self.observation_space = spaces.Discrete(world.spec.states)
        self.action_space = spaces.Discrete(world.spec.actions)
        self._state = 0

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


class LQEnv(EpisodeEnv[Floats, Floats]):
    """A linear-quadratic world as a Gymnasium environment.

    The observation is the state, the action is the control, the reward is -(x'Qx + u'Ru). Neither
    states nor controls are bounded.
    """

    kind = LQWorld

    def __init__(self, world: LQWorld) -> None:
        super().__init__(world)
        n, d = world.B.shape
        self.observation_space = spaces.Box(-np.inf, np.inf, (n,), np.float64)
        self.action_space = spaces.Box(-np.inf, np.inf, (d,), np.float64)
        self._still = GainPolicy.zero(world.horizon, d, n)
        self._state = np.zeros(n)
        self._noises = np.zeros((world.horizon, n))

    def _first(self) -> Floats:
        # One user without control: her first state, and what noise there was, is what counts.
        states = cast(VectorEpisodes, self.world.simulate(self._still, 1, self.np_random)).states
        self._noises = states[0, 1:] - states[0, :-1] @ self.world.A.T
        self._state = states[0, 0].copy()
        return self._state.copy()

    def _check(self, action: Any) -> None:
        control = np.asarray(action, dtype=np.float64)
        if control.shape != self.action_space.shape or not np.isfinite(control).all():
            raise InvalidArgument(
                f"action must be finite numbers of shape {self.action_space.shape}, got {action!r}"
            )

    def _next(self, action: Any) -> tuple[Floats, float]:
        world, x, control = self.world, self._state, np.asarray(action, dtype=np.float64)
        reward = -float(x @ world.Q @ x + control @ world.R @ control)
        self._state = world.A @ x + world.B @ control + self._noises[self._step]
        return self._state.copy(), reward


class BoxEnv(EpisodeEnv[Floats, np.int64]):
    """A world of moves in a box as an environment."""

    kind = BoxWorld

    def __init__(self, world: BoxWorld) -> None:
        super().__init__(world)
        self.observation_space = spaces.Box(0.0, 1.0, (world.spec.dimension,), np.float64)
        self.action_space = spaces.Discrete(world.spec.actions)
        self._state = np.zeros(world.spec.dimension)

    def _first(self) -> Floats:
        self._state = self.np_random.random(self._state.shape)
        return self._state.copy()

    def _next(self, action: np.int64) -> tuple[Floats, float]:
        from tacit.continuous import world_loops

        world_loops.move(self._state[np.newaxis], np.array([int(action)]), self.np_random.random(1))
        return self._state.copy(), float(self.world.rewards(self._state))


def make_env(world: str, **parameters: Any) -> gymnasium.Env[Any, Any]:
    """The environment of what makes a world, by its module; ``gymnasium.make`` calls it."""
    module, _, name = world.partition(":")
    made = getattr(importlib.import_module(module), name)(**parameters)
    kinds: tuple[Any, ...] = (LQEnv, BoxEnv, FiniteEnv)
    env: gymnasium.Env[Any, Any] = next(k for k in kinds if isinstance(made, k.kind))(made)
    return env
