"""Linear-quadratic worlds as environments of Gymnasium; :mod:`tacit.envs` registers them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from gymnasium import spaces

from tacit.core.vector_episodes import VectorEpisodes
from tacit.finite.env import EpisodeEnv
from tacit.lq.policy import GainPolicy
from tacit.lq.world import LQWorld
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats


class LQEnv(EpisodeEnv[Floats, Floats]):
    """A linear-quadratic world as a Gymnasium environment.

    The observation is the state, the action is the control, the reward is -(x'Qx + u'Ru). Neither
    states nor controls are bounded.

    >>> from tacit.lq import dosing
    >>> state, _ = LQEnv(dosing()).reset(seed=0)
    >>> state.shape
    (3,)
    """

    def __init__(self, world: LQWorld) -> None:
        super().__init__(world, LQWorld, "an LQWorld")
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
