"""How users move among features: what a kernel MDP is regressed on, for every value function."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.statistics.steps import steps_of, vectors_by_part
from tacit.privacy.arguments import positive
from tacit.privacy.bounds.balls import ACUTE, ball
from tacit.privacy.budget import Relation
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec

MOVING, PAYING = 2.0, 1.0
"""Weights of the parts ``moves`` and ``rewards``, a and b."""


@dataclass(frozen=True, eq=False)
class EmbeddingSums(Statistic):
    """Sums over a user's steps, by action, of z z', z d' and z r, with z the features of the state.

    d = z(s') - z(s) is how far the step goes among features, and r the reward in [-1, 1], from its
    middle in halves of its range. Where episodes may end, d has one coordinate more: z is 0 at an
    end, and that coordinate 1; elsewhere a step into an end does not count. Parts: ``gram``
    (A, m, m), ``moves`` (A, m, m or m + 1) with weight a, and ``rewards`` (A, m) with weight b.

    Clip. With y = (z, a d / sqrt 2, b r / sqrt 2), there is a sum of y y' over the steps with each
    action, and Y is all of them. A user's Y is scaled back to Frobenius norm ``clip``; what is
    released is part of it, with every product that is not on the diagonal counted twice, as in Y.

    Sensitivity. Y stays positive semi-definite when it is scaled back, so two users' are at no
    obtuse angle: |Y - Y'|^2 <= |Y|^2 + |Y'|^2 <= 2 clip^2, and clip^2 against zero. What is
    released is no longer than Y, and no farther apart. Users who stay where they are, each for an
    action of her own, with rewards at the middle, attain it: then d = 0 and r = 0.
    """

    spec: BoxSpec
    features: FeatureMap
    clip: float
    name = "embedding sums"

    def __post_init__(self) -> None:
        positive("clip", self.clip)

    @cached_property
    def layout(self) -> Layout:
        """``gram``, ``moves`` and ``rewards``."""
        A, m = self.spec.actions, self.features.size
        return Layout(
            (
                Part("gram", (A, m, m), symmetric=True),
                Part("moves", (A, m, self.targets), weight=MOVING),
                Part("rewards", (A, m), weight=PAYING),
            )
        )

    @property
    def targets(self) -> int:
        """Coordinates of d."""
        return self.features.size + int(self.spec.may_end)

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return ball(self.clip, relation, ACUTE)

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        m = self.features.size
        numbers = self.spec.actions * (2 * m + 1) ** 2 + self.spec.horizon * 4 * m
        return vectors_by_part(block, self.layout.size, numbers, self._sums)

    def _sums(self, block: Block) -> Floats:
        steps, A, m = steps_of(block, self.spec), self.spec.actions, self.features.size
        at = self.features(steps.states)
        low, high = self.spec.reward_range
        r = (2.0 * steps.rewards - low - high) / (high - low)
        a, b = MOVING / math.sqrt(2.0), PAYING / math.sqrt(2.0)
        here, there, valid = at[:, :-1], at[:, 1:], steps.valid
        over = steps.ended[..., np.newaxis]
        if self.spec.may_end:
            there = np.where(over, 0.0, there)
            moves = np.concatenate([there - here, over], axis=-1)
        else:
            moves, valid = there - here, valid & ~steps.ended
        y = np.concatenate([here, a * moves, b * r[..., np.newaxis]], axis=-1)
        Y = np.empty((len(y), A, y.shape[-1], y.shape[-1]))
        for action in range(A):
            own = y * ((steps.actions == action) & valid)[..., np.newaxis]
            Y[:, action] = own.swapaxes(1, 2) @ own
        length = np.sqrt((Y**2).sum(axis=(1, 2, 3)))
        good = np.isfinite(length)
        factor = np.where(good, self.clip / np.maximum(np.where(good, length, 1.0), self.clip), 0.0)
        Y = np.where(good[:, np.newaxis, np.newaxis, np.newaxis], Y, 0.0)
        Y *= factor[:, np.newaxis, np.newaxis, np.newaxis]
        sums = {
            "gram": Y[:, :, :m, :m],
            "moves": Y[:, :, :m, m:-1] / a,
            "rewards": Y[:, :, :m, -1] / b,
        }
        return self.layout.pack(sums, users=len(Y))
