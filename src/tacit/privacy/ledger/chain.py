"""The file of a ledger: lines that are only ever appended, chained by hashes, under a lock.

Each line is a JSON object with a hash over the hash of the line before and its own content, so an
edited, deleted or reordered line is detected.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tacit.privacy.errors import CorruptFile
from tacit.privacy.files import MALFORMED, check_size, open_regular, parse_json

try:
    import fcntl
except ImportError:  # not POSIX; every operation then says so
    fcntl = None  # type: ignore[assignment]


def seal(record: Mapping[str, Any], previous: str) -> bytes:
    """The line for a record: its JSON, with a hash over the previous hash and that JSON."""
    body = json.dumps(record, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256((previous + body).encode()).hexdigest()
    return json.dumps({**record, "hash": digest}, sort_keys=True).encode() + b"\n"


class _Lock:
    """A descriptor with a lock, and which file it is of."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.status = descriptor, os.fstat(descriptor)


# Those of each thread of each process. A thread never needs the lock of a file twice.
_HELD: dict[tuple[int, int], dict[int, _Lock]] = {}


def _let_go(mine: dict[int, _Lock], lock: _Lock) -> None:
    if mine.get(lock.descriptor) is lock:  # once: the number may be another file's by now
        # Closing alone would not unlock if another thread has forked meanwhile.
        fcntl.flock(lock.descriptor, fcntl.LOCK_UN)
        mine.pop(lock.descriptor, None)
        os.close(lock.descriptor)


class ChainedFile:
    """How far a file was read, and how to read and append more. It stays closed in between."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines = 0
        self.end = 0
        self._last = b""  # the last line
        self._hash = ""  # and its hash

    @property
    def where(self) -> str:
        """The next line, in words."""
        return f"{self.path!r}: line {self.lines + 1}"

    @contextlib.contextmanager
    def locked(self, *, append: bool) -> Iterator[int]:
        """Holds the file's lock."""
        if fcntl is None:
            raise OSError(errno.ENOTSUP, "a ledger needs POSIX file locks (fcntl.flock)")
        descriptor = open_regular(self.path, os.O_RDWR | os.O_APPEND if append else os.O_RDONLY)
        mine, lock = _HELD.setdefault((os.getpid(), threading.get_ident()), {}), _Lock(descriptor)
        # A signal just before the body of ``with locked()`` leaves a lock to the frames of its
        # exception, while that is handled: who waited for it then would wait for himself.
        for old in [o for o in mine.values() if os.path.samestat(o.status, lock.status)]:
            _let_go(mine, old)
        mine[descriptor] = lock
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if append else fcntl.LOCK_SH)
            # Whoever waited for the lock may hold that of a file which is no longer there.
            if not os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                raise CorruptFile(f"{self.path!r}: another file took its place meanwhile")
            yield descriptor
        finally:
            _let_go(mine, lock)

    def unread(self, descriptor: int) -> tuple[list[bytes], bytes]:
        """The lines that were appended since the last reading, and a torn one behind them."""
        found = os.fstat(descriptor)
        if found.st_size < self.end:
            raise CorruptFile(f"{self.path!r}: shorter than when it was last read")
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(self.end - len(self._last))
            # By the chain of hashes it stands for all lines before it.
            if file.read(len(self._last)) != self._last:
                raise CorruptFile(f"{self.path!r}: not the file that was last read")
            size = check_size(self.path, found.st_size - self.end, "ledger")
            *lines, torn = file.read(size).split(b"\n")
        return [line + b"\n" for line in lines], torn

    def record(self, line: bytes) -> tuple[dict[str, Any], str]:
        """What the next line says, and its hash, if it continues the chain."""
        try:
            record = parse_json(line)
            digest = record.pop("hash")
            # Compared as bytes, so that not even white space can be edited.
            intact = seal(record, self._hash) == line
        except MALFORMED as error:
            raise CorruptFile(f"{self.where} is not a line of a Tacit ledger") from error
        if not intact:
            raise CorruptFile(f"{self.where} was altered, or a line before it was removed or moved")
        return record, digest

    def accept(self, line: bytes, digest: str) -> None:
        """Goes on behind this line."""
        self._hash, self._last = digest, line
        self.lines += 1
        self.end += len(line)

    def append(self, descriptor: int, record: Mapping[str, Any]) -> bytes:
        """Puts a record on disk, behind all lines; returns its line, which was not read yet."""
        line = seal(record, self._hash)
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, "a line was written in part", self.path)
            os.fsync(descriptor)
        except OSError:
            # The caller is told that nothing was recorded; if this fails too, it may be recorded
            # after all, which charges too much and never too little.
            self.cut(descriptor)
            raise
        return line

    def cut(self, descriptor: int) -> None:
        """Drops what is behind the lines that were read."""
        os.ftruncate(descriptor, self.end)
