"""Exact noise: round(s Z) and round(s L) as whole numbers, from random bits and integers alone.

Z is a standard normal variable, L a Laplace variable of scale 1, s any scale; every probability is
that of the real variable, to the last digit. :mod:`tacit.privacy.noise` says why such noise is
exactly as private as the real variable.

**How.** |Z| has a density proportional to f(x) = exp(-x^2 / 2), |L| to f(x) = exp(-x). Cut the line
into cells [i / 64, (i + 1) / 64). A point that is uniform below the curve K f has the abscissa that
we want. It is found by rejection. Cell i owns h_i >= K f(i / 64) consecutive whole numbers, and the
first 64 random bits, a whole number U, select the cell whose numbers start at S_i <= U. Further
bits extend U - S_i to a real height and make a uniform fraction phi of the cell, and the point is
taken if its height is below K f((i + phi) / 64). K and h_i are whole numbers, so that selecting the
cell is exact. Most points lie below K f at the right end of the cell and are taken at once. For the
others the curve is bounded from both sides in whole numbers; if that does not decide, more digits
of height and fraction are drawn and the curve is computed with more places, until it does: **a tie
is extended, never broken.** Likewise round(s x): if the digits of x so far leave two whole numbers
possible, more are drawn. A scale is a float, so s = P 2^q with whole P and q, and s x is computed
in whole numbers.

**Tails.** Beyond the last cell |L| is its end plus a fresh |L|: it has no memory. Beyond a = 8 the
normal curve is exp(-a^2 / 2) exp(-a t) exp(-t^2 / 2) at a + t: a t is drawn as a fresh |L| and
taken with probability exp(-t^2 / 2). Both are drawn about once in 10^15 times.

**Where the bits come from.** Real noise: the operating system's generator, 128 bits per number, and
nothing is kept: there is no key and no state that could be copied, saved, forked or guessed. A
simulation takes them from a seed.

The compiled loop (:mod:`tacit.privacy.deviate_loops`) and :meth:`Deviates._settled` compute the
same; the first is fast and gives up on what 64 bits do not decide, the second never does.
"""

from __future__ import annotations

import importlib
import itertools
import math
import os
import sys
from bisect import bisect_right
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import InvalidArgument

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Bits = Callable[[int], bytes]
"""A source of random bytes, as :func:`os.urandom`."""

CELLS = 64
"""How many cells a unit of the line has."""

SMALLEST_SCALE, LARGEST_SCALE = 2.0**-16, 2.0**51

# A process draws so many numbers in Python before it loads numba, unless it is there already: a
# device that sends one report never does.
_FEW = 512
_ROWS = 1 << 16


class Curve(NamedTuple):
    """One of the two densities, and its cells as the loop wants them; the last one is the tail."""

    squared: bool
    end: int
    peak: int
    edges: list[int]
    starts: Words
    heights: Words
    sure: Words
    guide: Words

    def exponent(self, x: Fraction) -> Fraction:
        """-log f(x)."""
        return x * x / 2 if self.squared else x

    @property
    def tail(self) -> int:
        """The area beyond the last cell is at most this many times K f(end), and is drawn so."""
        return CELLS // self.end if self.squared else CELLS


def _exp(exponent: Fraction, places: int) -> Fraction:
    """E to a power, with a relative error below 10^(6 - places)."""
    context = Context(prec=places)
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(context.exp(ratio))


@lru_cache(maxsize=2)
def curve(squared: bool) -> Curve:
    """The cells of exp(-x^2 / 2) up to 8, or of exp(-x) up to 44; beyond them lies 1e-15 or less.

    Heights exceed the curve by less than 2, and areas add up to less than 2^64: what is left
    over selects nothing and is drawn again.
    """
    end = 8 if squared else 44
    # The sum over cells of f at their left ends is below this, the tail included.
    most = Fraction(81 if squared else 65)
    peak = int(2**64 / most) - 4 * CELLS * end
    made = Curve(squared, end, peak, [], *(np.zeros(0, dtype=np.uint64) for _ in range(4)))
    values = [
        math.floor(peak * _exp(-made.exponent(Fraction(i, CELLS)), 40))
        for i in range(CELLS * end + 1)
    ]
    heights = [value + 2 for value in values[:-1]]
    heights.append(made.tail * (values[-1] + 2))
    sure = [max(value - 1, 0) for value in values[1:]] + [0]
    edges = list(itertools.accumulate(heights, initial=0))
    if edges[-1] >= 2**64 - 1:
        raise AssertionError("the cells do not fit into 64 bits")
    guide = [bisect_right(edges, top << 52) - 1 for top in range(1 << 12)]
    return Curve(squared, end, peak, edges, *map(_table, (edges, heights, sure, guide)))


def _table(values: list[int]) -> Words:
    table = np.array(values, dtype=np.uint64)
    table.setflags(write=False)
    return table


class Scale(NamedTuple):
    """A scale as a whole number over a power of two."""

    multiplier: int
    shift: int

    @classmethod
    def of(cls, scale: float) -> Scale:
        """The scale P 2^q: x in units of 2^-58 times P is s x in units of 2^-(58 - q)."""
        if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
            raise InvalidArgument(
                f"exact noise has a scale from {SMALLEST_SCALE:.3g} to {LARGEST_SCALE:.3g} steps, "
                f"got {scale:.6g}"
            )
        mantissa, power = math.frexp(scale)
        return cls(int(mantissa * 2**53), 58 + 53 - power)

    @property
    def fraction(self) -> Fraction:
        """The scale itself."""
        return Fraction(self.multiplier, 1 << (self.shift - 58))


class _Point:
    """A uniform real number in [origin, origin + unit); its binary digits are drawn when needed."""

    def __init__(
        self, bits: Bits, origin: Fraction, unit: Fraction, value: int = 0, count: int = 0
    ) -> None:
        self._bits, self._origin, self._unit = bits, origin, unit
        self._value, self._count = value, count

    @property
    def low(self) -> Fraction:
        """At least this."""
        return self._origin + self._unit * Fraction(self._value, 1 << self._count)

    @property
    def high(self) -> Fraction:
        """At most this."""
        return self._origin + self._unit * Fraction(self._value + 1, 1 << self._count)

    def extend(self) -> None:
        """Draws 64 more digits."""
        self._value = (self._value << 64) | int.from_bytes(self._bits(8), "big")
        self._count += 64

    def moved(self, by: int, divisor: int = 1) -> _Point:
        """``by`` plus the number over a divisor."""
        origin, unit = by + self._origin / divisor, self._unit / divisor
        return _Point(self._bits, origin, unit, self._value, self._count)


class Deviates:
    """Whole numbers with exactly the law of round(s Z) and round(s L).

    Args:
        bits: where random bytes come from; the operating system by default.

    >>> Deviates().normal(2.0**20, 3).shape
    (3,)
    """

    _in_python: ClassVar[int] = 0

    def __init__(self, bits: Bits | None = None) -> None:
        self._bits = os.urandom if bits is None else bits

    def normal(self, scale: float, count: int) -> Ints:
        """``count`` independent round(scale Z), Z standard normal."""
        return self._drawn(curve(True), Scale.of(scale), count)

    def laplace(self, scale: float, count: int) -> Ints:
        """``count`` independent round(scale L), L Laplace of scale 1."""
        return self._drawn(curve(False), Scale.of(scale), count)

    @classmethod
    def _few(cls, count: int) -> bool:
        """Whether so many more are drawn in Python."""
        if "numba" in sys.modules:
            return False
        cls._in_python += count
        return cls._in_python <= _FEW

    def _drawn(self, cells: Curve, scale: Scale, count: int) -> Ints:
        if self._few(count):
            return np.array([self._one(cells, scale) for _ in range(count)], dtype=np.int64)
        from tacit.privacy.deviate_loops import fill

        out = np.empty(count, dtype=np.int64)
        filled = 0
        while filled < count:
            left = count - filled
            # A few more than are wanted, as some are rejected; none where bytes are counted.
            rows = left if count < _FEW else min(_ROWS, left + left // 64 + 16)
            undecided = np.empty((rows, 2), dtype=np.int64)
            words = np.frombuffer(self._bits(16 * rows), dtype=np.uint64).reshape(rows, 2)
            part = out[filled:]
            by = np.uint64(scale.multiplier), np.uint64(scale.shift)
            more, waiting = fill(words, cells[4:], cells.squared, by, part, undecided)
            for place, row in undecided[:waiting].tolist():
                first, second = words[row].tolist()
                settled = self._settled(cells, scale, first, second)
                # Rejected, it is drawn anew, in its place: places must not depend on values.
                part[place] = self._one(cells, scale) if settled is None else settled
            filled += more
        return out

    def _one(self, cells: Curve, scale: Scale) -> int:
        """One number, drawn until a point is taken."""
        while (drawn := self._settled(cells, scale, *self._words())) is None:
            pass
        return drawn

    def _words(self) -> tuple[int, int]:
        drawn = self._bits(16)
        if len(drawn) != 16:
            raise InvalidArgument("a source of random bytes must give as many as are asked for")
        return int.from_bytes(drawn[:8], "little"), int.from_bytes(drawn[8:], "little")

    def _settled(self, cells: Curve, scale: Scale, first: int, second: int) -> int | None:
        """The number that two words and, where they do not decide, further digits make."""
        point = self._point(cells, first, second)
        if point is None:
            return None
        factor, half = scale.fraction, Fraction(1, 2)
        while True:
            steps = math.floor(factor * point.low + half)
            if factor * point.high + half <= steps + 1:
                return -steps if second >> 63 else steps
            point.extend()

    def _point(self, cells: Curve, first: int, second: int) -> _Point | None:
        """The abscissa of the point below the curve that two words select, if it is taken."""
        cell = bisect_right(cells.edges, first) - 1
        if cell > CELLS * cells.end:
            return None
        above = first - cells.edges[cell]
        if cell == CELLS * cells.end:
            return self._beyond(cells, above)
        origin, unit = Fraction(cell, CELLS), Fraction(1, CELLS)
        point = _Point(self._bits, origin, unit, second & (2**63 - 1), 63)
        if above < int(cells.sure[cell]) or self._under(above, cells.peak, cells.exponent, point):
            return point
        return None

    def _beyond(self, cells: Curve, above: int) -> _Point | None:
        """A point in the tail, if it is taken."""
        end = cells.end
        here = _Point(self._bits, Fraction(end), Fraction(0))
        if not self._under(above, cells.tail * cells.peak, cells.exponent, here):
            return None
        further = None
        while further is None:
            further = self._point(curve(False), *self._words())
        if not cells.squared:
            return further.moved(end)
        if self._under(0, 1, lambda x: (x / end) ** 2 / 2, further):
            return further.moved(end, end)
        return None

    def _under(
        self, above: int, area: int, exponent: Callable[[Fraction], Fraction], point: _Point
    ) -> bool:
        """Whether a height in [above, above + 1) is below area * exp(-exponent(point)).

        The exponent grows with the point. Digits of both are drawn until it is clear.
        """
        height, places = _Point(self._bits, Fraction(above), Fraction(1)), 40
        while True:
            slack = Fraction(1, 10 ** (places - 6))
            if height.high <= area * _exp(-exponent(point.high), places) * (1 - slack):
                return True
            if height.low >= area * _exp(-exponent(point.low), places) * (1 + slack):
                return False
            height.extend()
            point.extend()
            places += 20


def prepare() -> None:
    """Loads the compiled loop, and all of numba that it needs, by a discarded draw.

    To be called before there is any data: numba cannot be loaded again after a signal, or the end
    of memory, came into that.
    """
    importlib.import_module("tacit.privacy.deviate_loops")
    Deviates(bytes).normal(1.0, 1)
