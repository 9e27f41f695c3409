"""What one user did, as she could report it herself: her rewards, or her whole trajectory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.steps import REWARDS_ONLY, shaped, steps_of
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


def _half(relation: Relation) -> float:
    return {Relation.REPLACE_ONE: 1.0, Relation.ZERO_OUT: 0.5}[checked_relation(relation)]


def _unit(values: Floats, low: float | Floats, high: float | Floats) -> Floats:
    """From the range to [-1/2, 1/2]; the middle where a value is not finite."""
    scaled: Floats = (np.clip(values, low, high) - low) / (high - low) - 0.5
    return np.where(np.isfinite(values), scaled, 0.0)
