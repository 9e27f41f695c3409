"""Kernels: which functions a mechanism publishes, and how long it says they are.

A kernel K is the covariance of the noise path and, at the same time, the inner product of the
functions that the path hides (:mod:`tacit.privacy.functions.functional`): K(x, .) has squared norm
K(x, x). Choosing a rough kernel (:class:`OU`) means rough noise and many admissible functions; a
smooth one (:class:`RBF`, :class:`BandLimited`) means smooth noise and few.

A point that is not finite is mapped to the zero function: its row of K is zero. Nothing overflows
at huge points.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.arguments import positive
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Features = Callable[[Floats], Floats]

# exp(-r) is exactly zero well before this, and (1 + r + r^2) exp(-r) is not yet inf times zero.
_FAR = 1000.0
# sin(r) / r is smaller than rounding errors from here on.
_FAR_WAVES = 1e17


class Kernel(ABC):
    """A positive semidefinite function of two points."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Of the points."""

    @property
    def bound(self) -> float:
        """The largest sqrt(K(x, x)): how long K(x, .) can be."""
        return 1.0

    @abstractmethod
    def _values(self, x: Floats, y: Floats) -> Floats:
        """K at finite points (n, D) and (m, D), as (n, m)."""

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """K(x_i, y_j) of points (n, D) and (m, D), as (n, m); on a line (n,) will do."""
        x, y = self.checked(x), self.checked(y)
        here, there = finite_rows(x), finite_rows(y)
        with np.errstate(all="ignore"):
            values = self._values(np.nan_to_num(x), np.nan_to_num(y))
        if here.all() and there.all():
            return values
        return np.where(here[:, np.newaxis] & there, values, 0.0)

    def diagonal(self, x: ArrayLike) -> Floats:
        """K(x_i, x_i), as (n,)."""
        return np.where(finite_rows(self.checked(x)), 1.0, 0.0)

    def checked(self, x: ArrayLike) -> Floats:
        """Points as an array (n, D); their shape is public and may be refused."""
        points = np.asarray(x, dtype=np.float64)
        if points.ndim == 1 and self.dimension == 1:
            points = points[:, np.newaxis]
        if points.ndim != 2 or points.shape[1] != self.dimension:
            raise InvalidArgument(
                f"points must have shape (n, {self.dimension}), got {points.shape}"
            )
        return points


@dataclass(frozen=True)
class OU(Kernel):
    """exp(-rate |x - y|) on a line: paths are those of an Ornstein-Uhlenbeck process.

    Its functions on [low, high] are the Sobolev space H1, with the norm
    |f|^2 = (f(low)^2 + f(high)^2) / 2 + (1 / (2 rate)) int (f'^2 + rate^2 f^2).

    >>> OU(2.0)([0.0], [0.0, 0.5]).round(3).tolist()
    [[1.0, 0.368]]
    """

    rate: float

    def __post_init__(self) -> None:
        positive("rate", self.rate)

    @property
    def dimension(self) -> int:
        """A line."""
        return 1

    def _values(self, x: Floats, y: Floats) -> Floats:
        distances: Floats = np.abs(x - y.T)
        return np.exp(-self.rate * distances)


@dataclass(frozen=True)
class ProductOU(Kernel):
    """exp(-sum_i rate_i |x_i - y_i|): the product of :class:`OU` kernels, one per coordinate."""

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", _positives("rates", self.rates))

    @property
    def dimension(self) -> int:
        """One per rate."""
        return len(self.rates)

    def _values(self, x: Floats, y: Floats) -> Floats:
        distance = np.zeros((len(x), len(y)))
        for i, rate in enumerate(self.rates):
            distance += rate * np.abs(x[:, i, np.newaxis] - y[:, i])
        return np.exp(-distance)


@dataclass(frozen=True)
class _Radial(Kernel):
    """A function of |x - y| / length."""

    length: float
    dimension: int = 1

    def __post_init__(self) -> None:
        positive("length", self.length)
        if self.dimension < 1:
            raise InvalidArgument(f"dimension must be >= 1, got {self.dimension!r}")

    def _distances(self, x: Floats, y: Floats) -> Floats:
        squares = np.zeros((len(x), len(y)))
        for i in range(self.dimension):
            squares += ((x[:, i, np.newaxis] - y[:, i]) / self.length) ** 2
        return np.minimum(np.sqrt(squares), _FAR)


@dataclass(frozen=True)
class RBF(_Radial):
    """exp(-|x - y|^2 / (2 length^2)): infinitely smooth paths."""

    def _values(self, x: Floats, y: Floats) -> Floats:
        return np.exp(-0.5 * self._distances(x, y) ** 2)


@dataclass(frozen=True)
class Matern32(_Radial):
    """(1 + r) exp(-r), r = sqrt(3) |x - y| / length: paths with one derivative."""

    def _values(self, x: Floats, y: Floats) -> Floats:
        r = math.sqrt(3.0) * self._distances(x, y)
        return (1.0 + r) * np.exp(-r)


@dataclass(frozen=True)
class Matern52(_Radial):
    """(1 + r + r^2 / 3) exp(-r), r = sqrt(5) |x - y| / length: paths with two derivatives."""

    def _values(self, x: Floats, y: Floats) -> Floats:
        r = math.sqrt(5.0) * self._distances(x, y)
        return (1.0 + r + r * r / 3.0) * np.exp(-r)


@dataclass(frozen=True)
class BandLimited(Kernel):
    """The product over coordinates of sin(r) / r, r = band_i (x_i - y_i).

    The functions without frequencies above the bands (Paley-Wiener space), with the norm
    |f|^2 = prod(band_i / pi) int f^2 over the whole space. On a bounded box about
    prod(1 + band_i width_i / pi) coordinates describe them up to rounding, however fine the grid:
    :class:`tacit.privacy.functions.functional.GridFunctions` then publishes no more than those.
    """

    bands: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "bands", _positives("bands", self.bands))

    @property
    def dimension(self) -> int:
        """One per band."""
        return len(self.bands)

    def _values(self, x: Floats, y: Floats) -> Floats:
        values = np.ones((len(x), len(y)))
        for i, band in enumerate(self.bands):
            r = np.minimum(np.abs(band * (x[:, i, np.newaxis] - y[:, i])), _FAR_WAVES)
            values *= np.sinc(r / math.pi)
        return values


@dataclass(frozen=True)
class FeatureKernel(Kernel):
    """phi(x)' phi(y) of finitely many features: functions are w' phi, with norm |w|.

    ``features`` maps points (n, D) to (n, m): a :class:`RegularGrid`, a :class:`FourierFeatures`,
    or any function of yours. Those longer than ``bound`` are scaled back to it, so that it is no
    assumption; those that are not finite count zero.
    """

    features: Features
    dimension: int = 1
    bound: float = 1.0

    def __post_init__(self) -> None:
        positive("bound", self.bound)
        if self.dimension < 1:
            raise InvalidArgument(f"dimension must be >= 1, got {self.dimension!r}")

    def _values(self, x: Floats, y: Floats) -> Floats:
        return self.phi(x) @ self.phi(y).T

    def diagonal(self, x: ArrayLike) -> Floats:
        """|phi(x)|^2."""
        points = self.checked(x)
        finite = finite_rows(points)
        squares: Floats = (self.phi(np.nan_to_num(points)) ** 2).sum(axis=1)
        return np.where(finite, squares, 0.0)

    def phi(self, x: Floats) -> Floats:
        """The bounded features of finite points, (n, m)."""
        with np.errstate(all="ignore"):
            raw = np.asarray(self.features(x), dtype=np.float64)
            raw = np.where(np.isfinite(raw).all(axis=1, keepdims=True), raw, 0.0)
            # In two steps: a length may overflow where the entries do not.
            largest = np.maximum(np.abs(raw).max(axis=1, keepdims=True, initial=0.0), 1e-300)
            scaled = raw / largest
            relative = np.linalg.norm(scaled, axis=1, keepdims=True)
            longest = self.bound / np.maximum(relative, 1e-300)
        return np.where(largest <= longest, raw, scaled * np.minimum(longest, largest))


@dataclass(frozen=True)
class RegularGrid:
    """Evenly spaced points of a box, and the multilinear weights of any point on them.

    As a feature map it gives the weights, non-negative with sum 1. Points outside the box are
    moved to its surface; points that are not finite have no weight anywhere.

    >>> grid = RegularGrid((0.0,), (1.0,), (3,))
    >>> grid.points.ravel().tolist(), grid(np.array([[0.75]])).tolist()
    ([0.0, 0.5, 1.0], [[0.0, 0.5, 0.5]])
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.lows) == len(self.highs) == len(self.shape) > 0:
            raise InvalidArgument("lows, highs and shape must have the same length, at least 1")
        _check_box(self.lows, self.highs)
        if min(self.shape) < 2:
            raise InvalidArgument(f"shape must be >= 2 along every axis, got {self.shape}")

    @property
    def points(self) -> Floats:
        """The grid's points, (G, D), the last coordinate moving fastest."""
        axes = [np.linspace(w, h, n) for (w, h), n in zip(self._ends(), self.shape, strict=True)]
        return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)

    def multilinear(self, x: Floats) -> tuple[Ints, Floats]:
        """The 2^D surrounding points of each of x (n, D), and their weights, both (n, 2^D)."""
        x = np.asarray(x, dtype=np.float64)
        finite = finite_rows(x)
        indices, weights = np.zeros((len(x), 1), dtype=np.int64), np.ones((len(x), 1))
        for axis, ((low, high), n) in enumerate(zip(self._ends(), self.shape, strict=True)):
            place = np.clip(np.where(finite, x[:, axis], low), low, high) - low
            place = place / (high - low) * (n - 1)
            left = np.minimum(place.astype(np.int64), n - 2)
            part = place - left
            corners = indices[:, :, np.newaxis] * n + np.stack([left, left + 1], 1)[:, np.newaxis]
            shares = weights[:, :, np.newaxis] * np.stack([1.0 - part, part], 1)[:, np.newaxis]
            indices, weights = corners.reshape(len(x), -1), shares.reshape(len(x), -1)
        return indices, np.where(finite[:, np.newaxis], weights, 0.0)

    def __call__(self, x: Floats) -> Floats:
        """The weights, dense: (n, G)."""
        indices, weights = self.multilinear(x)
        dense = np.zeros((len(indices), math.prod(self.shape)))
        dense[np.arange(len(indices))[:, np.newaxis], indices] = weights
        return dense

    def _ends(self) -> list[tuple[float, float]]:
        return list(zip(self.lows, self.highs, strict=True))


@dataclass(frozen=True)
class FourierFeatures:
    """The products of cos(pi k_i z_i), k_i = 0..order, over a box scaled to 0 <= z_i <= 1.

    Divided by the root of their number, so no feature vector is longer than 1; at a corner of the
    box it is exactly that long. Points outside the box are moved to its surface.
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]
    order: int

    def __post_init__(self) -> None:
        _check_box(self.lows, self.highs)
        if self.order < 0:
            raise InvalidArgument(f"order must be >= 0, got {self.order!r}")

    def __call__(self, x: Floats) -> Floats:
        """The features of points (n, D): (n, (order + 1)^D)."""
        features = np.ones((len(x), 1))
        for axis, (low, high) in enumerate(zip(self.lows, self.highs, strict=True)):
            z = (np.clip(x[:, axis], low, high) - low) / (high - low)
            waves = np.cos(math.pi * z[:, np.newaxis] * np.arange(self.order + 1))
            features = (features[:, :, np.newaxis] * waves[:, np.newaxis]).reshape(len(x), -1)
        return features / math.sqrt(features.shape[1])


def finite_rows(points: Floats) -> Bools:
    """Which points of (n, D) are finite, (n,)."""
    return np.asarray(np.isfinite(points).all(axis=1), dtype=np.bool_)


def _check_box(lows: Sequence[float], highs: Sequence[float]) -> None:
    if not all(math.isfinite(h - w) and w < h for w, h in zip(lows, highs, strict=True)):
        raise InvalidArgument(f"lows must be below highs, got {lows} and {highs}")


def _positives(name: str, values: Sequence[float]) -> tuple[float, ...]:
    if not values:
        raise InvalidArgument(f"{name} must not be empty")
    return tuple(positive(name, float(value)) for value in values)
