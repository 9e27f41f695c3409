"""The database: who came, what serves, and nothing else. SQLite, or PostgreSQL.

Every change begins by locking the one row of ``serving`` (SQLite: the file), so changes come one at
a time, from whatever process. Names of people are keyed hashes; raw data is in ``episodes.body``
from when it is accepted to when its block is published, and is then erased. Of an event that was
forgotten its keyed hash stays, without a name.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tacit.privacy.errors import InvalidArgument, TacitError

SCHEMA = 1

# ``bytes`` and ``serial`` are the two words that differ.
_TABLES = """
CREATE TABLE IF NOT EXISTS serving (
    one INTEGER PRIMARY KEY CHECK (one = 1), schema_version INTEGER NOT NULL, secret TEXT NOT NULL,
    revision BIGINT NOT NULL, epoch BIGINT NOT NULL, ledger TEXT NOT NULL,
    ledger_head TEXT NOT NULL, ledger_line BIGINT NOT NULL, version BIGINT NOT NULL,
    newest BIGINT NOT NULL, block BIGINT NOT NULL, accepts INTEGER NOT NULL, room BIGINT NOT NULL,
    people_left BIGINT NOT NULL, waiting BIGINT NOT NULL, served BIGINT NOT NULL,
    pinned INTEGER NOT NULL, stopped INTEGER NOT NULL, facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS episodes (
    id serial, event TEXT NOT NULL UNIQUE, person TEXT NOT NULL, block BIGINT NOT NULL,
    version BIGINT NOT NULL, state TEXT NOT NULL, body bytes, UNIQUE (person, block));
CREATE INDEX IF NOT EXISTS episodes_by_block ON episodes (block, id);
CREATE TABLE IF NOT EXISTS blocks (
    number BIGINT PRIMARY KEY, version BIGINT NOT NULL, users BIGINT NOT NULL,
    served_before BIGINT NOT NULL, state TEXT NOT NULL, at DOUBLE PRECISION NOT NULL);
CREATE TABLE IF NOT EXISTS policies (
    version BIGINT PRIMARY KEY, body bytes NOT NULL, etag TEXT NOT NULL, users BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL, ledger_line BIGINT NOT NULL, ledger_head TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tokens (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, digest TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
    revoked INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS commands (
    id serial, what TEXT NOT NULL, version BIGINT NOT NULL, by_whom TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL, state TEXT NOT NULL, answer TEXT NOT NULL);
"""


class StoreGone(TacitError):
    """The database does not answer, or its disk is full; whether a change is in is not known."""


class Store:
    """A database; each thread has a connection of its own.

    Args:
        where: the path of a file, or a connection string.
        patience: seconds in which it must answer: after a reboot it may come later than we do.
    """

    def __init__(self, where: str, patience: float = 0.0) -> None:
        self.where = where
        self.postgres = where.startswith(("postgresql://", "postgres://"))
        self._local = threading.local()
        self._opened: list[Any] = []
        end = time.monotonic() + patience
        while True:
            try:
                self._create()
                break
            except StoreGone:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.2)

    # Connections.

    def _connect(self) -> Any:
        if self.postgres:
            import psycopg

            made = psycopg.connect(self.where, autocommit=True, connect_timeout=5)
            made.prepare_threshold = 2
            return made
        path = Path(self.where)
        if not path.exists():
            path.touch(mode=0o600)
        connection = sqlite3.connect(
            path, timeout=30.0, isolation_level=None, check_same_thread=False
        )
        # WAL keeps readers going; FULL flushes every commit before it returns.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # What is erased is overwritten.
        connection.execute("PRAGMA secure_delete = ON")
        return connection

    @property
    def _connection(self) -> Any:
        if getattr(self._local, "connection", None) is None:
            self._local.connection = self._connect()
            self._opened.append(self._local.connection)
        return self._local.connection

    def close(self) -> None:
        """Closes this thread's connection."""
        connection, self._local.connection = getattr(self._local, "connection", None), None
        if connection is not None:
            with contextlib.suppress(Exception):
                self._opened.remove(connection)
                connection.close()

    def close_all(self) -> None:
        """Closes the connections of all threads, when none of them uses one any more."""
        self.close()
        while self._opened:
            with contextlib.suppress(Exception):
                self._opened.pop().close()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """What the database raises, as one kind of error; the connection is made anew then."""
        try:
            yield
        except self._errors() as error:
            self.close()
            raise StoreGone(f"the database does not answer: {type(error).__name__}") from error

    def _errors(self) -> tuple[type[Exception], ...]:
        if not self.postgres:
            return (sqlite3.Error, OSError)
        import psycopg

        return (psycopg.Error, OSError)

    # Questions and changes.

    def ask(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a question outside of a change."""
        with self._guarded():
            return self._execute(text, values)

    def _execute(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if self.postgres:
            cursor = self._connection.execute(text.replace("?", "%s"), tuple(values))
            return cursor.fetchall() if cursor.description else []
        found: list[tuple[Any, ...]] = self._connection.execute(text, tuple(values)).fetchall()
        return found

    @contextlib.contextmanager
    def change(self, epoch: int | None = None) -> Iterator[Change]:
        """One change: all of it or nothing, alone, and on disk when it is left.

        With ``epoch`` only by who leads: raises :class:`Fenced` if another process does by now.
        """
        with self._guarded():
            connection = self._connection
            connection.execute("BEGIN" if self.postgres else "BEGIN IMMEDIATE")
            try:
                change = Change(self)
                if epoch is not None and change.serving["epoch"] != epoch:
                    raise Fenced("another process leads")
                yield change
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(Exception):
                    connection.execute("ROLLBACK")
                raise

    def tidy(self) -> bool:
        """Takes what was erased out of the write-ahead log too; whether it is out of all files.

        In SQLite it is, unless somebody reads the database all the while. PostgreSQL marks it as
        free, and overwrites it when it needs the room: it never says that it has.
        """
        if self.postgres:
            self.ask("VACUUM episodes")
            return False
        return bool(self.ask("PRAGMA wal_checkpoint(TRUNCATE)")[0][0] == 0)

    def serving(self) -> dict[str, Any]:
        """What serves now."""
        rows = self.ask(f"SELECT {', '.join(_SERVING)} FROM serving")  # noqa: S608
        return dict(zip(_SERVING, rows[0], strict=True))

    def _create(self) -> None:
        words = ("BYTEA", "BIGSERIAL PRIMARY KEY") if self.postgres else _SQLITE_WORDS
        text = _TABLES.replace(" bytes", f" {words[0]}").replace("id serial", f"id {words[1]}")
        with self._guarded():
            connection = self._connection
            connection.execute("BEGIN" if self.postgres else "BEGIN IMMEDIATE")
            if self.postgres:
                # Two processes that make the same table at the same time would both fail.
                connection.execute("SELECT pg_advisory_xact_lock(7163946)")
            for statement in filter(str.strip, text.split(";")):
                connection.execute(statement)
            if not self._execute("SELECT one FROM serving"):
                self._execute(
                    "INSERT INTO serving VALUES (1, ?, ?, 0, 0, '', '', 0, -1, -1, 0, 0, 0, 0, 0, "
                    "0, 0, 0, '{}')",
                    (SCHEMA, secrets.token_hex(32)),
                )
            connection.execute("COMMIT")
        found = self.serving()["schema_version"]
        if found != SCHEMA:
            raise InvalidArgument(
                f"the database has schema {found}, this release {SCHEMA}: see docs/service.md"
            )


_SQLITE_WORDS = ("BLOB", "INTEGER PRIMARY KEY AUTOINCREMENT")
_SERVING = (
    *("schema_version", "secret", "revision", "epoch", "ledger", "ledger_head", "ledger_line"),
    *("version", "newest", "block", "accepts", "room", "people_left", "waiting", "served"),
    *("pinned", "stopped", "facts"),
)


class Fenced(TacitError):
    """Another process leads by now; nothing was changed."""


class Change:
    """What is done within one change of a :class:`Store`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        lock = " FOR UPDATE" if store.postgres else ""
        rows = self.ask(f"SELECT {', '.join(_SERVING)} FROM serving{lock}")  # noqa: S608
        self.serving: dict[str, Any] = dict(zip(_SERVING, rows[0], strict=True))

    def ask(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """A statement, and its rows."""
        return self._store._execute(text, values)

    def many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        """A statement for each of several rows."""
        if self._store.postgres:
            with self._store._connection.cursor() as cursor:
                cursor.executemany(text.replace("?", "%s"), [*rows])
        else:
            self._store._connection.executemany(text, [*rows])

    def put(self, **values: Any) -> None:
        """Sets what serves; everybody who watches looks again."""
        self.serving |= values
        names = "".join(f"{name} = ?, " for name in values)
        self.ask(f"UPDATE serving SET {names}revision = revision + 1", [*values.values()])  # noqa: S608


# Names, tickets and tokens: all by keyed hashes under the database's secret.


def hashed(secret: str, *words: str) -> str:
    """A keyed hash of texts; their lengths are in it, so no two lists share one."""
    text = "".join(f"{len(word)}:{word}" for word in words)
    key = bytes.fromhex(secret)
    return blake2b(text.encode("utf-8", "surrogatepass"), key=key, digest_size=16).hexdigest()


def ticket(secret: str, version: int, now: float) -> str:
    """What a device gets with a policy: which one it read, and when, by our clock."""
    text = f"{version}.{int(now)}"
    return f"{text}.{hashed(secret, 'ticket', text)}"


def read_ticket(secret: str, text: str) -> tuple[int, int] | None:
    """The version and the time of a ticket, unless we did not make it."""
    said, _, mark = text.rpartition(".")
    if not hmac.compare_digest(mark.encode(), hashed(secret, "ticket", said).encode()):
        return None
    version, _, at = said.partition(".")
    return int(version), int(at)


ROLES = ("device", "curator", "officer")


def new_token(store: Store, role: str) -> str:
    """A new token, which is shown once; the database keeps a hash of it."""
    if role not in ROLES:
        raise InvalidArgument(f"role={role!r} must be one of {', '.join(ROLES)}")
    name, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    with store.change() as change:
        change.ask(
            "INSERT INTO tokens VALUES (?, ?, ?, ?, 0)",
            (name, role, hashed(change.serving["secret"], "token", secret), time.time()),
        )
        change.put()
    return f"tacit-{role}-{name}-{secret}"


def revoke_token(store: Store, name: str) -> None:
    """From now on it opens nothing, also in other processes, within a second."""
    with store.change() as change:
        if not change.ask("SELECT name FROM tokens WHERE name = ?", (name,)):
            raise InvalidArgument(f"there is no token {name!r}")
        change.ask("UPDATE tokens SET revoked = 1 WHERE name = ?", (name,))
        change.put()
