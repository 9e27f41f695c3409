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
    """Says on a terminal which loops are compiled, which takes seconds each."""

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
