"""Feature maps: a state of R^D as a vector of m numbers, on which values are linear.

A map is public, and a frozen value. States outside of its box are clipped first, and a state that
is not finite has the zero vector as its features: a user's values never raise.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints
from tacit.privacy.validation import fitting, instance_of, positive, whole_number

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

_MOST_FEATURES = 1 << 20  # features of a state; more are a mistake in a degree or a shape
_MOST_BY_DEFAULT = 400  # a default polynomial is of degree two up to so many features


def set_corners(box: Any, *, finite: bool) -> None:
    """Checks and sets ``lows`` and ``highs``, which are finite, or may be infinite."""
    given = ((name, getattr(box, name)) for name in ("lows", "highs"))
    lows, highs = (vector(name, values, finite=finite) for name, values in given)
    sizes = [high - low for low, high in zip(lows, highs, strict=False)]
    largest = 1e308 if finite else math.inf
    if len(lows) != len(highs) or not all(0.0 < size <= largest for size in sizes):
        raise InvalidArgument(
            f"lows must be less than highs, of the same length, got {box.lows!r}, {box.highs!r}"
        )
    object.__setattr__(box, "lows", lows)
    object.__setattr__(box, "highs", highs)


def vector(name: str, values: Any, *, finite: bool = True) -> tuple[float, ...]:
    """Numbers, finite ones unless others will do."""
    array = _numbers(name, values)
    good = np.isfinite(array) if finite else ~np.isnan(array)
    if array.ndim != 1 or not array.size or not good.all():
        kind = "finite numbers" if finite else "numbers"
        raise InvalidArgument(f"{name} must be a sequence of {kind}, got {values!r}")
    return tuple(array.tolist())


def finite_array(name: str, values: Any, *shape: int | None) -> Floats:
    """A read-only copy of finite public numbers of a shape; ``None`` stands for any size."""
    array = _numbers(name, values)
    alike = len(shape) == array.ndim and all(
        n in (None, m) for n, m in zip(shape, array.shape, strict=True)
    )
    if not alike or not array.size or not np.isfinite(array).all():
        raise InvalidArgument(f"{name} must be finite, of shape {shape}, got {array.shape}")
    array.setflags(write=False)
    return array


def _numbers(name: str, values: Any) -> Floats:
    fitting(name, values)
    try:
        # In one order: how products are rounded depends on it, and a save keeps one only.
        return np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{name} must be an array of numbers") from None


def check_count(name: str, count: int) -> None:
    """Refuses more features than can be meant."""
    if count > _MOST_FEATURES:
        raise InvalidArgument(f"{name} makes {count:,} features, more than {_MOST_FEATURES:,}")


class FeatureMap(ABC):
    """A public map from states to vectors; states that are not finite have zeros for features."""

    published_as: ClassVar[str | None] = None  # kind in published files; ``None`` for code

    if TYPE_CHECKING:  # a property, or a field

        @property
        def size(self) -> int:
            """How many features there are, m."""

    @property
    @abstractmethod
    def dimension(self) -> int | None:
        """How many coordinates a state has, D; ``None`` if the map takes any number."""

    @abstractmethod
    def _evaluate(self, states: Floats) -> Floats:
        """The features, (n, m), of finite states, (n, D)."""

    def __call__(self, states: ArrayLike) -> Floats:
        """The features, (..., m), of states, (..., D)."""
        points, dimension = np.asarray(states, dtype=np.float64), self.dimension
        if points.ndim == 0 or dimension not in (None, points.shape[-1]):
            raise InvalidArgument(f"states must have {dimension or 'the'} coordinates as last axis")
        rows = points.reshape(-1, points.shape[-1])
        good = np.isfinite(rows).all(axis=1)
        # None may be left: a function need not take an empty array.
        if len(rows) and good.all():
            features = self._evaluate(rows)
        else:
            features = np.zeros((len(rows), self.size))
            if good.any():
                features[good] = self._evaluate(rows[good])
        return features.reshape(*points.shape[:-1], self.size)

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Its fields as arrays, as published files have them."""
        return {f.name: np.array(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class BoxMap(FeatureMap):
    """A map on a box; states outside are clipped to it."""

    lows: tuple[float, ...]  # the lower corner of the box
    highs: tuple[float, ...]  # its upper corner

    def __post_init__(self) -> None:
        set_corners(self, finite=True)

    @property
    def dimension(self) -> int:
        """How many coordinates a state has."""
        return len(self.lows)


@dataclass(frozen=True)
class Grid(BoxMap):
    """Multilinear interpolation on a regular grid of points that includes the corners of a box.

    The features of a state are the weights of the 2^D points around it: non-negative, with sum 1.
    Weights of a value function are its values at the points.

    >>> Grid((0.0,), (1.0,), (3,))([[0.5], [0.75], [9.0]]).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    """

    published_as: ClassVar[str] = "grid"
    shape: tuple[int, ...]  # how many points there are along each coordinate, at least 2

    def __post_init__(self) -> None:
        super().__post_init__()
        instance_of("shape", self.shape, (tuple, list, np.ndarray))
        shape = tuple(whole_number("shape", n, least=2) for n in self.shape)
        if len(shape) != len(self.lows):
            raise InvalidArgument(f"shape must be as long as lows, got {self.shape!r}")
        check_count("shape", math.prod(shape))
        object.__setattr__(self, "shape", shape)

    @cached_property
    def size(self) -> int:
        """How many points the grid has."""
        return math.prod(self.shape)

    @property
    def points(self) -> Floats:
        """The points, (m, D), in the order of the features: the last coordinate runs fastest."""
        axes = list(map(np.linspace, self.lows, self.highs, self.shape))
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))

    def for_loops(self) -> tuple[Floats, Ints]:
        """For compiled loops: (3, D), the box and points per unit; (D, 2), shape and strides."""
        strides = [math.prod(self.shape[i + 1 :]) for i in range(self.dimension)]
        table = np.array([self.shape, strides], dtype=np.int64).T.copy()
        scales = (table[:, 0] - 1) / (np.array(self.highs) - np.array(self.lows))
        return np.array([self.lows, self.highs, scales]), table

    @cached_property
    def corners(self) -> Ints:
        """How far the 2^D points around a state are from its lower corner, in points."""
        found = [0]
        for stride in self.for_loops()[1][:, 1].tolist():
            found += [c + stride for c in found]
        return np.array(found, dtype=np.int64)

    def _evaluate(self, states: Floats) -> Floats:
        weights, rows = np.ones((len(states), 1)), np.arange(len(states))
        for i, (low, high, n) in enumerate(zip(self.lows, self.highs, self.shape, strict=True)):
            position = (np.clip(states[:, i], low, high) - low) * ((n - 1) / (high - low))
            # Rounding must not lead past the last point.
            cell = np.minimum(position.astype(np.int64), n - 2)
            part = np.minimum(position - cell, 1.0)
            along = np.zeros((len(states), n))
            along[rows, cell], along[rows, cell + 1] = 1.0 - part, part
            weights = (weights[:, :, np.newaxis] * along[:, np.newaxis, :]).reshape(len(states), -1)
        return weights


@dataclass(frozen=True)
class Polynomial(FeatureMap):
    """All monomials up to a degree, of coordinates that are scaled and then clipped.

    With z_i = s_i / scales_i, clipped to [-clip, clip], the features are the products of up to
    ``degree`` of them: first 1, then z_1 to z_D, then z_1 z_1, z_1 z_2 and so on.

    >>> Polynomial(scales=(1.0, 10.0), clip=1.5, degree=2)([0.5, 20.0]).tolist()
    [1.0, 0.5, 1.5, 0.25, 0.75, 2.25]
    """

    published_as: ClassVar[str] = "polynomial"
    scales: tuple[float, ...]  # what each coordinate is divided by, > 0
    clip: float  # the largest |z_i|, > 0
    degree: int  # the largest number of factors, at least 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", vector("scales", self.scales))
        if any(scale <= 0.0 for scale in self.scales):
            raise InvalidArgument(f"scales must be > 0, got {self.scales!r}")
        object.__setattr__(self, "clip", positive("clip", self.clip))
        object.__setattr__(self, "degree", whole_number("degree", self.degree, least=0))
        check_count("degree", self.size)
        if 2 * self.degree * math.log2(max(self.clip, 1.0)) > 1000:
            raise InvalidArgument(f"clip is {self.clip!r}, whose powers are not finite")

    @cached_property
    def size(self) -> int:
        """How many monomials there are."""
        return math.comb(len(self.scales) + self.degree, self.degree)

    @property
    def dimension(self) -> int:
        """How many coordinates a state has."""
        return len(self.scales)

    @cached_property
    def monomials(self) -> tuple[tuple[int, ...], ...]:
        """The coordinates that each feature is the product of, in the order of the features."""
        several = itertools.combinations_with_replacement
        degrees = range(self.degree + 1)
        return tuple(found for k in degrees for found in several(range(self.dimension), k))

    def _evaluate(self, states: Floats) -> Floats:
        with np.errstate(over="ignore"):
            z = np.clip(states / np.array(self.scales), -self.clip, self.clip)
        features, index = np.ones((len(states), self.size)), dict[tuple[int, ...], int]()
        for k, factors in enumerate(self.monomials):
            index[factors] = k
            if factors:
                features[:, k] = features[:, index[factors[:-1]]] * z[:, factors[-1]]
        return features


def default_polynomial(spec: BoxSpec) -> Polynomial:
    """Monomials of coordinates over the largest that they can be, of degree two if not too many."""
    scales = tuple(max(abs(a), abs(b)) for a, b in zip(spec.lows, spec.highs, strict=True))
    degree = 2 if math.comb(len(scales) + 2, 2) <= _MOST_BY_DEFAULT else 1
    return Polynomial(scales, 1.0, degree)
