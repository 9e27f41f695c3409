"""Kernels: which functions a mechanism publishes, and how long it says they are.

A kernel K is the covariance of the noise path and, at the same time, the inner product of the
functions that the path hides (:mod:`tacit.privacy.functions.functional`): K(x, .) has squared norm
K(x, x). Choosing a rough kernel (:class:`OU`) means rough noise and many admissible functions; a
smooth one (:class:`RBF`, :class:`BandLimited`) means smooth noise and few.

A point that is not finite is mapped to the zero function: its row of K is zero. Nothing overflows
at huge points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from tacit.privacy.arguments import positive
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Bools, Floats

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


@dataclass(frozen=True, eq=False, repr=False)
class GridFunctions:
    """Functions on a public grid, in the coordinates in which their norm is Euclidean.

    With K_XX = L L', L of shape (G, size), a function sum_i w_i K(X_i, .) has the coordinates
    L' w: their squared length is w' L L' w, the function's squared norm, and its values on the grid
    are L (L' w). Noise sigma xi with independent normals xi in the coordinates is sigma L xi on the
    grid, with covariance sigma^2 K_XX: exactly the Gaussian-process path, seen on the grid. Users'
    points are projected to the grid before anything is clipped.

    L is the Cholesky factor where K_XX is safely invertible. Elsewhere (smooth kernels, fine grids)
    it is V sqrt(lambda) of the eigenvectors whose eigenvalues exceed rounding errors, and
    ``size`` is smaller than G. Sensitivity does not hang on how good that is: vectors are
    clipped, and noise is added, in the coordinates themselves. Rounding changes a little which
    function is published, and never the noise that it gets. So no jitter is needed, and none is
    added.

    Attributes:
        kernel: K.
        points: X, (G, D), all finite and public.
        root: L.
    """

    kernel: Kernel
    points: Floats
    root: Floats = field(init=False)

    def __post_init__(self) -> None:
        points = np.array(self.kernel.checked(self.points), copy=True)
        if not len(points) or not np.isfinite(points).all():
            raise InvalidArgument("points must be finite, and at least one")
        gram = self.kernel(points, points)
        if not np.isfinite(gram).all() or not (np.diag(gram) > 0).any():
            raise InvalidArgument("the kernel must be finite on the grid, and positive somewhere")
        root = _root(gram)
        points.setflags(write=False)
        root.setflags(write=False)
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "root", root)

    @property
    def size(self) -> int:
        """How many coordinates a function has; at most the number of points."""
        return int(self.root.shape[1])

    def of_weights(self, weights: ArrayLike) -> Floats:
        """The coordinates L' w of sum_i w_i K(X_i, .), (..., G) to (..., size); never unstable."""
        return np.asarray(np.asarray(weights, dtype=np.float64) @ self.root)

    def values(self, coordinates: ArrayLike) -> Floats:
        """The values L c on the grid, (..., size) to (..., G)."""
        return np.asarray(np.asarray(coordinates, dtype=np.float64) @ self.root.T)


def _root(gram: Floats) -> Floats:
    """L with gram = L L' up to rounding; see :class:`GridFunctions`."""
    values, vectors = np.linalg.eigh(gram)
    if values[0] > 1e-10 * values[-1]:
        return np.asarray(np.linalg.cholesky(gram), dtype=np.float64)
    kept = values > 4.0 * len(gram) * 2.0**-52 * values[-1]
    root: Floats = (vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1]
    return np.ascontiguousarray(root)


def finite_rows(points: Floats) -> Bools:
    """Which points of (n, D) are finite, (n,)."""
    return np.asarray(np.isfinite(points).all(axis=1), dtype=np.bool_)


def _positives(name: str, values: Sequence[float]) -> tuple[float, ...]:
    if not values:
        raise InvalidArgument(f"{name} must not be empty")
    return tuple(positive(name, float(value)) for value in values)
