"""The compiled form of :mod:`tacit.privacy.deviates`: whole numbers only, in 64 bits.

Everything is unsigned, for where numba meets a signed and an unsigned number it computes in floats.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
Table = tuple[Words, Words, Words, Words]
Pair = tuple[np.uint64, np.uint64]

_U = np.uint64
_ZERO, _ONE, _FOUR = _U(0), _U(1), _U(4)
_LOW = _U(0xFFFFFFFF)
_ONE_31 = _U(1 << 31)


def _rounded(number: Pair, multiplier: np.uint64, shift: np.uint64) -> tuple[np.uint64, bool]:
    """Whole number nearest to (high, low) / 2^shift; whether it stays for a multiplier more."""
    high, low = number
    # Plus a half.
    if shift > _U(64):
        high += _ONE << (shift - _U(65))
    else:
        half = _ONE << (shift - _ONE)
        low += half
        if low < half:
            high += _ONE
    low_next = low + multiplier
    high_next = high + (_ONE if low_next < low else _ZERO)
    if shift >= _U(64):
        steps = high >> (shift - _U(64))
        return steps, steps == high_next >> (shift - _U(64))
    up = _U(64) - shift
    steps = (high << up) | (low >> shift)
    return steps, steps == (high_next << up) | (low_next >> shift)


rounded = numba.njit(inline="always")(_rounded)


def _fill(
    words: Words, table: Table, squared: bool, scale: Pair, out: Ints, undecided: Ints
) -> tuple[int, int]:
    """Fills ``out`` from rows of two words; returns how many are filled and how many undecided.

    A row that 64 bits do not decide keeps its place in ``out``, and ``undecided`` gets the pair
    (place, row): the caller draws more digits for it.
    """
    starts, heights, sure, guide = table
    (multiplier, shift), filled, open_rows = scale, 0, 0
    tail = _U(len(heights) - 1)
    for row in range(len(words)):
        if filled == len(out) or open_rows == len(undecided):
            break
        height, digits = words[row, 0], words[row, 1]
        cell = guide[height >> _U(52)]
        while cell <= tail and height >= starts[cell + _ONE]:
            cell += _ONE
        if cell > tail:
            continue
        negative = digits >> _U(63)
        fraction = digits & _U(0x7FFFFFFFFFFFFFFF)
        above = height - starts[cell]
        decided = cell != tail
        if decided and above >= sure[cell]:
            phi = fraction >> _U(33)
            if squared:
                exponent = (phi * (((cell << _U(31)) + phi) >> _U(10))) >> _U(32)
            else:
                exponent = phi >> _U(5)
            ratio = _ONE_31
            for order in range(7, 0, -1):
                ratio = _ONE_31 - (((exponent * ratio) // _U(order)) >> _U(31))
            length = _ZERO
            while (heights[cell] >> length) >= _ONE_31:
                length += _ONE
            most = heights[cell] >> length
            curve = (most * ratio) >> _U(31)
            margin = (most >> _U(25)) + _FOUR
            level = above >> length
            if level > curve + margin:
                continue
            decided = level + margin < curve
        if decided:
            place = (cell << _U(52)) | (fraction >> _U(11))
            # (high, low) = multiplier * place, by halves.
            m1, m0, p1, p0 = multiplier >> _U(32), multiplier & _LOW, place >> _U(32), place & _LOW
            middle = m1 * p0 + ((m0 * p0) >> _U(32))
            middle_low = (middle & _LOW) + m0 * p1
            low = (middle_low << _U(32)) | ((m0 * p0) & _LOW)
            high = m1 * p1 + (middle >> _U(32)) + (middle_low >> _U(32))
            steps, decided = rounded((high, low), multiplier, shift)
            # By the last 11 digits of the fraction, too, where 128 bits hold it.
            if not decided and shift < _U(100):
                high, last = (high << _U(11)) | (low >> _U(53)), multiplier * (fraction & _U(0x7FF))
                low = (low << _U(11)) + last
                high += _ONE if low < last else _ZERO
                steps, decided = rounded((high, low), multiplier, shift + _U(11))
            if decided:
                out[filled] = np.int64(steps) if negative == _ZERO else -np.int64(steps)
        if not decided:
            undecided[open_rows, 0] = filled
            undecided[open_rows, 1] = row
            open_rows += 1
        filled += 1
    return filled, open_rows


try:
    fill = numba.njit(cache=True, nogil=True)(_fill)
except RuntimeError:
    # "cannot cache function: no locator available": compile anew in each process instead.
    fill = numba.njit(nogil=True)(_fill)
