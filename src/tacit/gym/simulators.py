"""Private simulators as environments of Gymnasium: any algorithm may be trained in them.

All that a simulator has follows from releases, and from nothing else. So whatever is done in it,
however often, costs users no privacy: privacy is closed under post-processing.
"""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tacit import published
from tacit.privacy.budget import Guarantee
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.files import write_atomic
from tacit.privacy.validation import whole_number
from tacit.published.simulators import PublishedSimulator, SimulatedEpisodes

Rewards = np.ndarray[Any, np.dtype[np.float64]]


def _spaces(simulator: PublishedSimulator) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """Spaces of observations and of actions."""
    states = len(simulator.stored["start"])
    return spaces.Discrete(states), spaces.Discrete(simulator.n_actions)


class SimulatorEnv(gymnasium.Env[Any, Any]):
    """Episodes of a released model, one after the other, each in one draw of its posterior.

    ``info["draw"]`` says in which draw an episode is, and ``info["known"]`` whether users were ever
    where a step was taken: what happens elsewhere is a guess. An episode is truncated at the
    horizon.

    Attributes:
        guarantee: Of the releases, for every user; ``None`` if they were not private.
        facts: All that the file says of itself: agent, spec, users, releases, its hash.
        simulator: The model, which needs NumPy alone.
    """

    def __init__(self, file: bytes | str | os.PathLike[str]) -> None:
        data = file if isinstance(file, bytes) else published.contents(file)
        loaded = published.load(data)
        if not isinstance(loaded, PublishedSimulator):
            raise ValueError("it is a published policy, and no simulator")
        self.metadata = {"render_modes": []}
        self._data, self.simulator, self.facts = data, loaded, published.about(data)
        promise = self.facts.get("guarantee")
        self.guarantee = None if promise is None else Guarantee.from_dict(promise)
        self.observation_space, self.action_space = _spaces(loaded)
        self._episodes: SimulatedEpisodes | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new episode, in another draw."""
        super().reset(seed=seed)
        self._episodes = self.simulator.begin(1, self.np_random)
        return self._episodes.states[0], {"draw": int(self._episodes.drawn[0])}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of the episode."""
        if not self.action_space.contains(action):
            raise InvalidArgument(f"action must be in {self.action_space}, got {action!r}")
        if (at := self._episodes) is None or at.truncated[0]:
            raise InvalidArgument("the episode is over: reset first")
        rewards, ended, known = at.step(np.asarray(action)[np.newaxis])
        over = bool(ended[0]), bool(at.truncated[0])
        return at.states[0], float(rewards[0]), *over, {"known": bool(known[0])}

    def vector(self, episodes: int) -> SimulatorVectorEnv:
        """So many episodes side by side, as one vector environment."""
        return SimulatorVectorEnv(self, episodes)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the public file, which :func:`load_simulator` reads.

        Args:
            path: Of the file, an npz archive.
            force: Also if noise was simulated (``noise_seed``) and protects no one.
        """
        if self.guarantee is not None and self.guarantee.simulation_only and not force:
            raise InvalidArgument(
                "this simulator follows from a simulation (noise_seed) and protects nobody who was "
                "real: give force=True"
            )
        write_atomic(path, self._data, 0o644)


class SimulatorVectorEnv(VectorEnv[Any, Any, Any]):
    """Episodes of a simulator side by side; one that is over begins again with its next step."""

    def __init__(self, env: SimulatorEnv, episodes: int) -> None:
        self.num_envs = whole_number("episodes", episodes)
        self.simulator, self.guarantee, self.facts = env.simulator, env.guarantee, env.facts
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observation_space = batch_space(env.observation_space, episodes)
        self.action_space = batch_space(env.action_space, episodes)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """New episodes, in other draws."""
        super().reset(seed=seed)
        self._episodes = self.simulator.begin(self.num_envs, self.np_random)
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        return self._episodes.states.copy(), {"draw": self._episodes.drawn.copy()}

    def step(self, actions: Any) -> tuple[Any, Rewards, Any, Any, dict[str, Any]]:
        """One step of every episode; the first of a new one where the last one is over."""
        at, over = self._episodes, self._over
        rewards, ended, known = at.step(actions)
        at.renew(over)
        rewards = np.where(over, 0.0, rewards)
        ended, truncated = ended & ~over, at.truncated & ~over
        self._over = ended | truncated
        return at.states.copy(), rewards, ended, truncated, {"known": known | over}


def load_simulator(path: str | os.PathLike[str]) -> SimulatorEnv:
    """The environment of a simulator's file; :func:`tacit.published.load` needs NumPy alone."""
    try:
        return SimulatorEnv(path)
    except ValueError as error:
        raise CorruptFile(str(error)) from None
