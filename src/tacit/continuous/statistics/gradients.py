"""Gradients of a network's loss, one for each user; and episodes that nobody protects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.deep_training import TOGETHER, Units, gradients_of, returns_of
from tacit.continuous.network_policy import parameters
from tacit.continuous.statistics.steps import steps_of
from tacit.privacy.arguments import positive
from tacit.privacy.bounds.balls import ball
from tacit.privacy.budget import Relation
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

SHORT = 0.1
"""Weight of what tells whether gradients were scaled back."""

NOTHING = "nothing: there is no privacy"
"""What is protected without privacy."""


@dataclass(frozen=True, eq=False)
class EpisodeGradients(Statistic):
    """The gradient of the loss over a user's episode, in units of its clip, and whether it fits.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. The loss is the mean over valid
    steps of the Huber loss of q(s, a) against what was earned in the next ``ahead`` steps and
    q'(s', argmax q(s', .)), discounted, after them, where q' is the network ``target``. Both
    networks and the units (:meth:`~tacit.continuous.deep_training.Units.of_spec`) are public.

    Parts are ``gradient``, divided by ``radius`` and scaled back to the unit ball, and ``short``: 1
    if it is within, -1 if it was scaled back, 0 for a user without a step.

    Sensitivity. Two points of the unit ball are at most 2 apart and two signs are too, so with
    ``short`` weighing s = .1 two users are at most 2 sqrt(1 + s^2) apart: replace-one. Nobody is
    longer than sqrt(1 + s^2): zero-out. It is attained in the limit, by opposite gradients of which
    one is just within the clip and the other just beyond.
    """

    spec: BoxSpec
    sizes: tuple[int, ...]  # units by layer
    theta: Floats  # the network
    target: Floats  # the network that makes the targets
    discount: float
    ahead: int  # steps whose rewards are counted as they came
    radius: float  # the largest norm of a user's gradient

    def __post_init__(self) -> None:
        positive("radius", self.radius)
        object.__setattr__(self, "name", "users' gradients")

    @cached_property
    def layout(self) -> Layout:
        """``gradient``, flat, and ``short``."""
        return Layout((Part("gradient", (parameters(self.sizes),)), Part("short", weight=SHORT)))

    def l2(self, relation: Relation) -> float:
        """2 sqrt(1 + s^2), or half of it."""
        return ball(math.hypot(1.0, SHORT), relation)

    def vectors(self, block: Block) -> Floats:
        """One gradient for each user."""
        steps = steps_of(block, self.spec, inside=True)
        units, n = Units.of_spec(self.spec, self.discount), block.users
        earned, later, factor = returns_of(steps, units, self.ahead)
        counted = steps.valid.sum(axis=1, keepdims=True)
        # Few different shapes, since each is compiled.
        room = max(TOGETHER, 1 << max(n - 1, 0).bit_length())

        def padded(array: NDArray[Any], dtype: type) -> NDArray[Any]:
            larger = np.zeros((room, *array.shape[1:]), dtype=dtype)
            larger[:n] = array
            return larger

        gradients = gradients_of(self.sizes)(
            self.theta.astype(np.float32),
            self.target.astype(np.float32),
            padded(units.seen(steps.states), np.float32),
            padded(steps.actions, np.int32),
            padded(earned, np.float32),
            padded(later, np.int32),
            padded(factor, np.float32),
            padded(steps.valid / np.maximum(counted, 1), np.float32),
        )
        packed = np.empty((n, self.layout.size))
        vectors = packed[:, :-1]
        vectors[:] = np.asarray(gradients)[:n]
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)) / self.radius
        good = np.isfinite(lengths) & (counted[:, 0] > 0)
        # The clip: nobody is longer than one.
        vectors /= self.radius * np.maximum(lengths, 1.0)[:, np.newaxis]
        packed[:, -1] = SHORT * np.where(lengths <= 1.0, 1.0, -1.0)
        packed[~good] = 0.0
        return packed


@dataclass(frozen=True, eq=False)
class OpenEpisodes(Statistic):
    """Whether a user has a valid step. It protects nothing, so that all her columns are public.

    Only a curator without privacy takes it: any other guarantees something, and refuses a statistic
    that protects anything else.

    Sensitivity. A user counts 0 or 1.
    """

    spec: BoxSpec

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "open episodes")

    @property
    def layout(self) -> Layout:
        """``users``."""
        return Layout((Part("users"),))

    @property
    def protects(self) -> str:
        """Nothing."""
        return NOTHING

    @property
    def private_columns(self) -> frozenset[str]:
        """None of them."""
        return frozenset()

    def l2(self, relation: Relation) -> float:
        """One."""
        return 1.0

    def vectors(self, block: Block) -> Floats:
        """1 for a user with a valid step."""
        came = steps_of(block, self.spec).valid.any(axis=1, keepdims=True)
        return np.asarray(came, dtype=np.float64)
