"""A world of your own, twice: by its tables, and as an environment of Gymnasium.

tacit run --world examples/corridor.py:corridor:length=5 --epsilon 1 --delta 1e-7
tacit run --world examples/corridor.py:Corridor:horizon=20 --epsilon 1 --delta 1e-7
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tacit.tabular import TabularWorld


def corridor(length: int = 4, slip: float = 0.1) -> TabularWorld:
    """A corridor: action 1 goes on, action 0 goes back, and the end pays 1 in every step.

    Who slips stays where she is.
    """
    transitions = np.zeros((length, 2, length))
    for cell in range(length):
        for action, to in enumerate((max(cell - 1, 0), min(cell + 1, length - 1))):
            transitions[cell, action, to] += 1.0 - slip
            transitions[cell, action, cell] += slip
    rewards = np.zeros((length, 2))
    rewards[-1] = 1.0
    name = f"corridor of {length}"
    return TabularWorld(transitions, rewards, horizon=3 * length, name=name)


class Corridor(gymnasium.Env[int, int]):
    """The same to be walked: whoever comes to the end is paid 10, and every other step costs 1."""

    metadata = {"reward_range": (-1.0, 10.0)}  # noqa: RUF012  (Gymnasium's own way)

    def __init__(self, length: int = 4) -> None:
        """A corridor of so many cells."""
        self.length, self.cell, self.steps = length, 0, 0
        self.observation_space = spaces.Discrete(length)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        """A new user, at the beginning."""
        super().reset(seed=seed)
        self.cell = self.steps = 0
        return self.cell, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """One step; nobody walks for more than 20."""
        self.cell = min(max(self.cell + (1 if action == 1 else -1), 0), self.length - 1)
        self.steps += 1
        done = self.cell == self.length - 1
        return self.cell, 10.0 if done else -1.0, done, self.steps >= 20, {}
