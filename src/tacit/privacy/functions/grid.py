"""Functions on a public grid: functional noise through the curator's ordinary gate."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.arguments import positive
from tacit.privacy.budget import Relation, ways
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.functions.kernels import Kernel, finite_rows
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic

Ints = NDArray[np.int64]
Number = TypeVar("Number", np.float64, np.int64)

# A user's coefficients beyond this many clips are scaled back first: from there on, rounding errors
# would decide where a function points whose large coefficients almost cancel.
_MOST = 8192.0


@dataclass(frozen=True, eq=False, repr=False)
class GridFunctions:
    """Functions on a public grid, in the coordinates in which their norm is Euclidean.

    With K_XX = L L', L of shape (G, size), a function sum_i w_i K(X_i, .) has the coordinates
    L' w: their squared length is w' L L' w, the function's squared norm, and its values on the grid
    are L (L' w). Noise sigma xi with independent normals xi in the coordinates is sigma L xi on the
    grid, with covariance sigma^2 K_XX: exactly the Gaussian-process path, seen on the grid. Users
    whose points are not on the grid are projected to it, by :meth:`nearest` or by the weights of
    :meth:`RegularGrid.multilinear`, before anything is clipped.

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

    @property
    def bound(self) -> float:
        """The largest norm of K(X_i, .) on the grid."""
        return float(np.linalg.norm(self.root, axis=1).max())

    def of_weights(self, weights: ArrayLike) -> Floats:
        """The coordinates L' w of sum_i w_i K(X_i, .), (..., G) to (..., size); never unstable."""
        coordinates: Floats = np.asarray(weights, dtype=np.float64) @ self.root
        return coordinates

    def coordinates(self, values: ArrayLike) -> Floats:
        """The coordinates of the shortest function with these values on the grid.

        (..., G) to (..., size). It divides by L, so it is as stable as K_XX is invertible; where
        the weights are known, :meth:`of_weights` is better.
        """
        h = np.asarray(values, dtype=np.float64)
        solved = self._solve(h.reshape(-1, h.shape[-1]).T).T
        return solved.reshape(*h.shape[:-1], self.size)

    def values(self, coordinates: ArrayLike) -> Floats:
        """The values L c on the grid, (..., size) to (..., G)."""
        values: Floats = np.asarray(coordinates, dtype=np.float64) @ self.root.T
        return values

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
        return f"GridFunctions({self.kernel!r}, {len(self.points)} points, {digest})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GridFunctions) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def _root(gram: Floats) -> Floats:
    """L with gram = L L' up to rounding; see :class:`GridFunctions`."""
    values, vectors = np.linalg.eigh(gram)
    if values[0] > 1e-10 * values[-1]:
        return np.asarray(np.linalg.cholesky(gram), dtype=np.float64)
    kept = values > 4.0 * len(gram) * 2.0**-52 * values[-1]
    root: Floats = (vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1]
    return np.ascontiguousarray(root)


@dataclass(frozen=True)
class FunctionSum(Statistic):
    """The sum of users' functions on a grid, ``functions`` of them at once (one per action, say).

    Reads ``points`` (users, steps), indices of the grid's points, and ``coefficients`` (users,
    steps): the user's function is sum_t e_t K(X_i(t), .). With several functions ``functions``
    (users, steps) says to which of them each step belongs. With ``corners`` > 1 a step lies between
    grid points: ``points`` and ``weights`` have shape (users, steps, corners), and the step is
    e_t sum_k w_k K(X_ik, .). One part, ``coordinates``, of shape (functions, size): hand its rows
    to :meth:`GridFunctions.values`.

    A step with an index that is out of range, or a number that is not finite, is dropped. A user's
    functions together are scaled back to the norm ``clip``: the root of the sum of the squared
    norms over functions.

    Sensitivity. In the grid's coordinates that norm is the Euclidean one (:class:`GridFunctions`),
    and functions have coordinates of their own, so their squares add up: a user's vector lies in
    the ball of radius clip. Two points of it are at most 2 clip apart, attained by a user with one
    large coefficient and her negative; the zero vector is at most clip away. The curator's noise of
    scale s in the coordinates is a path of scale s for each function, independent of the others, so
    the release is exactly (2 clip / s)-GDP, or clip / s, for all functions everywhere.
    """

    grid: GridFunctions
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
    import numba

    try:
        loop: _Loop = numba.njit(cache=True, nogil=True)(_add_functions)
    except RuntimeError:
        # "cannot cache function: no locator available": compile anew in each process instead.
        loop = numba.njit(nogil=True)(_add_functions)
    return loop
