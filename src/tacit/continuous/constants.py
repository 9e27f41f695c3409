"""Tuned numbers of the agent with functional noise."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tacit.continuous.base import real
from tacit.privacy.arguments import whole_number
from tacit.privacy.errors import InvalidArgument


@dataclass(frozen=True)
class FunctionalConstants:
    """Tuned numbers of the agent; lengths are parts of the box, rewards in units of their range.

    ``signal`` is users x mu / (actions x modes): how far the sum of all users stands out of the
    noise, per number that has to be learnt.
    """

    kernel_length: float = 0.2  # of the kernel that users' functions and the noise are made of
    prior_length: float = 0.35  # of what Q is believed to look like
    prior_reward: float = 0.4  # standard deviation of expected rewards, a priori
    prior_moves: float = 0.03  # how far a step leads, a priori: what is believed of transitions
    prior_drift: float = 0.05  # by how much targets may change between releases beside that
    noise: float = 0.3  # standard deviation of a step's residual around its expectation
    # Numbers that have to be learnt per coordinate and action; on a feature map it is one in so
    # many.
    modes: float = 3.0
    depth: float = 4.2  # releases where ``signal`` is 1
    depth_power: float = 0.6  # of ``signal`` that releases grow with
    fewest: int = 4  # the smallest number of releases
    clip: float = 0.13  # of users' functions, per root of ``signal`` and of the number of steps
    largest_clip: float = 0.6  # the largest it gets, per root of the number of steps
    clip_fall: float = 0.5  # the last clip over the first
    growth: float = 1.05  # of mu^2 from release to release
    visits: float = 0.05  # part of mu^2 that is spent on where users were
    # Of users' visits: per root of the number of steps on a grid, per step on a map.
    visits_clip: float = 1.0
    averaged: int = 1  # over how many last value functions the greedy policy's is averaged

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("averaged", "fewest"):
                object.__setattr__(self, item.name, whole_number(item.name, value))
            elif real(item.name, value) < 0.0:
                raise InvalidArgument(f"{item.name} must be finite and >= 0, got {value!r}")
        if not 0.0 < self.visits < 1.0:
            raise InvalidArgument(f"visits must be in (0, 1), got {self.visits!r}")


GRID = FunctionalConstants()
"""For grids."""

GRID_ENDS = FunctionalConstants(prior_reward=0.3, noise=0.15)
"""For grids where episodes may end, of which values are measured in units of the largest."""

MAP = FunctionalConstants(
    prior_reward=0.25,
    prior_moves=0.2,
    prior_drift=0.0,
    noise=0.1,
    clip=0.018,
    largest_clip=0.065,
    visits=0.2,
    visits_clip=0.2,
    averaged=5,
)
"""For other feature maps, whose features are of order one; what ends is worth one unit."""
