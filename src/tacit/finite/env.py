"""Finite worlds as environments of Gymnasium."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tacit.finite.model import FiniteModel
from tacit.finite.world import FiniteWorld
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]

Registered: TypeAlias = tuple[str, str, Mapping[str, Any]]
"""An environment's name, the world behind it, and those of its parameters that need a value."""


class FiniteEnv(gymnasium.Env[np.int64, np.int64]):
    """A finite world as a Gymnasium environment; an episode is truncated at the horizon.

    >>> from tacit.registry import build_world
    >>> state, _ = FiniteEnv(build_world("riverswim")).reset(seed=0)
    >>> int(state)
    0
    """

    def __init__(self, world: FiniteWorld) -> None:
        if not isinstance(world, FiniteWorld):
            raise InvalidArgument(f"world must be a FiniteWorld, got {type(world).__name__}")
        self.metadata = {"render_modes": []}
        self.world = world
        self.observation_space = spaces.Discrete(world.spec.states)
        self.action_space = spaces.Discrete(world.spec.actions)
        self._state = 0
        self._step = 0

    @property
    def initial_state_distrib(self) -> Floats:
        """The distribution of the first state, under Gymnasium's name."""
        return self.world.model.start

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

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """A new user."""
        super().reset(seed=seed)
        model = self.world.model
        self._step = 0
        self._state = int(self.np_random.choice(model.states, p=model.start))
        return np.int64(self._state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """One step of the user."""
        if not self.action_space.contains(action):
            raise InvalidArgument(f"action must be in {self.action_space}, got {action!r}")
        model = self.world.model
        if self._step >= model.horizon:
            raise InvalidArgument(f"the episode is over after {model.horizon} steps: reset first")
        s, a = self._state, int(action)
        row = model.transitions_at(self._step)[s, a]
        self._state = int(self.np_random.choice(model.states, p=row))
        if model.transition_rewards is not None:
            reward = float(model.transition_rewards[s, a, self._state])
        else:
            level = min(self._step, len(model.reward_probabilities) - 1)
            chances = model.reward_probabilities[level, s, a]
            reward = float(self.np_random.choice(model.reward_values, p=chances))
        self._step += 1
        return np.int64(self._state), reward, False, self._step >= model.horizon, {}


def opened(
    env_or_id: str | gymnasium.Env[Any, Any], kwargs: dict[str, Any]
) -> gymnasium.Env[Any, Any]:
    """An environment, or that of an id and its parameters."""
    if isinstance(env_or_id, str):
        try:
            return gymnasium.make(env_or_id, **kwargs)
        except (gymnasium.error.Error, TypeError) as error:
            raise InvalidArgument(f"no environment {env_or_id!r} with {kwargs}: {error}") from error
    if not isinstance(env_or_id, gymnasium.Env):
        raise InvalidArgument(f"env_or_id must be a gymnasium.Env or its id, got {env_or_id!r}")
    if kwargs:
        raise InvalidArgument(f"{sorted(kwargs)} are for making an env from its id")
    return env_or_id


def numbered_actions(space: Any) -> spaces.Discrete:
    """The space of actions, which must have numbers."""
    if not isinstance(space, spaces.Discrete):
        raise InvalidArgument(f"the environment's actions must be Discrete, got {space}")
    return space


def register_worlds(entry_point: str, entries: Iterable[Registered]) -> None:
    """Registers worlds as ``tacit/<name>-v0``, unless they are registered already.

    ``entry_point`` is the ``module:function`` that makes an environment of ``world=`` and options.
    """
    for name, world, defaults in entries:
        full = f"tacit/{name}-v0"
        if full not in gymnasium.registry:
            gymnasium.register(full, entry_point, kwargs={"world": world, **defaults})


def _outcomes(model: FiniteModel, s: int, a: int) -> list[tuple[float, int, float, bool]]:
    row = model.transitions[0, s, a]
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
