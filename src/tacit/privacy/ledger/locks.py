"""Who may write to a ledger: one process at a time, in turn, and nobody waits for ever.

The lock is ``flock`` on the ledger itself. Two files beside it help and decide nothing. While the
lock is held, ``<ledger>.holder`` says by whom. ``<ledger>.lock`` is made when somebody first has to
wait; from then on all queue for it, and only who has it tries for the ledger. So a process that
unlocks and locks again at once comes behind those who wait. Somebody who queues, and was stopped,
does not stop the others: after a moment they try for the ledger all the same.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import socket
import time
from datetime import UTC, datetime

from tacit.privacy.errors import InvalidArgument, LockTimeout
from tacit.privacy.files import open_regular

try:
    import fcntl
except ImportError:  # not POSIX; whoever asks for a lock is told so
    fcntl = None  # type: ignore[assignment]

TIMEOUT = 60.0
"""How many seconds a process waits for a ledger unless it is told otherwise."""

TIMEOUT_VARIABLE = "TACIT_LEDGER_TIMEOUT"
"""The environment variable with another default, in seconds."""

_PATIENCE = 0.5  # how long the order of the queue is kept to
_NAP = (0.0005, 0.002)
_MOST_BYTES = 4096
_CENTURY = 3.2e9  # as good as for ever


def checked_timeout(timeout: float | None) -> float:
    """How long to wait, in seconds: as told, as the environment says, or the default."""
    value, name = timeout, "timeout"
    if value is None:
        text, name = os.environ.get(TIMEOUT_VARIABLE, ""), TIMEOUT_VARIABLE
        if not text:
            return TIMEOUT
        try:
            value = float(text)
        except ValueError:
            value = math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0.0:
        raise InvalidArgument(f"{name}={value!r} must be a number of seconds, at least 0")
    return float(min(value, _CENTURY))


def take(path: str, descriptor: int, *, exclusive: bool, timeout: float) -> None:
    """Takes the lock of an opened ledger; a LockTimeout says who held it all the while."""
    _wait(path, descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, timeout)
    if exclusive:
        _sign(path)


def give_back(path: str, descriptor: int, *, exclusive: bool) -> None:
    """Gives it back."""
    if exclusive:
        # Before others can have the lock: it is never theirs that is removed.
        with contextlib.suppress(OSError):
            os.unlink(_holder_file(path))
    # Closing alone would not unlock if another thread has forked meanwhile.
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _wait(path: str, descriptor: int, operation: int, timeout: float) -> None:
    queue = _queue(path, 0)
    if queue is None:
        if _taken(descriptor, operation):
            return
        queue = _queue(path, os.O_CREAT)
    try:
        began, mine = time.monotonic(), queue is None
        while True:
            mine = mine or (queue is not None and _taken(queue, fcntl.LOCK_EX))
            waited = time.monotonic() - began
            if (mine or waited >= min(_PATIENCE, timeout)) and _taken(descriptor, operation):
                return
            if waited >= timeout:
                raise LockTimeout(
                    f"{path!r} was locked for {timeout:g} seconds, by {_holder(path)}; wait longer "
                    f"by timeout= or {TIMEOUT_VARIABLE}, or look after that process"
                )
            # Drawn, so that nobody who waits is always the later one; no secret depends on it.
            time.sleep(random.uniform(*_NAP))  # noqa: S311
    finally:
        if queue is not None:
            fcntl.flock(queue, fcntl.LOCK_UN)
            os.close(queue)


def _taken(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _queue(path: str, flags: int) -> int | None:
    """The file for which all queue, opened, if there is one or it can be made."""
    try:
        flags |= os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
        return os.open(f"{path}.lock", flags, 0o600)
    except OSError:
        return None


# Who it is.


def _holder_file(path: str) -> str:
    return f"{path}.holder"


def _sign(path: str) -> None:
    """Says who holds the lock. Where that cannot be written, nobody knows."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(_holder_file(path), flags | os.O_NONBLOCK, 0o600)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _holder(path: str) -> str:
    """Who holds the lock, in words."""
    try:
        with open(open_regular(_holder_file(path)), "rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
        process, host, since = int(found["pid"]), str(found["host"]), str(found["since"])
    except Exception:  # what it says is for people, and decides nothing
        return "somebody who left no name (a reader, or an older release)"
    return f"process {process} on {host!r} since {since}"
