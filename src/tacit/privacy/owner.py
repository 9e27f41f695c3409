"""Secret state has one owner: not copied, not gone on with after a fork, one call at a time."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, ClassVar, Self

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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [lock._at_fork_reinit() for lock in _LOCKS])


def refuse_within(lock: threading.RLock, what: str) -> threading.RLock:
    """The lock, for a ``with`` statement; refuses a call within a call of the same thread.

    That would find the object half-way. It can only come from a signal handler, or from somebody's
    own code that the call runs. Another thread waits. The lock is one of C: CPython runs no signal
    handler between it and the statement, so it is never left behind.
    """
    if lock._is_owned():  # type: ignore[attr-defined]
        raise Busy(
            f"{what} within another call of the same thread, as from a signal handler: let the "
            f"handler raise, or note it and {what} when that call has returned"
        )
    return lock
