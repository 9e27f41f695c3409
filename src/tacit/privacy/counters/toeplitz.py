"""The Toeplitz square root of the matrix of prefix sums."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tacit.privacy.counters.base import Floats
from tacit.privacy.counters.grid import Ints, root_up
from tacit.privacy.counters.history import PLACES, History, refuse_long

# Above this the square root is no choice: its coefficients alone would fill a gigabyte.
_MOST_RELEASES = 1 << 27
# In exact mode, where C is inverted.
_MOST_EXACT = 1 << 13


def square_root_error(releases: int) -> float:
    """The largest standard deviation of the square root's releases, S_n, in units of one sum's.

    For many releases by Landau's asymptotic formula, whose error is below 1 / n^2.

    >>> round(square_root_error(1023), 3), round(square_root_error(10**12), 3)
    (3.272, 9.862)
    """
    if releases <= 1024:
        return float(_sqrt_norms(_padded(releases))[releases - 1] ** 2)
    return (math.log(releases - 0.25) + np.euler_gamma + 4.0 * math.log(2.0)) / math.pi


class SquareRoot(History):
    """The Toeplitz square root: B = C with entries f_0 = 1, f_j = f_{j-1} (2j - 1) / (2j).

    The generating function of f is (1 - x)^(-1/2), whose square is 1 / (1 - x): C C = A. All
    entries are positive, so the first column is the longest: column norm sqrt(S_n) and row norms
    sqrt(S_t) with S_n = f_0^2 + ... + f_{n-1}^2, about ln(n) / pi + 1.07. Nearly the smallest
    worst-case error that any Toeplitz factorisation has. Holds all noise drawn so far. In exact
    mode C has the entries round(2^14 f_j) / 2^14, and B = A C^-1 is computed from those.

    >>> round(float(SquareRoot(releases=1023, mu=1.0).std[-1]), 2)
    3.27
    """

    kind = "square root"

    @property
    def column_norm(self) -> float:
        """The root of S_n; in exact mode, of the rounded squares."""
        if self.exact:
            numerators = self._factor_row(self.releases or 1)
            return root_up(int((numerators**2).sum())) / 2.0**PLACES
        return float(self.row_norms(self.releases or 1)[-1])

    def row_norms(self, upto: int) -> Floats:
        """The roots of S_1..S_t; in exact mode those of the rounded C."""
        if self.exact:
            return _rounded(_padded(self.releases or 1)).row_norms[:upto].copy()
        return _sqrt_norms(_padded(upto))[:upto].copy()

    def _check_releases(self, releases: int | None) -> int | None:
        checked = super()._check_releases(releases)
        refuse_long(self.kind, checked or 1, _MOST_RELEASES, "a")
        return checked

    def _start(self) -> None:
        if self.exact:
            refuse_long(self.kind, self.releases or 1, _MOST_EXACT, "an exact")
        super()._start()

    def _places(self) -> int:
        return PLACES

    def _factor_row(self, release: int) -> Ints:
        return _rounded(_padded(self.releases or 1)).reversed[-release:]

    def _row(self, release: int) -> Floats:
        if self.exact:
            return _rounded(_padded(self.releases or 1)).inverse[-release:]
        return _sqrt_reversed(_padded(release))[-release:]

    def _numerators(self) -> Ints:
        return self._factor_row(self.releases or 1) if self.exact else np.empty(0, np.int64)


class _Rounded(NamedTuple):
    """A rounded Toeplitz C, and B = A C^-1: their first columns, the last entry first."""

    reversed: Ints
    inverse: Floats
    row_norms: Floats


@lru_cache(maxsize=8)
def _rounded(length: int) -> _Rounded:
    whole = np.rint(2.0**PLACES * sqrt_coefficients(length)).astype(np.int64)
    c = np.ldexp(whole.astype(np.float64), -PLACES)
    # (1 - x) c(x) b(x) = 1: the coefficients of c b are ones, and c_0 = 1.
    b = np.ones(length)
    for t in range(1, length):
        b[t] -= c[t:0:-1] @ b[:t]
    reverse = np.ascontiguousarray(whole[::-1])
    reverse.setflags(write=False)
    norms = _constant(np.sqrt(np.cumsum(b**2)))
    return _Rounded(reverse, _constant(np.ascontiguousarray(b[::-1])), norms)


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
