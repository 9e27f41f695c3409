"""Sample paths of Gaussian processes that are drawn where somebody looks, and nowhere else.

A path is one random function. Its values are drawn when they are first asked for, each from its
exact distribution given all values drawn before, and kept: the same point always has the same
value, and in whatever order points are asked for, the values have the joint distribution of one
path drawn beforehand. That is why answers to adaptively chosen points are post-processing of the
path.

A path hides one release. Two releases need two paths: their difference on one path has no noise.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import ArrayLike

from tacit.privacy.arguments import positive
from tacit.privacy.errors import HorizonExceeded, InvalidArgument
from tacit.privacy.functions.kernels import Kernel, finite_rows
from tacit.privacy.noise import NoiseSource
from tacit.privacy.statistic import Floats

# Points per block of the sorted list; a block of twice as many is split.
_BLOCK = 512


def bridge(
    rate: float, x: float, left: float | None, right: float | None
) -> tuple[float, float, float]:
    """The unit Ornstein-Uhlenbeck process at x given its values at neighbours left and right.

    With a = rate (x - left) and b = rate (right - x) the value is Gaussian with mean
    (e^-a (1 - e^-2b) g(left) + e^-b (1 - e^-2a) g(right)) / (1 - e^-2(a+b)) and variance
    (1 - e^-2a) (1 - e^-2b) / (1 - e^-2(a+b)); with one neighbour e^-a g and 1 - e^-2a; with none
    0 and 1. Points farther away do not matter: the process is Markov. No exponent is positive, so
    nothing overflows, and expm1 keeps all digits of tiny gaps.

    Returns:
        The weights of g(left) and g(right), and the variance.

    >>> bridge(1.0, 0.5, None, None), bridge(math.log(2.0), 1.0, 0.0, None)
    ((0.0, 0.0, 1.0), (0.5, 0.0, 0.75))
    """
    a = math.inf if left is None else rate * (x - left)
    b = math.inf if right is None else rate * (right - x)
    here, there, across = -math.expm1(-2.0 * a), -math.expm1(-2.0 * b), -math.expm1(-2.0 * (a + b))
    if across == 0.0:
        # Both gaps vanish in floating point; the process is constant there.
        return 1.0, 0.0, 0.0
    return math.exp(-a) * (there / across), math.exp(-b) * (here / across), here * (there / across)


class OUPath:
    """A path of the Ornstein-Uhlenbeck process, covariance sigma^2 exp(-rate |x - y|).

    A new point costs two binary searches and an insertion into a short list, O(log n). Points
    outside of [low, high] are moved to its ends.
    """

    def __init__(
        self,
        rate: float,
        sigma: float,
        source: NoiseSource,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        self.rate, self.sigma = positive("rate", rate), positive("sigma", sigma)
        self.low = -math.inf if low is None else float(low)
        self.high = math.inf if high is None else float(high)
        if not self.low <= self.high:
            raise InvalidArgument(f"low must be at most high, got {low!r} and {high!r}")
        self._source = source
        self._drawn: dict[float, float] = {}
        self._blocks: list[list[float]] = [[]]
        self._lasts: list[float] = [-math.inf]

    @property
    def size(self) -> int:
        """How many values were drawn."""
        return len(self._drawn)

    def values(self, xs: ArrayLike) -> Floats:
        """The path at points of any shape; NaN where a point is not finite, and nothing is drawn.

        Infinite points count as ``low`` and ``high`` where those are given.
        """
        points = np.clip(np.asarray(xs, dtype=np.float64), self.low, self.high)
        distinct = np.unique(points[np.isfinite(points)]).tolist()
        new = [x for x in distinct if x not in self._drawn]
        if new:
            for x, normal in zip(new, self._source.normal((len(new),)).tolist(), strict=True):
                self._draw(x, normal)
        drawn = self._drawn
        flat = [drawn.get(x, math.nan) for x in points.ravel().tolist()]
        return np.array(flat, dtype=np.float64).reshape(points.shape)

    def value(self, x: float) -> float:
        """The path at one point: :meth:`values` without the cost of arrays."""
        x = min(max(float(x), self.low), self.high)
        if x not in self._drawn:
            if not math.isfinite(x):
                return math.nan
            self._draw(x, float(self._source.normal((1,))[0]))
        return self._drawn[x]

    def _draw(self, x: float, normal: float) -> None:
        """Draws the value at a new point."""
        left, right = self._insert(x)
        on_left, on_right, variance = bridge(self.rate, x, left, right)
        mean = 0.0
        if left is not None:
            mean += on_left * self._drawn[left]
        if right is not None:
            mean += on_right * self._drawn[right]
        self._drawn[x] = mean + self.sigma * math.sqrt(variance) * normal

    def _insert(self, x: float) -> tuple[float | None, float | None]:
        """Puts a new point into the sorted blocks; its neighbours."""
        at = min(bisect_left(self._lasts, x), len(self._lasts) - 1)
        block = self._blocks[at]
        place = bisect_left(block, x)
        right = block[place] if place < len(block) else None
        if place > 0:
            left: float | None = block[place - 1]
        else:
            left = self._lasts[at - 1] if at > 0 else None
        block.insert(place, x)
        if len(block) > 2 * _BLOCK:
            self._blocks.insert(at + 1, block[_BLOCK:])
            del block[_BLOCK:]
            self._lasts.insert(at, block[-1])
            at += 1
        self._lasts[at] = self._blocks[at][-1]
        return left, right


class GPPath:
    """A path of any Gaussian process, covariance sigma^2 K, by a growing Cholesky factor.

    A new point after n others costs O(n^2), so at most ``limit`` different ones may be asked for.

    Every value carries a nugget of its own: independent noise of variance sigma^2 limit^2 2^-51
    bound^2, one in 10^9 at the default limit. It is what makes the path safe in floating point.
    The factor L of n points satisfies L L' = K + nugget I + E with rounding errors
    |E| <= n (n + 1) 2^-53 bound^2, which the nugget exceeds; so L L' is at least K, and the noise
    is at least what was paid for. Without it, a point where K is numerically determined by others
    would be answered with next to no noise.
    """

    def __init__(
        self, kernel: Kernel, sigma: float, source: NoiseSource, limit: int = 2000
    ) -> None:
        if limit < 1:
            raise InvalidArgument(f"limit must be >= 1, got {limit!r}")
        self.kernel, self.sigma, self.limit = kernel, positive("sigma", sigma), int(limit)
        self._source = source
        self._drawn: dict[bytes, float] = {}
        self._points = np.zeros((0, kernel.dimension))
        self._factor = np.zeros((0, 0))
        self._normals = np.zeros(0)

    @property
    def size(self) -> int:
        """How many values were drawn."""
        return len(self._points)

    @property
    def nugget(self) -> float:
        """Variance of a value's own noise, for sigma = 1."""
        return (self.limit * self.kernel.bound) ** 2 * 2.0**-51

    def values(self, xs: ArrayLike) -> Floats:
        """The path at points (n, D), as (n,); NaN where a point is not finite.

        More than ``limit`` points are a HorizonExceeded, and nothing is drawn.
        """
        # Adding zero makes -0.0 the same point as 0.0.
        points = self.kernel.checked(xs) + 0.0
        keys = [row.tobytes() for row in points]
        finite = finite_rows(points).tolist()
        new: dict[bytes, int] = {}
        for row, key in enumerate(keys):
            if finite[row] and key not in self._drawn:
                new.setdefault(key, row)
        if self.size + len(new) > self.limit:
            raise HorizonExceeded(
                f"{self.size} points were drawn and {len(new)} more are asked for; this path has "
                f"limit {self.limit}. A grid has none: see GridFunctions"
            )
        if new:
            rows = list(new.values())
            drawn = self._draw(points[rows], self._source.normal((len(rows),)))
            self._drawn.update(zip(new, drawn.tolist(), strict=True))
        return np.array([self._drawn.get(key, math.nan) for key in keys], dtype=np.float64)

    def _draw(self, points: Floats, normals: Floats) -> Floats:
        """Values at new points, different ones."""
        old = self.size
        self._grow(points)
        self._normals = np.concatenate([self._normals, normals])
        return np.asarray(self.sigma * (self._factor[old:] @ self._normals))

    def _grow(self, points: Floats) -> None:
        """Appends points' rows to the factor."""
        from scipy.linalg import solve_triangular

        old, new = self.size, len(points)
        own = self.kernel(points, points) + self.nugget * np.eye(new)
        factor = np.zeros((old + new, old + new))
        if old:
            cross = self.kernel(self._points, points)
            across = solve_triangular(self._factor, cross, lower=True)
            own -= across.T @ across
            factor[:old, :old], factor[old:, :old] = self._factor, across.T
        factor[old:, old:] = np.linalg.cholesky(own)
        self._factor, self._points = factor, np.vstack([self._points, points])
