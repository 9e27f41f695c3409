"""Where users came for the first time, and what followed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.continuous.grid import Grid
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.steps import steps_of
from tacit.privacy.arguments import positive
from tacit.privacy.bounds.balls import ACUTE, ball, scaled_back
from tacit.privacy.budget import Relation
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic


@dataclass(frozen=True)
class FirstVisits(Statistic):
    """First visits to pairs of an action and a point of a grid, and the returns from there on.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. A step belongs to its action and to
    the point whose weight is largest. The return from a step on is the discounted mean of all
    rewards until the horizon, zero after an end; from the middle of the rewards' range, in units of
    half of it, clipped to [-1, 1]. A step with a value that is not valid is no visit.

    Sensitivity. The vector is clipped to norm ``radius``. Visits are not negative, so of two
    users' vectors (v, r) and (v', r') only r and r' can be opposite. With |v|^2 + |r|^2 <= c^2 and
    |r| <= |v|, because every entry of r belongs to a visit and is at most 1,
    |v - v'|^2 + |r - r'|^2 <= 2 c^2 - 2 <v, v'> - 2 <r, r'>, and - <r, r'> <= <v, v'> entry by
    entry: so at most 2 c^2, c sqrt(2), attained by users who visit nothing in common. The zero
    vector is at most c away. (A common factor of the clip keeps |r| <= |v| entry by entry.)
    """

    spec: BoxSpec
    grid: Grid
    discount: float
    radius: float

    def __post_init__(self) -> None:
        positive("radius", self.radius)
        object.__setattr__(self, "name", "first visits and returns")

    @cached_property
    def layout(self) -> Layout:
        """``visits`` and ``returns``, a row for each action."""
        shape = (self.spec.actions, self.grid.size)
        return Layout((Part("visits", shape), Part("returns", shape)))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        several = self.spec.actions * self.grid.size > 1
        return ball(self.radius, relation, ACUTE if several else 1.0)

    def vectors(self, block: Block) -> Floats:
        """Clipped visits and returns."""
        spec = self.spec
        states, actions, rewards, valid, _ = steps_of(block, spec, inside=True)
        users, H = actions.shape
        cells = actions * self.grid.size + self.grid(states[:, :-1]).argmax(axis=-1)
        size = spec.actions * self.grid.size
        means, later, weight = np.zeros((users, H)), np.zeros(users), 0.0
        for step in range(H - 1, -1, -1):
            later = rewards[:, step] + self.discount * later
            weight = 1.0 + self.discount * weight
            means[:, step] = later / weight
        low, high = spec.reward_range
        returns = np.clip((2.0 * means - low - high) / (high - low), -1.0, 1.0)
        keys = np.where(valid, np.arange(users)[:, np.newaxis] * size + cells, users * size)
        # The first of equal keys is the earliest step.
        visited, first = np.unique(keys.ravel(), return_index=True)
        there = visited < users * size
        dense = np.zeros((2, users * size + 1))
        dense[0, visited[there]] = 1.0
        dense[1, visited[there]] = returns.ravel()[first[there]]
        by_user = dense[:, :-1].reshape(2, users, size).swapaxes(0, 1)
        return scaled_back(by_user.reshape(users, 2 * size), self.radius)
