"""Secret state has one owner: not copied, not gone on with after a fork, one call at a time."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, Self, TypeVar

from tacit.privacy.errors import Busy, DoubleSpend


class Uncopyable:
    """Refuses to be copied or pickled, in the words of ``why_single``."""

    why_single: ClassVar[str]

    def __copy__(self) -> Self:
        raise TypeError(self.why_single)

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return (self.__copy__(),)


class Owner:
    """Refuses to go on in a forked process, where parent and child would share a state."""

    def __init__(self, simulation: bool) -> None:
        self._pid = None if simulation else os.getpid()

    def check(self, what: str) -> None:
        """Raises in any process but the one that made the state."""
        if self._pid is not None and self._pid != os.getpid():
            raise DoubleSpend(
                f"this {what} belongs to another process: after a fork both would publish from one "
                f"state, and pay once"
            )


_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock() -> threading.RLock:
    """A lock that is free in a forked process, whoever held it.

    The thread that did is not there, and whoever waited for it would never be told that a state
    belongs to another process.
    """
    lock = threading.RLock()
    _LOCKS.add(lock)
    return lock


def _free() -> None:
    for lock in _LOCKS:
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)


class Locked(Protocol):
    """What calls come to one at a time."""

    _lock: threading.RLock


L = TypeVar("L", bound=Locked)
P = ParamSpec("P")
R = TypeVar("R")


def alone(method: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """One call at a time of all methods of an object that are marked so.

    Another thread waits. A call within a call of the same thread is refused (:class:`Busy`): it can
    only come from a signal handler, or from code of somebody's own that is run by the call, and
    would find the object half-way.

    The lock is one of C, taken and given back by a ``with`` statement: CPython runs signal handlers
    at none of the steps between the lock and the statement, so it is never left behind.
    """

    @wraps(method)
    def call(self: L, /, *args: P.args, **options: P.kwargs) -> R:
        refuse_within(self._lock, method.__name__)
        with self._lock:
            return method(self, *args, **options)

    return call


def refuse_within(lock: threading.RLock, what: str) -> None:
    """Refuses a call within a call of the same thread."""
    if lock._is_owned():  # type: ignore[attr-defined]
        raise Busy(
            f"{what} within another call of the same thread, as from a signal handler: let the "
            f"handler raise, or note it and {what} when that call has returned"
        )
