"""Tuned numbers of the agents with functional noise."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tacit.continuous.arguments import real
from tacit.privacy.arguments import whole_number
from tacit.privacy.errors import InvalidArgument


@dataclass(frozen=True)
class FunctionalConstants:
    """Tuned numbers of the agents; lengths are parts of the box, rewards in units of their range.

    ``signal`` is users x mu / (actions x modes): how far the sum of all users stands out of the
    noise, per number that has to be learnt.

    Attributes:
        kernel_length: of the kernel that users' functions and the noise are made of.
        prior_length: of what Q is believed to look like.
        prior_reward: standard deviation of expected rewards, a priori.
        prior_moves: how far a step leads, a priori: what is believed of transitions.
        prior_drift: by how much targets may change between releases beside that.
        noise: standard deviation of a step's residual around its expectation.
        modes: numbers that have to be learnt per coordinate and action; on a feature map it is
            one in so many.
        depth: releases where ``signal`` is 1.
        depth_power: of ``signal`` that releases grow with.
        fewest: the smallest number of releases.
        clip: of users' functions, per root of ``signal`` and of the number of steps.
        largest_clip: the largest it gets, per root of the number of steps.
        clip_fall: the last clip over the first.
        growth: of mu^2 from release to release.
        visits: part of mu^2 that is spent on where users were.
        visits_clip: of users' visits: per root of the number of steps on a grid, per step on a map.
        averaged: over how many last value functions the greedy policy's is averaged.
        reward_clip: of users' rewards where only these are protected, per root of the steps.
    """

    kernel_length: float = 0.2
    prior_length: float = 0.35
    prior_reward: float = 0.4
    prior_moves: float = 0.03
    prior_drift: float = 0.05
    noise: float = 0.3
    modes: float = 3.0
    depth: float = 4.2
    depth_power: float = 0.6
    fewest: int = 4
    clip: float = 0.13
    largest_clip: float = 0.6
    clip_fall: float = 0.5
    growth: float = 1.05
    visits: float = 0.05
    visits_clip: float = 1.0
    averaged: int = 1
    reward_clip: float = 0.3

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
