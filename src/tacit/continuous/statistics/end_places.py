"""What is asked of users about where episodes end, coordinate by coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.statistics.move_moments import angles_of
from tacit.continuous.statistics.steps import parts_of, steps_of
from tacit.privacy.bounds.balls import ACUTE, ball
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools, Floats, Ints, Layout, Part, Statistic

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

BINS = 32
"""Places of a coordinate that are told apart."""

GOING = 0.5
"""What going on weighs, beside an end."""


@dataclass(frozen=True, eq=False)
class EndPlaces(Statistic):
    """At which places of every coordinate episodes end, and at which they go on.

    The box from ``lows`` to ``highs`` is cut into 32 bins along each coordinate that is no angle,
    c of them; states outside count for the outermost. Part ``ends`` (c, 32): a 1 at the bin of the
    state at which her episode ended, in every coordinate. Part ``going`` (c, 32): the share of her
    other valid steps that led to a bin, which weighs a half. Part ``lengths``: a 1 at the power of
    two below the length of her episode, if it ended, from 1 to the horizon.

    Sensitivity. A user's entries are >= 0, so that two of them are at no obtuse angle, and their
    squares, as weighed, add up to c for ends, at most c / 4 for shares, and 1: two users are at
    most sqrt(2) times sqrt(1.25 c + 1) apart, as users are who stay at different places, end at
    others, and after different times. Zero is sqrt(1.25 c + 1) away.
    """

    spec: BoxSpec
    lows: Floats  # (D,), finite
    highs: Floats
    nonnegative = True

    def __post_init__(self) -> None:
        for name in ("lows", "highs"):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != (self.spec.dimension,) or not np.isfinite(array).all():
                raise InvalidArgument(
                    f"{name} must be {self.spec.dimension} finite numbers, got {array}"
                )
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        with np.errstate(over="ignore"):
            sizes = self.highs - self.lows
        if not ((sizes > 0.0) & np.isfinite(sizes)).all():
            raise InvalidArgument(
                f"lows must be below highs, by less than infinity, got {self.lows} and {self.highs}"
            )
        object.__setattr__(self, "name", "places of ends")

    @cached_property
    def coordinates(self) -> Ints:
        """Those that are no angles, (c,)."""
        return np.flatnonzero(~angles_of(self.spec))

    @cached_property
    def layout(self) -> Layout:
        """``ends``, ``going``, ``lengths``."""
        c, powers = len(self.coordinates), self.spec.horizon.bit_length()
        going = Part("going", (c, BINS), weight=GOING)
        return Layout((Part("ends", (c, BINS)), going, Part("lengths", (powers,))))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return ball(math.sqrt((1.0 + GOING**2) * len(self.coordinates) + 1.0), relation, ACUTE)

    def vectors(self, block: Block) -> Floats:
        """Histograms of each user."""
        found = np.zeros((block.users, self.layout.size))
        low, size = (part[self.coordinates] for part in (self.lows, self.highs - self.lows))
        powers = self.spec.horizon.bit_length()
        numbers = self.spec.horizon * (self.spec.dimension + 4 * len(low)) + 2 * self.layout.size
        for rows, part in parts_of(block, numbers):
            steps = steps_of(part, self.spec)
            with np.errstate(all="ignore"):
                along = (steps.states[:, 1:, self.coordinates] - low) / size * BINS
            bins = np.clip(along, 0, BINS - 1).astype(np.int64)
            others = steps.valid & ~steps.ended
            shares = 1.0 / np.maximum(others.sum(axis=1), 1)
            users, at = np.nonzero(steps.ended)
            lengths = np.zeros((part.users, powers))
            lengths[users, np.floor(np.log2(at + 1.0)).astype(np.int64)] = 1.0
            parts = {
                "ends": _counts(steps.ended, bins),
                "going": _counts(others, bins) * shares[:, np.newaxis, np.newaxis],
                "lengths": lengths,
            }
            found[rows] = self.layout.pack(parts, users=part.users)
        return found


def _counts(chosen: Bools, bins: Ints) -> Floats:
    """How often each user's (row's) chosen steps led to each bin of a coordinate, (n, c, 32)."""
    n, _, c = bins.shape
    users, at = np.nonzero(chosen)
    cells = (users[:, np.newaxis] * c + np.arange(c)) * BINS + bins[users, at]
    counts = np.bincount(cells.ravel(), minlength=n * c * BINS)
    return counts.reshape(n, c, BINS).astype(np.float64)
