"""Counters that keep a vector for every release: any triangular factor will do.

The items x of all releases are kept, and w = C x + z (see :mod:`.grid`): the t-th release is row t
of B times w, a function of w alone.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.counters.base import Counter, Floats
from tacit.privacy.counters.grid import Ints
from tacit.privacy.errors import CorruptFile, InvalidArgument

PLACES = 14
"""The binary places of rounded factors: noise is larger by less than 0.01 % for them."""


class History(Counter):
    """A counter that keeps two vectors for every release."""

    @abstractmethod
    def _factor_row(self, release: int) -> Ints:
        """The first entries of a row of C up to the diagonal, as whole numbers over 2^p."""

    @abstractmethod
    def _row(self, release: int) -> Floats:
        """The first entries of a row of B up to the diagonal."""

    @abstractmethod
    def _numerators(self) -> Ints:
        """All whole numbers that C consists of."""

    @property
    def memory(self) -> int:
        """The running sum, and an item and its w per release."""
        return 1 + 2 * (self.releases or 1)

    def _start(self) -> None:
        self._past = np.empty((0, self.size), np.int64)
        self._seen = np.empty((0, self.size))

    def _released(self, steps: Ints, fresh: Ints) -> Floats:
        t = self.released
        self._past = self._with(self._past, steps)
        w = self._factor_row(t) @ self._past[:t] + fresh
        self._seen = self._with(self._seen, np.ldexp(w.astype(np.float64), -self._places()))
        published: Floats = self._row(t) @ self._seen[:t]
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
        return {"factor": _digest(self._numerators())}, arrays

    def _restore(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        if values["factor"] != _digest(self._numerators()):
            raise CorruptFile(f"this {self.kind} counter was saved with another factor")
        for name, rows in arrays.items():
            setattr(self, f"_{name}", rows)


def _digest(numerators: Ints) -> str:
    return hashlib.sha256(numerators.astype("<i8").tobytes()).hexdigest()


def refuse_long(kind: str, releases: int, longest: int, how: str) -> None:
    """Refuses a history that would be too long."""
    if releases > longest:
        raise InvalidArgument(
            f"releases must be at most {longest:,} for {how} {kind}, which keeps a vector for "
            f"each, got {releases!r}: take blt"
        )
