"""Counters in whole numbers: items on a grid, and why exact noise is exactly as private.

**What is published.** A counter is a factorisation A = B C (see :mod:`.base`). An
item is a vector x_t of whole steps of a grid. C has dyadic entries, whole numbers over 2^p, so C x
lies on the grid of 2^-p steps. Let

    w_t = (C x)_t + 2^-p round(2^p s Z_t),    Z_t standard normal in every coordinate.

Because 2^p C x is whole, w = 2^-p round(2^p (C x + s Z)). So w is post-processing of the Gaussian
mechanism on real numbers, and exactly mu-Gaussian-DP with mu = c D / s. Here c is the largest
column norm of the C that is used, rounded entries and all, computed from whole numbers and rounded
up, and D is the largest distance of two neighbours' items in steps. The running sums are
y = A C^-1 w: **a function of w alone**. So they may be computed in floating point. What must never
happen is that an exact sum and the noise are added as floats: the lowest bits of the result would
tell them apart. Blocks and trees have a B of zeros and ones. There y is the sum plus
whole noise, which is the same thing. With Laplace variables in place of Z, and 1-norms, all this
holds for pure DP.

**The grid.** Its step g is a power of two; it depends on the sensitivity and on the size of an
item alone. Items become round(x / g), which moves a neighbour by at most one step more in every
coordinate (:func:`tacit.privacy.noise.steps_apart`).

**Range.** Sums and C x are 64-bit integers. ``largest_sum`` of a counter says how large the sizes
of all items together may be. Noise in steps has a scale of at most 2^40, and in units of 2^-p of
at most 2^51: far too little to leave the range. If it did, integers would wrap around, which is a
function of w too: the numbers would be useless, and as private as before.

**The C x of a BLT in whole numbers, and how far rounding can carry two neighbours apart.**

C has the coefficients c_0 = 1 and c_k = sum_i w_i a_i^(k-1), k >= 1. All w_i and a_i are whole
numbers over 2^32. So (C x)_t = x_t + sum_i w_i s_i with s_i = a_i s_i + x_t after each release. The
buffers s_i are whole numbers in units of 2^-P steps; the products a_i s_i and w_i s_i are rounded
to such a unit, and (C x)_t to a coarser one of 2^-p steps, in which the noise is.

**Rounding moves neighbours apart.** Let two streams differ in item k, by v, of d coordinates.
Before k all is equal. The difference of two roundings is within one unit of the difference of what
was rounded. So from k on the difference of the two buffers follows s_i = a_i s_i + v, exactly, plus
what is added by rounding: at most one unit in every coordinate at every release t.

* What is added to buffer i at release t appears in C x from then on as w_i, w_i a_i, w_i a_i^2, ..,
  a sequence of length at most w_i / sqrt(1 - a_i^2). All buffers and all m releases together, by
  the triangle inequality, move C x by at most sqrt(d) kappa m 2^-P, with
  kappa = sum_i w_i / sqrt(1 - a_i^2).
* The products w_i s_i add at most ``buffers`` units of 2^-P at release t, the last rounding one
  of 2^-p: over m releases sqrt(d m) (buffers 2^-P + 2^-p).

Together with |c| |v| for the linear part this bounds the distance of C x, for all items and on
every path, so also if items are chosen from earlier releases. That is enough for mu-Gaussian-DP
with mu = distance / s: given the past, release t moves by a vector D_t that the past determines,
with sum_t |D_t|^2 <= distance^2. Let a last release, of noise alone, use up what is left of it.
Then the log-likelihood ratio of the transcript is a Brownian motion, with drift, at a time that is
known in advance, as for items that do not depend on anything. Leaving the last release out is
post-processing.

**Resolution.** P and p are such that all this is 1e-4 of the sensitivity at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import step_below, steps_apart

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LARGEST = 1 << 61
"""Of sums, in units of 2^-p."""

_LARGEST_WHOLE_FLOAT = 2.0**53
LARGEST_NOISE = 2.0**40
"""The largest scale of noise, in steps."""


class ItemGrid(NamedTuple):
    """A counter's grid.

    Attributes:
        step: its step, in units of items; 1 if items are whole numbers already.
        apart: how far two neighbours' items are apart at most, in steps.
        whole: whether items are whole numbers already.
    """

    step: float
    apart: float
    whole: bool

    @classmethod
    def of(cls, sensitivity: float, size: int, norm: Literal["l1", "l2"], whole: bool) -> ItemGrid:
        """The grid of a counter's items.

        Args:
            sensitivity: Of an item, in its own unit.
            size: Coordinates of an item.
            norm: Of the sensitivity.
            whole: Whether items are whole numbers already.
        """
        if whole:
            return cls(1.0, sensitivity, True)
        step = step_below(sensitivity, size, norm)
        return cls(step, steps_apart(sensitivity, size, norm, step), False)

    def steps(self, item: ArrayLike, shape: tuple[int, ...]) -> Ints:
        """An item as a vector of whole steps; refused if it is of another shape or not finite."""
        array = np.asarray(item)
        if array.shape != shape:
            raise InvalidArgument(f"item must have shape {shape}, got {array.shape}")
        if self.whole and array.dtype.kind == "i":
            if array.max() > LARGEST or array.min() < -LARGEST:
                raise InvalidArgument("item is too large: exact sums must stay below 2^61 steps")
            return array.astype(np.int64).reshape(-1)
        vector = array.astype(np.float64).reshape(-1)
        if not np.isfinite(vector).all():
            raise InvalidArgument("item must be finite: clip users' values before they are summed")
        steps = np.rint(vector / self.step)
        if self.whole and (steps != vector).any():
            raise InvalidArgument("item must be whole numbers")
        if np.abs(steps).max() >= (_LARGEST_WHOLE_FLOAT if self.whole else LARGEST):
            raise InvalidArgument("item is too large for exact sums: is it clipped?")
        return steps.astype(np.int64)

    def units(self, scale: float, places: int) -> float:
        """The scale of noise in units of 2^-places steps."""
        return math.ldexp(scale / self.step, places)


def root_up(square: int) -> float:
    """A float that is at least the root of a whole number, and hardly above it.

    >>> root_up(4), root_up(2**80 + 1) > 2.0**40
    (2.0, True)
    """
    root = math.isqrt(square)
    if root * root == square and root < 2**53:
        return float(root)
    # A root of 54 binary places or more; a float of it is off by one in 2^53.
    shift = max(0, 55 - root.bit_length())
    digits = math.isqrt(square << 2 * shift) + 1
    return math.nextafter(math.ldexp(float(digits), -shift), math.inf)


_HALF = 32
_ONE = 1 << _HALF
_LOW = np.int64(_ONE - 1)


class Resolution(NamedTuple):
    """Binary places: of the buffers, and of what noise is added to."""

    buffers: int
    noise: int


@dataclass(frozen=True)
class FixedPoint:
    """C's decay rates and weights, as whole numbers over 2^32."""

    decays: tuple[int, ...]
    weights: tuple[int, ...]

    @classmethod
    def of(cls, decays: tuple[float, ...], weights: tuple[float, ...]) -> FixedPoint:
        """Rounded to 2^-32."""
        return cls(tuple(round(a * _ONE) for a in decays), tuple(round(w * _ONE) for w in weights))

    @property
    def valid(self) -> bool:
        """Whether all are between 0 and 1."""
        return all(0 < x < _ONE for x in (*self.decays, *self.weights))

    def column_norm(self, releases: int) -> float:
        """The norm of the first column of C, rounded up.

        1 + sum_ij w_i w_j (1 - r^m) / (1 - r) with r = a_i a_j and m = releases - 1. Nothing
        cancels: 1 - r is computed from whole numbers. So floats are off by a few units in the last
        place, which 1e-12 covers.
        """
        square = 1.0
        for a, w in zip(self.decays, self.weights, strict=True):
            for b, x in zip(self.decays, self.weights, strict=True):
                gap = (_ONE * _ONE - a * b) / (_ONE * _ONE)
                rates = math.log1p(-(_ONE - a) / _ONE) + math.log1p(-(_ONE - b) / _ONE)
                fading = -math.expm1((releases - 1) * rates)
                square += (w / _ONE) * (x / _ONE) * fading / gap
        return math.sqrt(square) * (1.0 + 1e-12)

    @cached_property
    def kappa(self) -> float:
        """How far a rounding of all buffers reaches; see the module."""
        return sum(
            w / math.sqrt(_ONE * _ONE - a * a)
            for a, w in zip(self.decays, self.weights, strict=True)
        ) * (1.0 + 1e-12)

    def resolution(self, releases: int, added: float) -> Resolution:
        """The coarsest units that move so many releases by at most ``added`` steps.

        ``added`` is per coordinate: the distance over sqrt(d). Half of it is for each unit.
        """
        return _resolution(self.kappa, len(self.decays), releases, added)

    def step(self, buffers: Ints, steps: Ints, unit: Resolution) -> Ints:
        """(C x)_t in units of 2^-p, for the next item; the buffers, in units of 2^-P, move on."""
        item = steps << unit.buffers
        total = item + scaled(buffers, self.weights).sum(axis=0)
        buffers[...] = scaled(buffers, self.decays) + item
        return _shifted(total, unit.buffers - unit.noise)


@lru_cache(maxsize=256)
def _resolution(kappa: float, buffers: int, releases: int, added: float) -> Resolution:
    reach = kappa * releases + buffers * math.sqrt(releases)
    noise = max(0, math.ceil(math.log2(2.0 * math.sqrt(releases) / added)))
    return Resolution(max(noise, math.ceil(math.log2(2.0 * reach / added))), noise)


def scaled(values: Ints, numerators: tuple[int, ...]) -> Ints:
    """round(values * numerators / 2^32), row by row, without leaving 64 bits.

    With values = h 2^32 + l, 0 <= l < 2^32, it is h n + round(l n / 2^32), a half upwards.

    >>> scaled(np.array([[2**60 + 1]]), (2**31,)).item() == 2**59 + 1
    True
    """
    factors = np.array(numerators, np.int64)[:, np.newaxis]
    low: NDArray[np.uint64] = (values & _LOW).astype(np.uint64) * factors.astype(np.uint64)
    low += np.uint64(1 << (_HALF - 1))
    product: Ints = (values >> _HALF) * factors + (low >> np.uint64(_HALF)).astype(np.int64)
    return product


def _shifted(values: Ints, places: int) -> Ints:
    """Each over 2^places, rounded, a half upwards."""
    return values if places == 0 else (values + (1 << (places - 1))) >> places
