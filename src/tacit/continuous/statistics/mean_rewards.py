"""What users who are served earn: one number, for all to see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.steps import steps_of
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic


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
