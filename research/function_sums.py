"""Functional noise through the curator's ordinary gate, as a statistic of its own.

Agents release such sums by the statistics of :mod:`tacit.continuous`. This is the plain form that
those are compared with: any kernel, any public grid, users' functions as points and coefficients.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.arguments import positive
from tacit.privacy.budget import Relation, ways
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.functions.kernels import GridFunctions, Kernel, finite_rows
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic

Ints = NDArray[np.int64]
Features = Callable[[Floats], Floats]
Number = TypeVar("Number", np.float64, np.int64)

# A user's coefficients beyond this many clips are scaled back first: from there on, rounding errors
# would decide where a function points whose large coefficients almost cancel.
_MOST = 8192.0


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


def _check_box(lows: Sequence[float], highs: Sequence[float]) -> None:
    if not all(math.isfinite(h - w) and w < h for w, h in zip(lows, highs, strict=True)):
        raise InvalidArgument(f"lows must be below highs, got {lows} and {highs}")


@dataclass(frozen=True, eq=False, repr=False)
class SharedGrid(GridFunctions):
    """A grid that users' points are moved to, and that saved files can be told apart by."""

    @property
    def bound(self) -> float:
        """The largest norm of K(X_i, .) on the grid."""
        return float(np.linalg.norm(self.root, axis=1).max())

    def coordinates(self, values: ArrayLike) -> Floats:
        """The coordinates of the shortest function with these values on the grid.

        (..., G) to (..., size). It divides by L, so it is as stable as K_XX is invertible; where
        the weights are known, :meth:`of_weights` is better.
        """
        h = np.asarray(values, dtype=np.float64)
        solved = self._solve(h.reshape(-1, h.shape[-1]).T).T
        return solved.reshape(*h.shape[:-1], self.size)

    def evaluate(self, coordinates: ArrayLike, x: ArrayLike) -> Floats:
        """The function off the grid, (size,) to (n,): the shortest one with its grid values."""
        across = self._solve(self.kernel(self.points, x))
        values: Floats = np.asarray(coordinates, dtype=np.float64) @ across
        return values

    def nearest(self, x: ArrayLike) -> Ints:
        """Which grid point is nearest to each of x (n, D), after moving x into the grid's box.

        Points that are not finite get -1, which statistics drop.
        """
        from scipy.spatial import KDTree

        asked = self.kernel.checked(x)
        finite = finite_rows(asked)
        inside = np.clip(asked[finite], self.points.min(axis=0), self.points.max(axis=0))
        places = np.full(len(asked), -1, dtype=np.int64)
        places[finite] = KDTree(self.points).query(inside)[1]
        return places

    def _solve(self, values: Floats) -> Floats:
        """L^+ v for columns v."""
        if self._triangular:
            from scipy.linalg import solve_triangular

            solved: Floats = solve_triangular(self.root, values, lower=True)
            return solved
        # Orthogonal columns: the pseudo-inverse divides by their squared lengths.
        shortest: Floats = (self.root / (self.root**2).sum(axis=0)).T @ values
        return shortest

    @property
    def _triangular(self) -> bool:
        return self.size == len(self.points) and not np.triu(self.root, 1).any()

    def __repr__(self) -> str:
        # A save must not be continued in other coordinates: the text identifies the root, up to
        # the rounding errors in which two machines differ.
        rounded = np.round(self.root / self.bound, 6) + 0.0
        digest = hashlib.sha256(self.points.tobytes() + rounded.tobytes()).hexdigest()[:32]
        return f"SharedGrid({self.kernel!r}, {len(self.points)} points, {digest})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SharedGrid) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class FunctionSum(Statistic):
    """The sum of users' functions on a grid, ``functions`` of them at once (one per action, say).

    Reads ``points`` (users, steps), indices of the grid's points, and ``coefficients`` (users,
    steps): the user's function is sum_t e_t K(X_i(t), .). With several functions ``functions``
    (users, steps) says to which of them each step belongs. With ``corners`` > 1 a step lies between
    grid points: ``points`` and ``weights`` have shape (users, steps, corners), and the step is
    e_t sum_k w_k K(X_ik, .). One part, ``coordinates``, of shape (functions, size): hand its rows
    to :meth:`SharedGrid.values`.

    A step with an index that is out of range, or a number that is not finite, is dropped. A user's
    functions together are scaled back to the norm ``clip``: the root of the sum of the squared
    norms over functions.

    Sensitivity. In the grid's coordinates that norm is the Euclidean one (:class:`SharedGrid`),
    and functions have coordinates of their own, so their squares add up: a user's vector lies in
    the ball of radius clip. Two points of it are at most 2 clip apart, attained by a user with one
    large coefficient and her negative; the zero vector is at most clip away. The curator's noise of
    scale s in the coordinates is a path of scale s for each function, independent of the others, so
    the release is exactly (2 clip / s)-GDP, or clip / s, for all functions everywhere.
    """

    grid: SharedGrid
    steps: int
    functions: int = 1
    clip: float = 1.0
    corners: int = 1

    def __post_init__(self) -> None:
        counts = (self.steps, self.functions, self.corners)
        if min(counts) < 1:
            raise InvalidArgument(f"steps, functions and corners must be >= 1, got {counts}")
        positive("clip", self.clip)
        object.__setattr__(self, "name", "function sum")

    @cached_property
    def layout(self) -> Layout:
        """One part, ``coordinates``."""
        return Layout((Part("coordinates", (self.functions, self.grid.size)),))

    def l2(self, relation: Relation) -> float:
        """2 clip, or clip."""
        return self.clip * ways(relation)

    def vectors(self, block: Block) -> Floats:
        """Each user's coordinates, scaled back to the ball."""
        steps = self._steps(block)
        count = len(self.grid.points)
        known = (steps.points >= 0) & (steps.points < count)
        valid = (known & np.isfinite(steps.weights)).all(axis=2)
        valid &= (steps.functions >= 0) & (steps.functions < self.functions)
        valid &= np.isfinite(steps.coefficients)
        e, largest = _scaled(np.where(valid, steps.coefficients, 0.0)[:, :, np.newaxis])
        w, widest = _scaled(np.where(valid[:, :, np.newaxis], steps.weights, 0.0))
        e = e * w * np.minimum(largest * widest, self._most)
        owner = np.arange(block.users)[:, np.newaxis] * self.functions + steps.functions
        cells = np.where(valid[:, :, np.newaxis], owner[:, :, np.newaxis] * count + steps.points, 0)
        weights = np.bincount(
            cells.ravel(), weights=e.ravel(), minlength=block.users * self.functions * count
        ).reshape(block.users, self.functions, count)
        vectors = self.grid.of_weights(weights).reshape(block.users, self.layout.size)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        clipped: Floats = vectors * (self.clip / np.maximum(lengths, self.clip))
        return clipped

    def total(self, block: Block) -> Floats:
        """The sum over users, without making their vectors."""
        if block.aggregate:
            return super().total(block)
        total = np.zeros((self.functions, self.grid.size))
        # A floating-point warning would be raw output.
        with np.errstate(all="ignore"):
            _compiled()(*self._steps(block), self.grid.root, self.clip, self._most, total)
        return total.ravel()

    def _steps(self, block: Block) -> _Steps:
        """The raw arrays in the shapes and dtypes of the loop."""
        shape = (self.steps,) if self.corners == 1 else (self.steps, self.corners)
        spread = (block.users, self.steps, self.corners)
        functions = np.zeros((block.users, self.steps), dtype=np.int64)
        weights = np.ones((block.users, self.steps, self.corners))
        if self.functions > 1:
            functions = _integers(block, "functions", (self.steps,))
        if self.corners > 1:
            weights = _numbers(block, "weights", shape)
        points = _integers(block, "points", shape).reshape(spread)
        coefficients = _numbers(block, "coefficients", (self.steps,))
        return _Steps(_sealed(points), _sealed(weights), _sealed(coefficients), _sealed(functions))

    @property
    def _most(self) -> float:
        return _MOST * self.clip / self.grid.bound


class _Steps(NamedTuple):
    """Users' steps: points and weights (users, steps, corners), the others (users, steps)."""

    points: Ints
    weights: Floats
    coefficients: Floats
    functions: Ints


def _scaled(values: Floats) -> tuple[Floats, Floats]:
    """A user's values over the largest of them, and the largest."""
    largest = np.abs(values).max(axis=(1, 2), keepdims=True, initial=0.0)
    return values / np.where(largest > 0.0, largest, 1.0), largest


def _numbers(block: Block, name: str, shape: tuple[int, ...]) -> Floats:
    """A user array as floats; its shape is public and may be refused."""
    return np.ascontiguousarray(_array(block, name, shape), dtype=np.float64)


def _integers(block: Block, name: str, shape: tuple[int, ...]) -> Ints:
    """A user array as integers, -1 for what is none."""
    array = _array(block, name, shape)
    if array.dtype.kind != "f":
        # Unsigned integers beyond the signed ones become negative, so stay out of every range.
        return np.ascontiguousarray(array, dtype=np.int64)
    floats = array.astype(np.float64)
    whole = (np.abs(floats) < 2.0**53) & (floats == np.floor(floats))
    return np.where(whole, floats, -1.0).astype(np.int64)


def _sealed(array: NDArray[Number]) -> NDArray[Number]:
    """A read-only view, as a curator's blocks are: the loop is compiled once, not twice."""
    view = array.view()
    view.setflags(write=False)
    return view


def _array(block: Block, name: str, shape: tuple[int, ...]) -> NDArray[np.generic]:
    array = block[name]
    wanted = (block.users, *shape)
    if array.shape != wanted:
        raise InvalidArgument(f"{name!r} must have shape {wanted}, got {array.shape}")
    return array


def _add_functions(
    points: Ints,
    weights: Floats,
    coefficients: Floats,
    functions: Ints,
    root: Floats,
    clip: float,
    most: float,
    total: Floats,
) -> None:
    """Adds users' clipped coordinates to ``total`` (functions, size); see :class:`_Steps`."""
    users, steps, corners = points.shape
    count, size = root.shape
    own = np.zeros(total.shape)
    valid = np.zeros(steps, dtype=np.bool_)
    # A triangular root has nothing behind its diagonal.
    widths = np.zeros(count, dtype=np.int64)
    for point in range(count):
        for k in range(size):
            if root[point, k] != 0.0:
                widths[point] = k + 1
    for user in range(users):
        largest, widest = 0.0, 0.0
        for step in range(steps):
            e = coefficients[user, step]
            valid[step] = np.isfinite(e) and 0 <= functions[user, step] < len(total)
            for corner in range(corners):
                if not 0 <= points[user, step, corner] < count:
                    valid[step] = False
                if not np.isfinite(weights[user, step, corner]):
                    valid[step] = False
            if valid[step]:
                largest = max(largest, abs(e))
                for corner in range(corners):
                    widest = max(widest, abs(weights[user, step, corner]))
        if largest == 0.0 or widest == 0.0:
            continue
        scale = min(largest * widest, most)
        own[:] = 0.0
        for step in range(steps):
            if valid[step]:
                mine = own[functions[user, step]]
                e = coefficients[user, step] / largest
                for corner in range(corners):
                    share = e * (weights[user, step, corner] / widest) * scale
                    point = points[user, step, corner]
                    row = root[point]
                    for k in range(widths[point]):
                        mine[k] += share * row[k]
        square = 0.0
        for which in range(len(total)):
            mine = own[which]
            for k in range(size):
                square += mine[k] * mine[k]
        factor = clip / max(math.sqrt(square), clip)
        for which in range(len(total)):
            mine, sums = own[which], total[which]
            for k in range(size):
                sums[k] += factor * mine[k]


_Loop = Callable[[Ints, Floats, Floats, Ints, Floats, float, float, Floats], None]


@cache
def _compiled() -> _Loop:
    """The loop above in machine code; compiled when first needed, because numba is slow to load."""
    from tacit.numerics.compiled import compiled

    return compiled(_add_functions)
