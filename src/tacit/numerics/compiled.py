"""The one door to numba. Imported only by modules of loops: numba is slow to load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F, **how: Any) -> F:
    """Compiles with numba and keeps the result on disk, where some directory is writable."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True, **how)(function))
    except RuntimeError:
        # "cannot cache function: no locator available": compile anew in each process instead.
        return cast(F, numba.njit(nogil=True, **how)(function))


def fused(function: F) -> F:
    """As :func:`compiled`, with products and sums rounded once."""
    return compiled(function, fastmath={"contract"})


def inner(function: F) -> F:
    """As :func:`compiled`, for what compiled functions alone call: that compiles faster."""
    return compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)
