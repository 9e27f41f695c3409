"""Factors that are no Toeplitz matrices: the normalised square root, and optimal ones.

A Toeplitz C charges the first user most: later columns are shorter. That is waste. A C whose
columns all have the same length has less noise at the same cost: about 8 % less than the square
root at few releases if the square root's columns are scaled, and 12 % less if C is optimal.

Entries are rounded to whole numbers over 2^p; B = A C^-1 is that of the rounded C, so nothing is
biased.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from base64 import b64decode
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple
from zlib import decompress

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.counters.base import Counter, Floats
from tacit.privacy.counters.grid import Ints, root_up
from tacit.privacy.errors import CorruptFile, InvalidArgument

OPTIMAL_NAME = "optimal_factors.json"
PLACES = 14
"""The binary places of rounded factors: noise is larger by less than 0.01 % for them."""
OPTIMAL_PLACES = 12
MOST_OPTIMAL = 64
_MOST_NORMALISED = 1 << 11


class Factor(NamedTuple):
    """C as whole numbers over 2^places, and what follows from it."""

    places: int
    whole: Ints
    inverse: Floats
    column_norm: float
    row_norms: Floats

    @classmethod
    def of(cls, places: int, whole: Ints) -> Factor:
        """From the numerators of C."""
        from scipy.linalg import solve_triangular

        n = len(whole)
        longest = max(int(square) for square in (whole**2).sum(axis=0))
        # B C = A, so C' B' = A'.
        factor = np.ldexp(whole.astype(np.float64), -places)
        solved = solve_triangular(factor, np.tri(n).T, trans="T", lower=True)
        inverse = np.ascontiguousarray(np.tril(solved.T))
        norms = np.linalg.norm(inverse, axis=1)
        for array in (whole, inverse, norms):
            array.setflags(write=False)
        return cls(places, whole, inverse, root_up(longest) / 2.0**places, norms)

    @property
    def digest(self) -> str:
        """A hash of C: a counter goes on with the factor that it had."""
        return hashlib.sha256(self.whole.astype("<i8").tobytes()).hexdigest()


class _Dense(Counter):
    """A counter whose factor is a matrix of whole numbers, which keeps two vectors per release.

    The items x of all releases are kept, and w = C x + z (see :mod:`.grid`): the t-th release is
    row t of B times w, a function of w alone.
    """

    @property
    @abstractmethod
    def factor(self) -> Factor:
        """C and B."""

    @property
    def column_norm(self) -> float:
        """The norm of the longest column."""
        return self.factor.column_norm

    def row_norms(self, upto: int) -> Floats:
        """The norms of the rows of A C^-1."""
        return self.factor.row_norms[:upto].copy()

    @property
    def memory(self) -> int:
        """The running sum, and an item and its w per release."""
        return 1 + 2 * (self.releases or 1)

    def _places(self) -> int:
        return self.factor.places

    def _start(self) -> None:
        self._past = np.empty((0, self.size), np.int64)
        self._seen = np.empty((0, self.size))

    def _released(self, steps: Ints, fresh: Ints) -> Floats:
        t = self.released
        self._past = self._with(self._past, steps)
        w = self.factor.whole[t - 1, :t] @ self._past[:t] + fresh
        self._seen = self._with(self._seen, np.ldexp(w.astype(np.float64), -self._places()))
        published: Floats = self.factor.inverse[t - 1, :t] @ self._seen[:t]
        return published

    def _with(self, rows: NDArray[Any], last: NDArray[Any]) -> NDArray[Any]:
        """The rows of all releases so far, and the last one."""
        t = self.released
        if t > len(rows):
            grown = np.empty((min(max(16, 2 * t), self.releases or t), self.size), rows.dtype)
            grown[: t - 1] = rows[: t - 1]
            rows = grown
        rows[t - 1] = last
        return rows

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays = {name: getattr(self, f"_{name}")[: self.released] for name in ("past", "seen")}
        return {"factor": self.factor.digest}, arrays

    def _restore(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        if values["factor"] != self.factor.digest:
            raise CorruptFile(f"this {self.kind} counter was saved with another factor")
        for name, rows in arrays.items():
            setattr(self, f"_{name}", rows)


class NormalisedSquareRoot(_Dense):
    """The square root with columns of equal length: C = F diag(1 / |F_:j|).

    F is the Toeplitz square root of A, A = F F. Scaled, no column is shorter than another, so that
    the last users pay as much as the first ones and all noise is smaller. B = A C^-1 =
    A diag(|F_:j|) F^-1.

    >>> root = NormalisedSquareRoot(releases=1024, mu=1.0)
    >>> round(float(root.std.max()), 3)
    3.081
    """

    kind = "normalised square root"

    @property
    def factor(self) -> Factor:
        """C and B."""
        return _normalised(self.releases or 1)

    def _check_releases(self, releases: int | None) -> int | None:
        checked = super()._check_releases(releases)
        if checked is not None and checked > _MOST_NORMALISED:
            raise InvalidArgument(
                f"releases must be at most {_MOST_NORMALISED:,} for a {self.kind}, which keeps a "
                f"vector for each, got {releases!r}: take smooth tree"
            )
        return checked


class Optimal(_Dense):
    """The factorisation with the smallest possible largest error, for up to 64 releases.

    Read from a table that ``python -m research.optimal_factors`` computes, with a certificate: no
    factorisation whatever has a largest error below the bound of its dual problem, and these are
    within 0.1 % of it.

    >>> round(float(Optimal(releases=2, mu=1.0).std.max()), 3)  # 2 / sqrt(3)
    1.155
    """

    kind = "optimal"

    @property
    def factor(self) -> Factor:
        """C and B."""
        return _optimal(self.releases or 1)

    def _check_releases(self, releases: int | None) -> int | None:
        checked = super()._check_releases(releases)
        if checked is not None and checked > MOST_OPTIMAL:
            raise InvalidArgument(
                f"releases must be at most {MOST_OPTIMAL} for optimal factors, got {releases!r}: "
                f"take a normalised square root"
            )
        return checked


def sqrt_coefficients(length: int) -> Floats:
    """f_0..f_{length-1} of the Toeplitz square root: f_0 = 1, f_j = f_{j-1} (2j - 1) / (2j).

    Their generating function is (1 - x)^(-1/2), whose square is 1 / (1 - x).

    >>> sqrt_coefficients(3).tolist()
    [1.0, 0.5, 0.375]
    """
    j = np.arange(1, length, dtype=np.float64)
    return np.concatenate([[1.0], np.cumprod((2.0 * j - 1.0) / (2.0 * j))])


@lru_cache(maxsize=4)
def _normalised(releases: int) -> Factor:
    coefficients = sqrt_coefficients(releases)
    lengths = np.sqrt(np.cumsum(coefficients**2))[::-1]
    whole = np.zeros((releases, releases), np.int64)
    for j in range(releases):
        whole[j:, j] = np.rint(2.0**PLACES * coefficients[: releases - j] / lengths[j])
    return Factor.of(PLACES, whole)


@lru_cache(maxsize=MOST_OPTIMAL)
def _optimal(releases: int) -> Factor:
    differences = _table()
    place = sum(n * (n + 1) // 2 for n in range(1, releases))
    whole = np.zeros((releases, releases), np.int64)
    for j in range(releases):
        whole[j:, j] = np.cumsum(differences[place : place + releases - j])
        place += releases - j
    return Factor.of(OPTIMAL_PLACES, whole)


@cache
def _table() -> Ints:
    """The shipped factors: by length and column, each number less the one above it."""
    text = files("tacit.privacy.counters").joinpath(OPTIMAL_NAME).read_text(encoding="utf-8")
    packed = b64decode(json.loads(text)["factors"])
    return np.frombuffer(decompress(packed), "<i2").astype(np.int64)
