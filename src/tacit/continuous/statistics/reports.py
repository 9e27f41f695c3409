"""What baselines ask: what one user did, as she could report it, visits, and values of her own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.continuous.feature_map import FeatureMap
from tacit.continuous.fitted_q import fitted_q
from tacit.continuous.grid import Grid
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.steps import REWARDS_ONLY, shaped, steps_of
from tacit.privacy.arguments import positive
from tacit.privacy.bounds.balls import ACUTE, ball, scaled_back
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic


@dataclass(frozen=True)
class RewardVectors(Statistic):
    """A user's rewards, in order; about one user at a time.

    Reads ``rewards`` (users, H), and refuses the others if their shapes are wrong: they are kept
    as they come. Each is clipped to its range and counted from the middle, in units
    of the range; one that is not finite is the middle.

    Sensitivity, when one user's rewards change and nothing else. Each of H coordinates is in
    [-1/2, 1/2]: two users are at most sqrt(H) apart, and zero is at most sqrt(H) / 2 away. Both are
    attained, and in the 1-norm they are H and H / 2.
    """

    spec: BoxSpec

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "one user's rewards")

    @property
    def protects(self) -> str:
        """Rewards only."""
        return REWARDS_ONLY

    @property
    def private_columns(self) -> frozenset[str]:
        """Rewards only."""
        return frozenset({"rewards"})

    @cached_property
    def layout(self) -> Layout:
        """``rewards``."""
        return Layout((Part("rewards", (self.spec.horizon,)),))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return math.sqrt(self.spec.horizon) * _half(relation)

    def l1(self, relation: Relation) -> float:
        """See the class."""
        return self.spec.horizon * _half(relation)

    def vectors(self, block: Block) -> Floats:
        """From -1/2 to 1/2."""
        rewards = np.asarray(shaped(block, self.spec)["rewards"], dtype=np.float64)
        return _unit(rewards, *self.spec.reward_range)


@dataclass(frozen=True)
class Trajectories(Statistic):
    """A user's whole trajectory; about one user at a time.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. Coordinates of states and rewards
    are clipped and counted from the middle, in units of their ranges; actions are one-hot vectors
    less their mean. A step that is not valid is zero, and so is a state that is not finite.

    Sensitivity. (H + 1) D + H coordinates are in [-1/2, 1/2] and move by at most 1 each, and H
    one-hots move by at most sqrt(2) each: sqrt((H + 1) D + 3 H). Against zero the squares are 1/4
    for the former and 1 - 1 / A for the latter.
    """

    spec: BoxSpec

    def __post_init__(self) -> None:
        if not self.spec.bounded:
            raise InvalidArgument(
                f"states must be in a finite box to be perturbed, got {self.spec.lows} to "
                f"{self.spec.highs}"
            )
        object.__setattr__(self, "name", "one user's trajectory")

    @cached_property
    def layout(self) -> Layout:
        """``states``, ``actions`` and ``rewards``."""
        H, D, A = self.spec.horizon, self.spec.dimension, self.spec.actions
        return Layout((Part("states", (H + 1, D)), Part("actions", (H, A)), Part("rewards", (H,))))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        H, D, A = self.spec.horizon, self.spec.dimension, self.spec.actions
        if checked_relation(relation) is Relation.REPLACE_ONE:
            return math.sqrt((H + 1) * D + H + (2 * H if A > 1 else 0))
        return math.sqrt(((H + 1) * D + H) / 4.0 + H * (1.0 - 1.0 / A))

    def vectors(self, block: Block) -> Floats:
        """All parts, from -1/2 to 1/2."""
        spec = self.spec
        states, actions, rewards, valid, _ = steps_of(block, spec, inside=True)
        finite = np.isfinite(np.asarray(block["states"], dtype=np.float64))
        places = _unit(states, np.array(spec.lows), np.array(spec.highs))
        taken = (actions[..., np.newaxis] == np.arange(spec.actions)) - 1.0 / spec.actions
        parts = {
            "states": np.where(finite.all(axis=-1, keepdims=True), places, 0.0),
            "actions": np.where(valid[..., np.newaxis], taken, 0.0),
            "rewards": np.where(valid, _unit(rewards, *spec.reward_range), 0.0),
        }
        return self.layout.pack(parts, users=block.users)


@dataclass(frozen=True)
class MeanRewards(Statistic):
    """What users earn in a step, on average over the horizon; nothing after an end.

    One part, ``earned``: the sum of a user's rewards over H, from the middle of the rewards' range
    and in units of it. Steps that are not valid have earned the middle.

    Sensitivity. A number in [-1/2, 1/2]: two users differ by at most 1, as those do who always earn
    the least and the most, and zero is at most 1/2 away.
    """

    spec: BoxSpec

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "mean rewards")

    @cached_property
    def layout(self) -> Layout:
        """``earned``."""
        return Layout((Part("earned", (1,)),))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return _half(relation)

    def vectors(self, block: Block) -> Floats:
        """One number for each user."""
        _, _, rewards, valid, _ = steps_of(block, self.spec)
        units = np.where(valid, _unit(rewards, *self.spec.reward_range), 0.0)
        means: Floats = units.mean(axis=1, keepdims=True)
        return np.clip(means, -0.5, 0.5)


def _half(relation: Relation) -> float:
    return {Relation.REPLACE_ONE: 1.0, Relation.ZERO_OUT: 0.5}[checked_relation(relation)]


def _unit(values: Floats, low: float | Floats, high: float | Floats) -> Floats:
    """From the range to [-1/2, 1/2]; the middle where a value is not finite."""
    scaled: Floats = (np.clip(values, low, high) - low) / (high - low) - 0.5
    return np.where(np.isfinite(values), scaled, 0.0)


@dataclass(frozen=True)
class FirstVisits(Statistic):
    """First visits to pairs of an action and a point of a grid, and the returns from there on.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. A step belongs to its action and to
    the point whose weight is largest. The return from a step on is the discounted mean of all
    rewards until the horizon, zero after an end; from the middle of the rewards' range, in units of
    half of it, clipped to [-1, 1]. A step with a value that is not valid is no visit, and what it
    earned is not known: an episode that stops without an end, as by a time limit, has no zeros.

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
        states, actions, rewards, valid, ended = steps_of(block, spec, inside=True)
        users, H = actions.shape
        known = valid | (np.cumsum(ended, axis=1) > 0)
        cells = actions * self.grid.size + self.grid(states[:, :-1]).argmax(axis=-1)
        size = spec.actions * self.grid.size
        means, later, weight = np.zeros((users, H)), np.zeros(users), np.zeros(users)
        for step in range(H - 1, -1, -1):
            told = known[:, step]
            later = np.where(told, rewards[:, step] + self.discount * later, later)
            weight = np.where(told, 1.0 + self.discount * weight, weight)
            means[:, step] = later / np.maximum(weight, 1.0)
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


@dataclass(frozen=True)
class OwnValues(Statistic):
    """The weights of a Q that is fitted to a user's episode alone, clipped to norm ``radius``.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. Steps with invalid values are
    dropped; a user without any other has zero weights. The mean over actions, which no policy
    depends on, is subtracted before the clip.

    Sensitivity. Two points of a ball are at most 2 radius apart, and opposite points are.
    """

    spec: BoxSpec
    features: FeatureMap
    discount: float
    ridge: float
    radius: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius > 0 and self.ridge > 0):
            raise InvalidArgument(
                f"radius and ridge must be > 0, got {self.radius!r} and {self.ridge!r}"
            )
        object.__setattr__(self, "name", "users' own values")

    @cached_property
    def layout(self) -> Layout:
        """``weights``, one row for each action."""
        return Layout((Part("weights", (self.spec.actions, self.features.size)),))

    def l2(self, relation: Relation) -> float:
        """2 radius, or radius."""
        return ball(self.radius, relation)

    def vectors(self, block: Block) -> Floats:
        """One fit for each user."""
        states, actions, rewards, valid, over = steps_of(block, self.spec, inside=True)
        features = self.features(states)
        given = actions, rewards, valid, over, self.spec, self.discount, self.ridge
        weights = fitted_q(features[:, :-1], features[:, 1:], *given)
        weights -= weights.mean(axis=1, keepdims=True)
        return scaled_back(weights.reshape(block.users, self.layout.size), self.radius)
