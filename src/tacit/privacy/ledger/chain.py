"""The file of a ledger: lines that are only ever appended, chained by hashes, under a lock.

Each line is a JSON object with a hash over the hash of the line before and its own content, so an
edited, deleted or reordered line is detected.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import inspect
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from tacit.privacy.errors import Busy, CorruptFile
from tacit.privacy.files import MALFORMED, check_size, open_regular, parse_json
from tacit.privacy.ledger.index import Position
from tacit.privacy.ledger.locks import give_back, take

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
    """A descriptor with a lock, which file it is of, for whom, and whether to write."""

    def __init__(self, path: str, descriptor: int, holder: FrameType | None) -> None:
        self.path, self.descriptor, self.status = path, descriptor, os.fstat(descriptor)
        self.holder, self.exclusive = holder, False


# Those of each thread of each process. A thread never needs the lock of a file twice.
_HELD: dict[tuple[int, int], dict[int, _Lock]] = {}


def _callers() -> Iterator[FrameType]:
    """The functions that are being run, innermost first, without generators and their helpers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_flags & inspect.CO_GENERATOR and code.co_filename != contextlib.__file__:
            yield frame
        frame = frame.f_back


def _let_go(mine: dict[int, _Lock], lock: _Lock) -> None:
    if mine.get(lock.descriptor) is lock:  # once: the number may be another file's by now
        give_back(lock.path, lock.descriptor, exclusive=lock.exclusive)
        mine.pop(lock.descriptor, None)
        os.close(lock.descriptor)


class ChainedFile:
    """How far a file was read, and how to read and append more. It stays closed in between."""

    def __init__(self, path: str, timeout: float) -> None:
        self.path = path
        self.timeout = timeout
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
        mine = _HELD.setdefault((os.getpid(), threading.get_ident()), {})
        lock = _Lock(self.path, descriptor, next(_callers(), None))
        # A signal just before the body of ``with locked()`` leaves a lock to the frames of its
        # exception, while that is handled: who waited for it then would wait for himself. One whose
        # body is being run is in use: this comes from a signal handler, or from within a save.
        for old in [o for o in mine.values() if os.path.samestat(o.status, lock.status)]:
            if any(frame is old.holder for frame in _callers()):
                os.close(descriptor)
                raise Busy(f"this thread has the lock of {self.path!r} already, further up")
            _let_go(mine, old)
        mine[descriptor] = lock
        try:
            take(self.path, descriptor, exclusive=append, timeout=self.timeout)
            lock.exclusive = append
            # Whoever waited for the lock may hold that of a file which is no longer there.
            if not os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                raise CorruptFile(f"{self.path!r}: another file took its place meanwhile")
            yield descriptor
        finally:
            try:
                _let_go(mine, lock)
            except BaseException:
                _let_go(mine, lock)  # a signal came into that, and others wait
                raise

    @property
    def head(self) -> str:
        """The hash of the last line, which by the chain stands for all of them."""
        return self._hash

    @property
    def position(self) -> Position:
        """How far it was read."""
        return Position(self.lines, self.end, len(self._last), self._hash)

    def go_to(self, descriptor: int, position: Position) -> bool:
        """Goes on behind a line that was read before; whether the file has it there."""
        start = position.end - position.last_bytes
        if not 0 <= start < position.end <= os.fstat(descriptor).st_size:
            return False
        line = os.pread(descriptor, position.last_bytes, start)
        if hash_of(line) != position.hash:
            return False
        self.lines, self.end = position.lines, position.end
        self._last, self._hash = line, position.hash
        return True

    def line(self, descriptor: int, number: int) -> bytes:
        """The line of an entry (the first line is 0), by its number: by bisection, as they rise."""
        low, high = 0, self.end  # a line begins at each, and the one we want in between
        while True:
            found = _line_from(descriptor, (low + high) // 2, high)
            if found is None:  # only one line begins behind the middle, or none
                return self._line_between(descriptor, low, high, number)
            start, line = found
            try:
                here = parse_json(line).get("sequence", 0)
            except MALFORMED as error:
                raise CorruptFile(f"{self.path!r}: a line is damaged") from error
            if here == number:
                return line
            low, high = (start + len(line), high) if here < number else (low, start)

    def _line_between(self, descriptor: int, low: int, high: int, number: int) -> bytes:
        for line in os.pread(descriptor, high - low, low).splitlines(keepends=True):
            if parse_json(line).get("sequence", 0) == number:
                return line
        raise CorruptFile(f"{self.path!r}: line {number + 1} is not there")

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


def hash_of(line: bytes) -> str:
    """The hash that a line says it has; empty for what is no line."""
    try:
        return str(parse_json(line)["hash"])
    except MALFORMED:
        return ""


def _line_from(descriptor: int, start: int, end: int) -> tuple[int, bytes] | None:
    """The first line that begins behind ``start``, and where, if it ends by ``end``."""
    data, size = b"", 1 << 12
    while True:
        data = os.pread(descriptor, min(size, end - start), start)
        first = data.find(b"\n") + 1
        last = data.find(b"\n", first) + 1 if first else 0
        if last:
            return start + first, data[first:last]
        if len(data) >= end - start:
            return None
        size *= 4
