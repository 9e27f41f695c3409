"""The index of a ledger: what its lines add up to, so that nobody has to read them all again.

It is a file beside the ledger, made when that has grown long, and derived: who deletes it loses
time only. It says up to which line of the chain it goes. Lines are on disk before the index knows
them, so a ledger that lacks what its index has seen is an older copy, and is refused.

The file is an SQLite database with one table, a sorted map from keys to values. SQLite makes a
change whole or not at all; it does not notice a bit that flipped on the disk. So each row also has
the key of the row after it, and a checksum over all three. Then not only what is there is checked
but also what is not: that somebody never joined is said by the row before her name, which must lead
to a later one. A row that is damaged, lost, or cannot be found any more makes the index
:class:`Unusable`, and the chain is read instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from tacit.privacy.files import MALFORMED

Row: TypeAlias = tuple[bytes, bytes, bytes]
"""A key, the key of the row after it (empty after the last), and a value."""

_HEAD = b""  # the key of the first row, whose value is the position
_CHECK_BYTES = 12
_CACHE_KIB = 1 << 16
_AT_ONCE = 250  # keys of one question
_BEFORE = (
    "SELECT asked.column1, rows.key, next, value, checksum FROM (VALUES {}) AS asked "
    "CROSS JOIN rows WHERE rows.key = (SELECT max(key) FROM rows WHERE key <= asked.column1)"
)
_BETWEEN = "SELECT key, next, value, checksum FROM rows WHERE key > ? AND key < ? ORDER BY key"
_PUT = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)"
_TABLE = (
    "CREATE TABLE rows (key BLOB PRIMARY KEY, next BLOB, value BLOB, checksum BLOB) WITHOUT ROWID"
)


class Unusable(Exception):
    """The index cannot be read, or says what it cannot say: read the chain."""


@dataclass(frozen=True)
class Position:
    """How far an index goes: so many lines and bytes of a chain, and its last line's hash."""

    lines: int
    end: int
    last_bytes: int
    hash: str


class Index:
    """The file of an index, of the ledger with an ``identity``. No file stays open between uses."""

    def __init__(self, path: str, identity: str) -> None:
        self.path = path
        self._key = hashlib.blake2b(identity.encode(), digest_size=32).digest()
        self._session = threading.local()

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Keeps the file open for several uses by this thread."""
        if getattr(self._session, "database", None) is not None:
            yield
            return
        try:
            # No FIFO, no device; and nothing is made where there is no index. It is not opened
            # by us: closing it would take SQLite's locks from another thread.
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise Unusable(self.path)
            database = self._connect()
        except (OSError, sqlite3.Error) as error:
            raise Unusable(self.path) from error
        self._session.database = database
        try:
            yield
        finally:
            self._session.database = None
            database.close()

    def position(self) -> Position | None:
        """How far it goes; nothing if there is none that belongs to this ledger."""
        try:
            with self.open():
                return Position(**json.loads(self._rows([_HEAD])[0][2]))
        except (Unusable, *MALFORMED):
            return None

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """The values of keys, as far as they have any."""
        with self.open():
            found = zip(keys, self._rows(keys), strict=True)
            return {key: row[2] if row[0] == key else None for key, row in found}

    def scan(self, prefix: bytes) -> dict[bytes, bytes]:
        """All keys with a prefix, and their values."""
        found: dict[bytes, bytes] = {}
        with self.open():
            ((key, after, value),) = self._rows([prefix])
            if key == prefix:
                found[key] = value
            # The chain of keys says whether all are there.
            beyond = prefix[:-1] + bytes([prefix[-1] + 1])
            for row in map(self._checked, self._ask(_BETWEEN, [prefix, beyond])):
                if row[0] != after:
                    raise Unusable(self.path)
                found[after], after = row[2], row[1]
        if after.startswith(prefix):
            raise Unusable(self.path)
        return found

    def write(self, rows: Mapping[bytes, bytes], position: Position, *, anew: bool) -> None:
        """Puts rows and the position into the index, all or nothing; ``anew`` into an empty one."""
        head = json.dumps(asdict(position)).encode()
        if anew:
            self.remove()
            # Of this mode, which SQLite's own files get too.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with self.open(), self._trouble():
            database = self._session.database
            database.execute("BEGIN IMMEDIATE")
            if anew:
                database.execute(_TABLE)
                keys = [_HEAD, *sorted(rows)]
                links = zip(keys, [*keys[1:], b""], strict=True)
                self._put((key, after, rows.get(key, head)) for key, after in links)
            else:
                self._put(self._inserted(dict(rows) | {_HEAD: head}))
            database.execute("COMMIT")

    def remove(self) -> None:
        """Deletes the file, and what SQLite left beside it."""
        for name in (f"{self.path}-journal", self.path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=10.0, isolation_level=None)
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return database

    @contextlib.contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise Unusable(self.path) from error

    def _ask(self, question: str, values: Sequence[bytes]) -> list[Any]:
        with self._trouble():
            rows: list[Any] = self._session.database.execute(question, values).fetchall()
        return rows

    def _rows(self, keys: Sequence[bytes]) -> list[Row]:
        """For each key its row, or the one before where that would be."""
        found: dict[bytes, Row] = {}
        for start in range(0, len(keys), _AT_ONCE):
            asked = keys[start : start + _AT_ONCE]
            marks = ", ".join(["(?)"] * len(asked))
            for key, *row in self._ask(_BEFORE.format(marks), asked):
                found[key] = self._checked(row)
        if len(found) != len({*keys}):
            raise Unusable(self.path)
        if any(row[0] > key or b"" < row[1] <= key for key, row in found.items()):
            raise Unusable(self.path)
        return [found[key] for key in keys]

    def _checked(self, row: Any) -> Row:
        if row is None or any(type(part) is not bytes for part in row):
            raise Unusable(self.path)
        key, after, value, checksum = row
        if checksum != self._checksum(key, after, value):
            raise Unusable(self.path)
        return key, after, value

    def _inserted(self, rows: Mapping[bytes, bytes]) -> Iterator[Row]:
        """The rows to be put so that these are in the map, in order."""
        keys = sorted(rows)
        held: Row | None = None  # whose next key is not final yet
        for key, (found, after, value) in zip(keys, self._rows(keys), strict=True):
            if held is not None and held[0] < found:
                yield held
                held = None
            if key == found:
                held = (key, after, rows[key])
            else:
                # Behind the row before it: what we put last, or what the index has there.
                before, after, value = held or (found, after, value)
                yield before, key, value
                held = (key, after, rows[key])
        if held is not None:
            yield held

    def _put(self, rows: Iterable[Row]) -> None:
        sealed = ((*row, self._checksum(*row)) for row in rows)
        self._session.database.executemany(_PUT, sealed)

    def _checksum(self, key: bytes, after: bytes, value: bytes) -> bytes:
        text = b"%d %d " % (len(key), len(after)) + key + after + value
        return hashlib.blake2b(text, key=self._key, digest_size=_CHECK_BYTES).digest()


class Rows:
    """What the lines of a ledger add up to, by key: what changed lately, over what an index has."""

    def __init__(self, index: Index | None, replay: Callable[[], Mapping[bytes, bytes]]) -> None:
        self.changed: dict[bytes, bytes] = {}
        self.index = index
        self.replay = replay

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        return self.get_many([key])[key]

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """The values of keys."""
        asked = [key for key in keys if key not in self.changed]
        found: dict[bytes, bytes | None] = {}
        if asked and self.index is not None:
            try:
                found = self.index.get(asked)
            except Unusable:
                self._give_up()
        return {key: self.changed.get(key, found.get(key)) for key in keys}

    def put(self, key: bytes, value: bytes) -> None:
        """Changes the value of a key."""
        self.changed[key] = value

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """All keys with a prefix, in order, and their values."""
        found: dict[bytes, bytes] = {}
        if self.index is not None:
            try:
                found = self.index.scan(prefix)
            except Unusable:
                self._give_up()
        found |= {key: value for key, value in self.changed.items() if key.startswith(prefix)}
        return sorted(found.items())

    def _give_up(self) -> None:
        """Goes on without the index: all rows by the chain, and over them what changed since."""
        self.changed = {**self.replay(), **self.changed}
        self.index = None
