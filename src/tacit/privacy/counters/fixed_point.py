"""The C x of a BLT in whole numbers, and how far rounding can carry two neighbours apart.

C has the coefficients c_0 = 1 and c_k = sum_i w_i a_i^(k-1), k >= 1. All w_i and a_i are whole
numbers over 2^32. So (C x)_t = x_t + sum_i w_i s_i with s_i = a_i s_i + x_t after each release. The
buffers s_i are whole numbers in units of 2^-P steps; the products a_i s_i and w_i s_i are rounded
to such a unit, and (C x)_t to a coarser one of 2^-p steps, in which the noise is.

**Rounding moves neighbours apart.** Let two streams differ in item k, by v, of d coordinates.
Before k all is equal. The difference of two roundings is within one unit of the difference of what
was rounded. So from k on the difference of the two buffers follows s_i = a_i s_i + v, exactly, plus
what is added by rounding: at most one unit in every coordinate at every release t.

* What is added to buffer i at release t appears in C x from then on as w_i, w_i a_i, w_i a_i^2, ..,
  a sequence of length at most w_i / sqrt(1 - a_i^2). All buffers and all releases together, by the
  triangle inequality, move C x by at most sqrt(d) kappa sum_t 2^-P_t, with
  kappa = sum_i w_i / sqrt(1 - a_i^2).
* The products w_i s_i add at most ``buffers`` units of 2^-P_t at release t, the last rounding one
  of 2^-p_t: over m releases with the same P and p, sqrt(d m) (buffers 2^-P + 2^-p).

Together with |c| |v| for the linear part this bounds the distance of C x, for all items and on
every path, so also if items are chosen from earlier releases. That is enough for mu-Gaussian-DP
with mu = distance / s: given the past, release t moves by a vector D_t that the past determines,
with sum_t |D_t|^2 <= distance^2. Let a last release, of noise alone, use up what is left of it.
Then the log-likelihood ratio of the transcript is a Brownian motion, with drift, at a time that is
known in advance, as for items that do not depend on anything. Leaving the last release out is
post-processing.

**Resolution.** P and p are such that all this is 1e-4 of the sensitivity at most. Where
nobody knows the number of releases they grow: releases 2^k .. 2^(k+1) - 1 are octave k and
have a P and a p of their own, which are so fine that the octave uses no more than its share. To go
on to a finer unit, buffers are multiplied by a power of two, which is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.counters.grid import Ints

_HALF = 32
_ONE = 1 << _HALF
_LOW = np.int64(_ONE - 1)

# The first octaves of an endless stream have equal shares of what rounding may add.
_EQUAL_OCTAVES, _EQUAL_SHARE = 25, 1.0 / 32.0


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

    def column_norm(self, releases: int | None) -> float:
        """The norm of the first column of C, rounded up; of an endless one without a number.

        1 + sum_ij w_i w_j (1 - r^m) / (1 - r) with r = a_i a_j and m = releases - 1. Nothing
        cancels: 1 - r is computed from whole numbers. So floats are off by a few units in the last
        place, which 1e-12 covers.
        """
        square = 1.0
        for a, w in zip(self.decays, self.weights, strict=True):
            for b, x in zip(self.decays, self.weights, strict=True):
                gap = (_ONE * _ONE - a * b) / (_ONE * _ONE)
                fading = 1.0
                if releases is not None:
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


def octave(release: int) -> int:
    """The octave of a release.

    >>> octave(1), octave(7), octave(8)
    (0, 2, 3)
    """
    return release.bit_length() - 1


@lru_cache(maxsize=256)
def octave_share(number: int) -> float:
    """Share of an octave in all that rounding may add; together no more than 1.

    Never more than the octave before, so that units never become coarser.
    """
    if number < _EQUAL_OCTAVES:
        return _EQUAL_SHARE
    rest = 1.0 - _EQUAL_OCTAVES * _EQUAL_SHARE
    later = number - _EQUAL_OCTAVES
    return min(_EQUAL_SHARE, rest / ((later + 1.0) * (later + 2.0)))
