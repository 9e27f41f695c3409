"""Linear-quadratic worlds as environments of Gymnasium.

Importing this module registers the built-in worlds: ``tacit/Dosing-v0``,
``tacit/DoubleIntegrator-v0`` and ``tacit/RandomSystem-v0``.
"""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tacit.core.vector_episodes import VectorEpisodes
from tacit.finite.env import Registered, register_worlds
from tacit.lq import worlds
from tacit.lq.policy import GainPolicy
from tacit.lq.world import LQWorld
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]


class LQEnv(gymnasium.Env[Floats, Floats]):
    """A linear-quadratic world as a Gymnasium environment.

    The observation is the state, the action is the control, the reward is -(x'Qx + u'Ru), and an
    episode is truncated at the horizon. Neither states nor controls are bounded.

    >>> state, _ = LQEnv(worlds.dosing()).reset(seed=0)
    >>> state.shape
    (3,)
    """

    def __init__(self, world: LQWorld) -> None:
        if not isinstance(world, LQWorld):
            raise InvalidArgument(f"world must be an LQWorld, got {type(world).__name__}")
        self.metadata = {"render_modes": []}
        self.world = world
        n, d = world.B.shape
        self.observation_space = spaces.Box(-np.inf, np.inf, (n,), np.float64)
        self.action_space = spaces.Box(-np.inf, np.inf, (d,), np.float64)
        self._still = GainPolicy.zero(world.horizon, d, n)
        self._state = np.zeros(n)
        self._noises = np.zeros((world.horizon, n))
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """A new user."""
        super().reset(seed=seed)
        # One user without control: her first state, and what noise there was, is what counts.
        states = cast(VectorEpisodes, self.world.simulate(self._still, 1, self.np_random)).states
        self._noises = states[0, 1:] - states[0, :-1] @ self.world.A.T
        self._state, self._step = states[0, 0].copy(), 0
        return self._state.copy(), {}

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """One step of the user."""
        world = self.world
        control = np.asarray(action, dtype=np.float64)
        if control.shape != self.action_space.shape or not np.isfinite(control).all():
            raise InvalidArgument(
                f"action must be finite numbers of shape {self.action_space.shape}, got {action!r}"
            )
        if self._step >= world.horizon:
            raise InvalidArgument(f"the episode is over after {world.horizon} steps: reset first")
        x = self._state
        reward = -float(x @ world.Q @ x + control @ world.R @ control)
        self._state = world.A @ x + world.B @ control + self._noises[self._step]
        self._step += 1
        return self._state.copy(), reward, False, self._step >= world.horizon, {}


def register_envs() -> None:
    """Registers the built-in worlds with Gymnasium; once is enough, twice does no harm."""
    register_worlds("tacit.lq.gym:make_env", _REGISTERED)


def make_env(world: str, **parameters: Any) -> LQEnv:
    """The environment of a built-in world; what ``gymnasium.make`` calls."""
    return LQEnv(getattr(worlds, world)(**parameters))


_REGISTERED: tuple[Registered, ...] = (
    ("Dosing", "dosing", {}),
    ("DoubleIntegrator", "double_integrator", {}),
    ("RandomSystem", "random_system", {}),
)

register_envs()
