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
"""

from __future__ import annotations

import math
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
