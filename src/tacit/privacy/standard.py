"""Statistics that several algorithms share: clipped sums, one-hot counts, second moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sensitivity import ACUTE, ball
from tacit.privacy.statistic import Block, Bools, Floats, Layout, Part, Statistic
from tacit.privacy.validation import flag, positive, whole_number


@dataclass(frozen=True)
class ClippedSum(Statistic):
    """The sum of users' vectors, each scaled back to a ball of radius ``radius``.

    Reads ``values`` of shape (users, dimension).

    Sensitivity. Two points of the ball are at most 2 radius apart, and opposite points are; the
    zero vector is at most radius away. In the 1-norm a point of the ball has at most
    sqrt(dimension) radius (Cauchy-Schwarz, attained by equal coordinates), so twice that.
    """

    dimension: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimension", whole_number("dimension", self.dimension))
        object.__setattr__(self, "radius", positive("radius", self.radius))
        object.__setattr__(self, "name", "clipped sum")

    @cached_property
    def layout(self) -> Layout:
        """One vector, ``sum``."""
        return Layout((Part("sum", (self.dimension,)),))

    def l2(self, relation: Relation) -> float:
        """2 radius, or radius."""
        return ball(self.radius, relation)

    def l1(self, relation: Relation) -> float:
        """sqrt(dimension) times the 2-norm's."""
        return math.sqrt(self.dimension) * self.l2(relation)

    def vectors(self, block: Block) -> Floats:
        """Each user's vector, scaled back to the ball."""
        values = _matrix(block, "values", (self.dimension,))
        values = np.where(np.isfinite(values).all(axis=-1, keepdims=True), values, 0.0)
        # In two steps, so that neither the length overflows nor the factor vanishes.
        unit, length = _directions(values)
        return np.where(length <= self.radius, values, unit * self.radius)


@dataclass(frozen=True)
class OneHotCounts(Statistic):
    """At each of ``steps`` steps a user is in one of ``cells`` cells, with a value in [0, 1].

    Reads ``cells`` (users, steps) of integers and, if ``valued``, ``values`` (users, steps).
    Parts: ``counts`` (steps, cells), how many users were where, and ``sums``, their values.
    A cell outside 0..cells-1 or a value that is not finite drops that step; values are clipped.

    Sensitivity. At one step two users differ in at most two cells, by 1 each: 2 in the 1-norm and
    2 in the squared 2-norm, for counts and again for sums with values 1. Steps have separate
    coordinates, so both add over steps: L1 = L2^2 = 2 steps (4 steps if valued) for replace-one,
    half of it for zero-out. Attained by two users who are never in the same cell.
    """

    steps: int
    cells: int
    valued: bool = False
    nonnegative = True

    def __post_init__(self) -> None:
        for name in ("steps", "cells"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        object.__setattr__(self, "valued", flag("valued", self.valued))
        object.__setattr__(self, "name", "one-hot counts")

    @cached_property
    def layout(self) -> Layout:
        """``counts`` and, if valued, ``sums``."""
        names = ("counts", "sums") if self.valued else ("counts",)
        return Layout(tuple(Part(name, (self.steps, self.cells)) for name in names))

    def l2(self, relation: Relation) -> float:
        """The root of the 1-norm's."""
        return math.sqrt(self.l1(relation))

    def l1(self, relation: Relation) -> float:
        """2 per step and part (cells 1 and another are no two cells), or 1."""
        return ball(float(self.one_hots), relation, 2.0 if self.cells > 1 else 1.0)

    @property
    def one_hots(self) -> int:
        """One per step and part."""
        return self.steps * (2 if self.valued else 1)

    @property
    def fractional(self) -> Bools:
        """The sums of values, not the counts."""
        return np.repeat([False, True][: len(self.layout.parts)], self.steps * self.cells)

    def vectors(self, block: Block) -> Floats:
        """Dense one-hots, as 0, 1 or the value."""
        cells, values, valid = self._steps(block)
        users, step = np.nonzero(valid)
        dense = np.zeros((block.users, len(self.layout.parts), self.steps, self.cells))
        dense[users, 0, step, cells[valid]] = 1.0
        if self.valued:
            dense[users, 1, step, cells[valid]] = values[valid]
        return dense.reshape(block.users, self.layout.size)

    def aggregate(self, block: Block) -> Floats:
        """From ``counts`` and ``sums`` that are already summed."""
        return self.layout.pack({part.name: block[part.name] for part in self.layout.parts})

    def _steps(self, block: Block) -> tuple[NDArray[np.int64], Floats, NDArray[np.bool_]]:
        """Cells, clipped values, and which steps count."""
        raw = _matrix(block, "cells", (self.steps,))
        valid = (raw >= 0) & (raw < self.cells) & (raw == np.floor(raw))
        values = np.ones(raw.shape)
        if self.valued:
            values = _matrix(block, "values", (self.steps,))
            valid &= np.isfinite(values)
            values = np.clip(np.where(valid, values, 0.0), 0.0, 1.0)
        return np.where(valid, raw, 0.0).astype(np.int64), values, valid


@dataclass(frozen=True)
class GramCross(Statistic):
    """Second moments: G = sum p p^T and c = sum p q^T over a user's steps, released jointly.

    Reads ``p`` (users, steps, rows) and ``q`` (users, steps, columns). Parts: ``gram``, symmetric,
    and ``cross``, with weight w. Least squares of q on p needs no more. Both matrices of a user are
    multiplied by min(1, tau / sum_h (|p_h|^2 + w^2/2 |q_h|^2)): one common factor keeps
    q = Theta^T p exact. A step with a value that is not finite is dropped.

    Sensitivity. Put y = [p; (w / sqrt 2) q] and Y = sum y y^T over the steps: positive semidefinite
    with trace at most tau. With Y* for the neighbour, the squared distance is a part of
    |Y - Y*|_F^2 = |Y|^2 + |Y*|^2 - 2 <Y, Y*> <= 2 tau^2, because <Y, Y*> >= 0: sqrt(2) tau, and
    tau against zero, attained with q = 0.
    """

    rows: int
    columns: int
    steps: int
    weight: float = 1.0
    tau: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "steps"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        for name in ("weight", "tau"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "name", "gram and cross moments")

    @cached_property
    def layout(self) -> Layout:
        """``gram`` and ``cross``."""
        gram = Part("gram", (self.rows, self.rows), symmetric=True)
        return Layout((gram, Part("cross", (self.rows, self.columns), weight=self.weight)))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return ball(self.tau, relation, ACUTE)

    def vectors(self, block: Block) -> Floats:
        """Clipped outer products."""
        p = _matrix(block, "p", (self.steps, self.rows))
        q = _matrix(block, "q", (self.steps, self.columns))
        finite = np.isfinite(np.concatenate([p, q], axis=-1)).all(axis=-1, keepdims=True)
        p, q = np.where(finite, p, 0.0), np.where(finite, q, 0.0)
        # Through the joint norm, so that huge values neither overflow nor slip through.
        joint = np.concatenate([p, (self.weight / math.sqrt(2.0)) * q], axis=-1)
        flat = joint.reshape(block.users, self.steps * (self.rows + self.columns))
        factor = _clip_factor(flat, math.sqrt(self.tau))[:, np.newaxis, :]
        p, q = p * factor, q * factor
        moments = {
            "gram": np.einsum("uhi,uhj->uij", p, p),
            "cross": np.einsum("uhi,uhj->uij", p, q),
        }
        return self.layout.pack(moments, users=block.users)


def _matrix(block: Block, name: str, shape: tuple[int, ...]) -> Floats:
    """A user array as floats; its shape is public and may be refused."""
    array = np.asarray(block[name], dtype=np.float64)
    if array.shape != (block.users, *shape):
        raise InvalidArgument(f"{name!r} must have shape (users, {shape}), got {array.shape}")
    return array


def _clip_factor(vectors: Floats, bound: float) -> Floats:
    """min(1, bound / |v|) along the last axis, kept; zero where v is not finite."""
    _, length = _directions(vectors)
    return np.where(np.isfinite(length), np.minimum(1.0, bound / np.maximum(length, bound)), 0.0)


def _directions(vectors: Floats) -> tuple[Floats, Floats]:
    """Unit vectors and lengths; the length may be infinite, the direction is right even then."""
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    safe = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    scaled = vectors / safe
    relative = np.linalg.norm(scaled, axis=-1, keepdims=True)
    return scaled / np.where(relative > 0, relative, 1.0), safe * relative
