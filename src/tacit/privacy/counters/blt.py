"""BLT for long streams, and for streams whose end nobody knows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np

from tacit.privacy.counters.base import Counter, Floats, check_release, unit_std
from tacit.privacy.counters.blt_factor import BLT, tabulated
from tacit.privacy.counters.fixed_point import FixedPoint, Resolution, octave, octave_share
from tacit.privacy.counters.grid import LARGEST, Ints
from tacit.privacy.errors import InvalidArgument

ENDLESS_NAME = "endless_factor.json"


class BufferedToeplitz(Counter):
    """BLT: a Toeplitz factorisation whose noise streams through a handful of buffers.

    C's coefficients are 1 and sums of ``buffers`` geometric series, and so are those of its
    inverse; the noise of the running sum is the running sum of C^-1 z, which needs one buffer per
    series. With four buffers the worst-case error is within 1 % of the square root's up to 2^17
    releases, at constant memory and time per release. See :mod:`tacit.privacy.counters.blt_factor`.

    C's numbers are rounded to 2^-32 and w = C x + z is computed in whole numbers
    (:mod:`tacit.privacy.counters.fixed_point`). What is published is the running sum of C^-1 w, by
    the recursion x_t = w_t - sum_i w_i s_i, s_i = a_i s_i + x_t, in floating point. Rounding C x
    moves that by less than 1e-4 times the noise.

    >>> counter = BufferedToeplitz(releases=2**17, mu=1.0)
    >>> counter.memory, bool(counter.std.max() < 4.86)
    (11, True)
    """

    kind = "blt"
    kept = ("buffers", "back", "published")
    rounding: ClassVar[float] = 1e-4
    """What rounding adds to the sensitivity, at most."""

    def __init__(
        self,
        sensitivity: float = 1.0,
        releases: int | None = None,
        shape: tuple[int, ...] = (),
        *,
        parameters: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
        numerators: Sequence[Sequence[int]] | None = None,
        **options: Any,
    ) -> None:
        checked = self._check_releases(releases)
        self.fit = _dyadic(self._fitted(checked, parameters))
        self._fixed = FixedPoint.of(self.fit.a, tuple(self.fit.weights))
        if numerators is not None:
            self._fixed = FixedPoint(*(tuple(map(int, row)) for row in numerators))
        super().__init__(sensitivity, releases, shape, **options)

    def _fitted(
        self,
        releases: int | None,
        parameters: tuple[tuple[float, ...], tuple[float, ...]] | None,
    ) -> BLT:
        if parameters is None:
            return tabulated(releases or 1)
        return BLT(releases or 1, tuple(parameters[0]), tuple(parameters[1]))

    @property
    def column_norm(self) -> float:
        """Closed form of the first column's norm, with what rounding adds."""
        return self._fixed.column_norm(self.releases) + self.rounding

    def row_norms(self, upto: int) -> Floats:
        """Roots of the cumulative squares of the coefficients of A C^-1."""
        return self.fit.row_norms(upto)

    def std_at(self, release: int) -> float:
        """Noise standard deviation at one release, in constant time."""
        check_release(self, release)
        return float(unit_std(self) * self.fit.row_norms_at(np.array([float(release)]))[0])

    @property
    def memory(self) -> int:
        """The running sum, what was published, one more, and buffers of C and of its inverse."""
        return 3 + 2 * self.fit.buffers

    @property
    def largest_sum(self) -> float:
        """Largest sum of item sizes, by the places of the buffers."""
        places = self._resolution(self.released + 1).buffers
        return self._grid.most(self._items, LARGEST >> places)

    def _start(self) -> None:
        self._buffers: Ints = np.zeros((self.fit.buffers, self.size), np.int64)
        if not self._fixed.valid:
            raise InvalidArgument("numerators must be whole numbers between 0 and 2^32")
        self._decay = np.array(self._fixed.decays)[:, np.newaxis] / 2.0**32
        self._weights = np.array(self._fixed.weights) / 2.0**32
        self._back = np.zeros((self.fit.buffers, self.size))
        self._published = np.zeros(self.size)
        least = (self.releases or 1) * self._grid.apart / 2.0
        if self.largest_sum < least:
            raise InvalidArgument(
                f"exact sums of {self.releases or 1:,} releases need {least:.3g} steps, but must "
                f"stay below {self.largest_sum:.3g}: declare fewer releases"
            )

    def _resolution(self, release: int) -> Resolution:
        """The binary places of a release."""
        added = self.rounding * self._grid.apart / math.sqrt(self.size)
        return self._fixed.resolution(self.releases or 1, added)

    def _places(self) -> int:
        return self._resolution(self.released + 1).noise

    def _released(self, steps: Ints, fresh: Ints) -> Floats:
        unit = self._resolution(self.released)
        if self.released > 1:
            self._buffers <<= unit.buffers - self._resolution(self.released - 1).buffers
        w = self._fixed.step(self._buffers, steps, unit) + fresh
        return self._inverted(np.ldexp(w.astype(np.float64), -unit.noise))

    def _inverted(self, seen: Floats) -> Floats:
        """The next entry of A C^-1 w."""
        item = seen - self._weights @ self._back
        self._back *= self._decay
        self._back += item
        self._published += item
        return self._published.copy()

    def _options(self) -> dict[str, Any]:
        # The parameters themselves, so that a saved counter does not depend on a later fit.
        return {
            "parameters": [list(self.fit.u), list(self.fit.v)],
            "numerators": [list(self._fixed.decays), list(self._fixed.weights)],
        }


class Endless(BufferedToeplitz):
    """A BLT for a stream of unknown length.

    All a_i are below 1, so the columns of C have a finite length however long they go on:
    |c|^2 = 1 + sum_ij w_i w_j / (1 - a_i a_j). That is what is paid, once, and it pays for any
    number of releases. What can get worse for ever is the error, not the privacy. The eight buffers
    are fitted so that at every number t of releases up to 2^24 the error is within 36 % of a square
    root that had known t; beyond that it grows like sqrt(t) in the end.

    The units of the whole numbers become finer from octave to octave, so that what
    rounding adds stays below 0.1 % for ever; ``largest_sum`` therefore shrinks.

    >>> endless = Endless(mu=1.0)
    >>> endless.releases, endless.memory, round(endless.std_at(2**20), 2)
    (None, 19, 7.32)
    """

    kind = "endless"
    horizon_free = True
    rounding = 1e-3

    def _fitted(
        self,
        releases: int | None,
        parameters: tuple[tuple[float, ...], tuple[float, ...]] | None,
    ) -> BLT:
        u, v = _endless() if parameters is None else parameters
        # So long that not a digit of the columns' norm is left to come.
        return BLT(1 << 60, tuple(u), tuple(v))

    @property
    def column_norm(self) -> float:
        """The norm of a column that goes on for ever, with what rounding adds."""
        return self._fixed.column_norm(None) + self.rounding

    def _resolution(self, release: int) -> Resolution:
        number = octave(release)
        added = self.rounding * self._grid.apart / math.sqrt(self.size)
        return self._fixed.resolution(1 << number, octave_share(number) * added)


def _dyadic(fit: BLT) -> BLT:
    """The fit with all decay rates rounded to 2^-32, as the fixed point has them."""
    u, v = (tuple(round(x * 2.0**32) / 2.0**32 for x in row) for row in (fit.u, fit.v))
    try:
        return BLT(fit.releases, u, v)
    except InvalidArgument:
        raise InvalidArgument(
            f"{fit.releases:,} releases are too many for exact noise: declare fewer"
        ) from None


@cache
def _endless() -> tuple[tuple[float, ...], tuple[float, ...]]:
    text = files("tacit.privacy.counters").joinpath(ENDLESS_NAME).read_text(encoding="utf-8")
    entry = json.loads(text)
    return tuple(entry["u"]), tuple(entry["v"])
