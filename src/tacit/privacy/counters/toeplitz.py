"""Toeplitz factorisations: the square root of the prefix-sum matrix, and BLT for long streams."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.privacy.counters.base import Counter, Floats
from tacit.privacy.counters.blt_fit import BLT, fit_blt
from tacit.privacy.errors import InvalidArgument

# Above this the square root is no choice: its coefficients alone would fill a gigabyte.
_MOST_RELEASES = 1 << 27


def square_root_error(releases: int) -> float:
    """The largest standard deviation of the square root's releases, S_n, in units of one sum's.

    For many releases by Landau's asymptotic formula, whose error is below 1 / n^2.

    >>> round(square_root_error(1023), 3), round(square_root_error(10**12), 3)
    (3.272, 9.862)
    """
    if releases <= 1024:
        return float(_sqrt_norms(_padded(releases))[releases - 1] ** 2)
    return (math.log(releases - 0.25) + np.euler_gamma + 4.0 * math.log(2.0)) / math.pi


class SquareRoot(Counter):
    """The Toeplitz square root: B = C with entries f_0 = 1, f_j = f_{j-1} (2j - 1) / (2j).

    The generating function of f is (1 - x)^(-1/2), whose square is 1 / (1 - x): C C = A. All
    entries are positive, so the first column is the longest: column norm sqrt(S_n) and row norms
    sqrt(S_t) with S_n = f_0^2 + ... + f_{n-1}^2, about ln(n) / pi + 1.07. Nearly the smallest
    worst-case error that any factorisation has. Holds all noise drawn so far.

    >>> round(float(SquareRoot(releases=1023, mu=1.0).std[-1]), 2)
    3.27
    """

    kind = "square root"

    @property
    def column_norm(self) -> float:
        """The root of S_n."""
        return float(self.row_norms(self.releases or 1)[-1])

    def row_norms(self, upto: int) -> Floats:
        """The roots of S_1..S_t."""
        return _sqrt_norms(_padded(upto))[:upto].copy()

    @property
    def memory(self) -> int:
        """The running sum and a noise vector per release."""
        return 1 + (self.releases or 1)

    def _check_releases(self, releases: int | None) -> int | None:
        checked = super()._check_releases(releases)
        if checked is not None and checked > _MOST_RELEASES:
            raise InvalidArgument(
                f"releases must be at most {_MOST_RELEASES:,} for a square root, which keeps noise "
                f"for each, got {releases!r}: take blt"
            )
        return checked

    def _start(self) -> None:
        self._drawn = np.empty((0, self.size))

    def _advance(self, fresh: Floats) -> Floats:
        t = self.released
        if t > len(self._drawn):
            grown = np.empty((min(max(16, 2 * t), self.releases or t), self.size))
            grown[: t - 1] = self._drawn[: t - 1]
            self._drawn = grown
        self._drawn[t - 1] = fresh
        noise: Floats = _sqrt_reversed(_padded(t))[-t:] @ self._drawn[:t]
        return noise

    def _state(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        return {}, {"drawn": self._drawn[: self.released]}

    def _restore(self, values: dict[str, Any], arrays: dict[str, Floats]) -> None:
        self._drawn = arrays["drawn"]


class BufferedToeplitz(Counter):
    """BLT: a Toeplitz factorisation whose noise streams through a handful of buffers.

    C's coefficients are 1 and sums of ``buffers`` geometric series, and so are those of its
    inverse; the noise of the running sum is the running sum of C^-1 z, which needs one buffer per
    series. With four buffers the worst-case error is within 1 % of the square root's up to 2^17
    releases, at constant memory and time per release. See :mod:`tacit.privacy.counters.blt_fit`.

    >>> counter = BufferedToeplitz(releases=2**17, mu=1.0)
    >>> counter.memory, bool(counter.std.max() < 4.86)
    (7, True)
    """

    kind = "blt"
    kept = ("noise", "buffers")

    def __init__(
        self,
        sensitivity: float = 1.0,
        releases: int | None = None,
        shape: tuple[int, ...] = (),
        *,
        buffers: int = 4,
        parameters: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
        **options: Any,
    ) -> None:
        checked = self._check_releases(releases) or 1
        self.fit = (
            fit_blt(checked, buffers)
            if parameters is None
            else BLT(checked, tuple(parameters[0]), tuple(parameters[1]))
        )
        super().__init__(sensitivity, releases, shape, **options)

    @property
    def column_norm(self) -> float:
        """Closed form of the first column's norm."""
        return self.fit.column_norm

    def row_norms(self, upto: int) -> Floats:
        """Roots of the cumulative squares of the coefficients of A C^-1."""
        return self.fit.row_norms(upto)

    @property
    def memory(self) -> int:
        """The running sum, its noise, the buffers and their next sum."""
        return 3 + self.fit.buffers

    def _start(self) -> None:
        self._decay = np.array(self.fit.b)[:, np.newaxis]
        self._weights = np.asarray(self.fit.inverse_weights)
        self._buffers = np.zeros((self.fit.buffers, self.size))
        self._noise = np.zeros(self.size)
        self._due = np.zeros(self.size)

    def _advance(self, fresh: Floats) -> Floats:
        np.matmul(self._weights, self._buffers, out=self._due)
        self._noise += self._due
        self._noise += fresh
        self._buffers *= self._decay
        self._buffers += fresh
        return self._noise

    def _options(self) -> dict[str, Any]:
        # The parameters themselves, so that a saved counter does not depend on a later fit.
        return {"parameters": [list(self.fit.u), list(self.fit.v)]}


def sqrt_coefficients(length: int) -> Floats:
    """f_0..f_{length-1} of the Toeplitz square root.

    >>> sqrt_coefficients(3).tolist()
    [1.0, 0.5, 0.375]
    """
    j = np.arange(1, length, dtype=np.float64)
    return np.concatenate([[1.0], np.cumprod((2.0 * j - 1.0) / (2.0 * j))])


def _padded(length: int) -> int:
    """The next power of two: few different lengths are ever computed."""
    return 1 << max(4, math.ceil(math.log2(length)))


@lru_cache(maxsize=32)
def _sqrt_norms(length: int) -> Floats:
    return _constant(np.sqrt(np.cumsum(sqrt_coefficients(length) ** 2)))


@lru_cache(maxsize=32)
def _sqrt_reversed(length: int) -> Floats:
    return _constant(np.ascontiguousarray(sqrt_coefficients(length)[::-1]))


def _constant(array: Floats) -> Floats:
    """Read-only: who changed a cached array would change the noise of every later counter."""
    array.setflags(write=False)
    return array
