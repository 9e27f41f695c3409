"""The one door to numba. Imported only by modules of loops: numba is slow to load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import event
from numpy.typing import NDArray

Floats = NDArray[np.float64]


Ints = NDArray[np.int64]


F = TypeVar("F", bound=Callable[..., object])


class _Notice(event.Listener):  # type: ignore[misc]
    """Says on a terminal which loops are compiled, so that nobody wonders what takes so long."""

    compiled = 0

    def on_start(self, event: Any) -> None:
        """Loops of ours that were not on disk; those that they call come with them."""
        function = event.data["dispatcher"].py_func
        if not function.__module__.startswith("tacit.") or function.__name__.startswith("_"):
            return
        if self.compiled == 0 and sys.stderr.isatty():
            words = "Compiling loops, once on this machine (tacit doctor --compile does it ahead):"
            print(words, file=sys.stderr)  # noqa: T201
        self.compiled += 1
        if sys.stderr.isatty():
            where = function.__module__.removeprefix("tacit.")
            print(f"  {self.compiled}. {where}.{function.__name__}", file=sys.stderr)  # noqa: T201

    def on_end(self, event: Any) -> None:
        """Nothing: the next one says it."""


NOTICE = _Notice()
"""How many loops this process had to compile."""
event.register("numba:compile", NOTICE)


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


@inner
def _descend(values: Floats) -> None:
    """Sorts in place, the largest first: Shell's way compiles in a tenth of NumPy's time."""
    gap = 1
    while 3 * gap + 1 < len(values):
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, len(values)):
            value, at = values[i], i
            while at >= gap and values[at - gap] < value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
        gap //= 3


@compiled
def project(counts: Floats, known: NDArray[np.bool_], out: Floats) -> None:
    """Rows of noisy counts (R, S) to the nearest distributions; uniform where not known.

    The nearest point with the same sum and no negative entry: subtract one number from all, cut
    at zero. Dividing by the sum gives the probabilities.
    """
    rows, states = counts.shape
    ordered = np.empty(states)
    for row in range(rows):
        total, lowest = 0.0, counts[row, 0]
        for state in range(states):
            total += counts[row, state]
            lowest = min(lowest, counts[row, state])
            ordered[state] = counts[row, state]
        if not known[row] or total <= 0.0:
            for state in range(states):
                out[row, state] = 1.0 / states
            continue
        threshold = 0.0
        if not lowest >= 0.0:
            _descend(ordered)
            running = 0.0
            for k in range(states):
                running += ordered[k]
                level = (running - total) / (k + 1)
                if ordered[k] > level:
                    threshold = level
        for state in range(states):
            out[row, state] = max(counts[row, state] - threshold, 0.0) / total
